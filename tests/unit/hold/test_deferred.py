"""Closes that wait for their host: each on the disk until it is delivered, and no other touched."""

import json
import os
import shlex
import signal
import stat
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pp4.errors import BadInputError, Code, RefusedError
from pp4.hold.deferred import Close, Deferred
from tests.unit.hold.holds import as_nobody, forked

ID, OTHER = "0123456789abcdef", "f" * 16
HOST = "gpu.example:22"


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "state" / "deferred"


def close(hold=ID, fence=3, address=HOST, why="cancelled"):
    return Close(address=address, hold=hold, fence=str(fence), why=why)


def put(deferred, one):
    deferred.store(one.address, one.hold, int(one.fence), one.why)


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def test_a_close_waits_for_its_host_until_it_is_delivered(directory):
    put(Deferred(directory), close())
    put(Deferred(directory), close(OTHER, 4, "elsewhere"))
    # another process, later
    deferred = Deferred(directory)
    assert deferred.pending(HOST) == (close(),)
    assert deferred.pending("elsewhere") == (close(OTHER, 4, "elsewhere"),)
    assert deferred.pending("gpu.example") == ()
    deferred.delivered(ID)
    assert deferred.pending(HOST) == ()
    assert deferred.pending("elsewhere") == (close(OTHER, 4, "elsewhere"),)
    deferred.delivered(ID)
    assert names(directory) == [f"{OTHER}.json"]


def test_nothing_stored_is_nothing_pending_and_nothing_made(directory):
    deferred = Deferred(directory)
    assert (deferred.pending(HOST), deferred.faults()) == ((), ())
    deferred.delivered(ID)
    assert not directory.exists()


def test_a_close_is_its_users_alone(directory):
    mask = os.umask(0)
    try:
        put(Deferred(directory), close())
    finally:
        os.umask(mask)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_IMODE((directory / f"{ID}.json").stat().st_mode) == 0o600


def test_one_hold_has_one_file_that_names_one_fence_and_one_host(directory):
    deferred = Deferred(directory)
    put(deferred, close())
    put(deferred, close(why="deadline"))
    assert deferred.pending(HOST) == (close(why="deadline"),)
    for other in (close(fence=4), close(address="elsewhere")):
        with pytest.raises(RefusedError) as caught:
            put(deferred, other)
        assert caught.value.refusal.code is Code.EXISTS
        assert caught.value.refusal.found == f"fence 3 of {HOST}"
    assert deferred.pending(HOST) == (close(why="deadline"),)
    assert names(directory) == [f"{ID}.json"]
    tree = json.loads((directory / f"{ID}.json").read_text())
    assert tree == {"address": HOST, "fence": "3", "hold": ID, "why": "deadline"}


BAD_IDS = ["", ".", "..", "../" + ID, ID[:-1], ID + "0", ID.upper(), ID + "\n", "\x00" * 16]
BAD_IDS += [f"{ID}/x", "\u0660" * 16, "g" * 16]


@pytest.mark.parametrize("hold", BAD_IDS)
def test_only_an_id_becomes_a_file(directory, hold):
    deferred = Deferred(directory)
    for action in (lambda: deferred.store(HOST, hold, 1, "x"), lambda: deferred.delivered(hold)):
        with pytest.raises(BadInputError):
            action()
    assert not directory.exists()


@given(st.text())
def test_whatever_the_id_nothing_is_written_elsewhere(tmp_path_factory, hold):
    root = tmp_path_factory.mktemp("ids")
    try:
        Deferred(root / "deferred").store(HOST, hold, 1, "x")
    except BadInputError:
        assert list(root.iterdir()) == []
    else:
        assert names(root) == ["deferred"]
        assert names(root / "deferred") == [f"{hold}.json"]


@pytest.mark.parametrize(
    "odd",
    [
        {"fence": -1},
        {"fence": 2**64},
        {"address": ""},
        {"address": "x" * 5000},
        {"why": ""},
        {"why": "\ud800"},
    ],
)
def test_a_close_that_is_none_is_not_stored(directory, odd):
    whole = {"address": HOST, "hold_id": ID, "fence": 1, "why": "x", **odd}
    with pytest.raises(BadInputError):
        Deferred(directory).store(**whole)
    assert not directory.exists()


def broken_files():
    good = close().model_dump()
    return {
        "empty": b"",
        "cut": json.dumps(good).encode()[:-5],
        "a list": b"[]",
        "another hold": json.dumps({**good, "hold": OTHER}).encode(),
        "a fence that is no number": json.dumps({**good, "fence": 3}).encode(),
        "a member more": json.dumps({**good, "also": OTHER}).encode(),
        "a member less": json.dumps({"hold": ID, "fence": "3"}).encode(),
        "a member twice": json.dumps(good).encode()[:-1] + b',"fence":"4"}',
        "not UTF-8": b"\xff",
        "deep": b"[" * 100_000,
        "long": b" " * (1 << 20) + b"{}",
    }


@pytest.mark.parametrize("name", broken_files())
def test_a_file_that_is_no_close_is_said_passed_over_and_kept(directory, name):
    deferred = Deferred(directory)
    put(deferred, close(OTHER))
    raw = broken_files()[name]
    path = directory / f"{ID}.json"
    path.write_bytes(raw)
    assert deferred.pending(HOST) == (close(OTHER),)
    (fault,) = deferred.faults()
    assert fault.code is Code.UNREADABLE
    deferred.delivered(ID)
    assert path.read_bytes() == raw
    with pytest.raises(RefusedError) as caught:
        put(deferred, close())
    assert caught.value.refusal.code is Code.UNREADABLE
    assert path.read_bytes() == raw


def test_what_is_in_the_way_is_moved_by_the_command_that_is_said(directory):
    deferred = Deferred(directory)
    put(deferred, close(OTHER))
    (directory / f"{ID}.json").write_bytes(b"{")
    (fault,) = deferred.faults()
    subprocess.run(shlex.split(fault.next), check=True)
    put(deferred, close())
    assert set(deferred.pending(HOST)) == {close(), close(OTHER)}
    assert deferred.faults() == ()
    assert (directory / f"{ID}.json.broken").read_bytes() == b"{"


def test_a_link_a_pipe_and_a_directory_are_no_closes(tmp_path, directory):
    deferred = Deferred(directory)
    put(deferred, close())
    (tmp_path / "precious").write_text(json.dumps(close(OTHER).model_dump()))
    (directory / f"{OTHER}.json").symlink_to(tmp_path / "precious")
    os.mkfifo(directory / f"{'a' * 16}.json")
    (directory / f"{'b' * 16}.json").mkdir()
    assert deferred.pending(HOST) == (close(),)
    assert len(deferred.faults()) == 3
    deferred.delivered(OTHER)
    assert (directory / f"{OTHER}.json").is_symlink()
    with pytest.raises(RefusedError) as caught:
        put(deferred, close(OTHER))
    assert caught.value.refusal.code is Code.EXCLUSION
    assert (tmp_path / "precious").exists()


def test_files_of_other_names_are_nobodys_closes(directory):
    deferred = Deferred(directory)
    put(deferred, close())
    for name in (f".{OTHER}.json.0011.part", f"{OTHER}.json.broken", "notes.txt"):
        (directory / name).write_text(json.dumps(close(OTHER).model_dump()))
    assert (deferred.pending(HOST), deferred.faults()) == ((close(),), ())


def test_a_directory_that_cannot_be_made_or_read_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    deferred = Deferred(tmp_path / "file")
    with pytest.raises(RefusedError) as caught:
        put(deferred, close())
    assert caught.value.refusal.code is Code.UNWRITABLE
    with pytest.raises(RefusedError) as caught:
        deferred.pending(HOST)
    assert caught.value.refusal.code is Code.UNREADABLE


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_a_directory_of_somebody_else_takes_nothing(shared):
    put(Deferred(shared / "deferred"), close())

    def action():
        try:
            put(Deferred(shared / "deferred"), close(OTHER))
        except RefusedError as error:
            return str(error.refusal.code)

    assert as_nobody(action) in ("UNWRITABLE", "UNREADABLE")
    assert names(shared / "deferred") == [f"{ID}.json"]


# -- any order of events -------------------------------------------------------------------------

HOLDS = [f"{number:016x}" for number in range(3)]
HOSTS = ["one:22", "two:22"]
events = st.tuples(
    st.sampled_from(["store", "delivered"]),
    st.sampled_from(HOLDS),
    st.integers(1, 2),
    # the step before which the process is killed; 0 is none
    st.integers(0, 6),
)


def address_of(hold):
    return HOSTS[int(hold, 16) % 2]


def act(directory, what, hold, fence):
    deferred = Deferred(directory)
    if what == "store":
        try:
            deferred.store(address_of(hold), hold, fence, "lost")
        except RefusedError as error:
            return str(error.refusal.code)
    else:
        deferred.delivered(hold)
    return "done"


def killed_before(point, action):
    """Act in a process that is killed before its n-th step on the disk; -> whether it was."""

    def child():
        left = point

        def counted(real):
            def call(*given, **more):
                nonlocal left
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*given, **more)

            return call

        for name in ("open", "write", "ftruncate", "fsync", "rename", "unlink"):
            setattr(os, name, counted(getattr(os, name)))
        return action()

    return forked(child) == -signal.SIGKILL


@settings(max_examples=30)
@given(st.lists(events, max_size=12))
def test_exactly_what_is_not_delivered_is_kept_whatever_happens(tmp_path_factory, history):
    directory = tmp_path_factory.mktemp("deferred") / "closes"
    kept = {}
    for what, hold, fence, point in history:
        before = dict(kept)
        after = dict(kept)
        refused = what == "store" and kept.get(hold, fence) != fence
        if what == "store" and not refused:
            after[hold] = fence
        elif what == "delivered":
            after.pop(hold, None)
        if point and killed_before(point, lambda w=what, h=hold, f=fence: act(directory, w, h, f)):
            # the one or the other, and nothing in between
            found = found_in(directory)
            assert found in (before, after)
            kept = found
            continue
        if not point:
            said = act(directory, what, hold, fence)
            assert said == ("EXISTS" if refused else "done")
        kept = after
        assert found_in(directory) == kept
    assert Deferred(directory).faults() == ()


def found_in(directory):
    """Every close by its id, as both hosts are told."""
    found = {}
    for host in HOSTS:
        for one in Deferred(directory).pending(host):
            assert address_of(one.hold) == host
            assert one.hold not in found
            found[one.hold] = int(one.fence)
    files = [] if not directory.exists() else list(Path(directory).glob("[0-9a-f]*.json"))
    assert len(files) == len(found)
    return found
