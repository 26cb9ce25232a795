"""A host in order: its directory made, its HOLDs seen, its quarantines ended, old records gone."""

import fcntl
import json
import os
import shlex
import signal
import stat
import subprocess
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pp4.clock import ManualClock, SystemClock
from pp4.errors import BadInputError, Code, Exit, Pp4Error, RefusedError, UsageError
from pp4.hold.chained import read_chained
from pp4.hold.exclusion import Exclusion, open_exclusion
from pp4.hold.places import own_directory
from pp4.hold.records import highest_granted, read_records
from pp4.hold.restoring import keep, settle
from pp4.hold.upkeep import Quarantine, clear, init_host, overview, prune
from pp4.receipts.canonical import shown
from pp4.wire.holds import HostCommand
from tests.unit.hold.holds import (
    GPUS,
    NOBODY,
    ROOT,
    as_nobody,
    files,
    forked,
    held,
    private,
    started,
    write_modules,
)
from tests.unit.hold.written import (
    dead,
    living,
    me,
    reused,
    snapshot,
    write_hold,
    zombie,
)

A, B = GPUS
NOW = datetime(2026, 3, 1, tzinfo=UTC)
DAY = timedelta(days=1)
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a host's directory")


@pytest.fixture
def exclusion(tmp_path):
    return private(tmp_path)


def clock():
    return ManualClock(NOW)


def seen(exclusion, at=None):
    """The overview of an exclusion whose state directory is its own."""
    return overview(exclusion, exclusion.directory, at or clock())


def one_hold(exclusion):
    (found,) = seen(exclusion).holds
    return found


def gpu_of(exclusion, gpu=A):
    (found,) = [one for one in seen(exclusion).gpus if one.gpu == gpu]
    return found


def refused(action, *given, kind=Pp4Error):
    with pytest.raises(kind) as caught:
        action(*given)
    return caught.value.refusal


# -- the directory of the host -----------------------------------------------------------------


@as_root
@pytest.mark.parametrize("mask", [0o000, 0o077])
def test_root_makes_the_directory_and_finds_it_the_next_time(tmp_path, mask):
    host = tmp_path / "host"
    before = os.umask(mask)
    try:
        made = init_host(host)
    finally:
        os.umask(before)
    names = [host, host / "gpu", host / "fence", host / "holds"]
    modes = ["0755", "0777", "0777", "1777"]
    assert made == tuple(f"made: {n}, mode {m}" for n, m in zip(names, modes, strict=True))
    assert [f"{stat.S_IMODE(name.stat().st_mode):04o}" for name in names] == modes
    (host / "gpu" / "kept").write_text("kept")
    there = tuple(f"was there: {n}, mode {m}" for n, m in zip(names, modes, strict=True))
    assert init_host(host) == there
    assert (host / "gpu" / "kept").read_text() == "kept"
    assert open_exclusion(host, tmp_path / "state", boot="b").kind == "host"


@as_root
def test_what_is_missing_of_a_directory_is_made(tmp_path):
    host = tmp_path / "host"
    init_host(host)
    (host / "fence").rmdir()
    words = [line.split(":")[0] for line in init_host(host)]
    assert words == ["was there", "was there", "made", "was there"]


@as_root
@pytest.mark.parametrize(
    ("name", "mode"), [("", 0o700), ("gpu", 0o700), ("fence", 0o755), ("holds", 0o1700)]
)
def test_a_directory_that_keeps_users_out_is_refused_with_its_repair(tmp_path, name, mode):
    """A kill between the making of a directory and its mode leaves one."""
    host = tmp_path / "host"
    init_host(host)
    (host / name).chmod(mode)
    refusal = refused(init_host, host, kind=RefusedError)
    assert (refusal.code, refusal.where) == (Code.EXCLUSION, shown(str(host / name)))
    assert refusal.found == f"mode {mode:04o}"
    subprocess.run(shlex.split(refusal.next), check=True)
    assert {line.split(":")[0] for line in init_host(host)} == {"was there"}


@as_root
def test_a_directory_of_somebody_else_is_refused(tmp_path):
    host = tmp_path / "host"
    init_host(host)
    os.chown(host, NOBODY, NOBODY)
    assert refused(init_host, host, kind=RefusedError).code is Code.EXCLUSION


@as_root
@pytest.mark.parametrize(
    ("path", "again"),
    [
        ("/var/lib/pp4", "sudo pp4 host init"),
        ("/var/lib/x y/pp4", "sudo env PP4_HOST_DIR='/var/lib/x y/pp4' pp4 host init"),
    ],
)
def test_a_user_is_told_what_the_administrator_types(path, again):
    def action():
        try:
            return init_host(Path(path))
        except RefusedError as error:
            return error.refusal.as_dict()

    found = as_nobody(action)
    assert (found["code"], found["next"]) == ("UNWRITABLE", again)
    assert found["found"] == f"user {NOBODY}"
    assert not Path("/var/lib/x y").exists()


# -- what there is -----------------------------------------------------------------------------


def test_nothing_there_is_nothing_seen(exclusion):
    found = seen(exclusion)
    assert (found.holds, found.gpus, found.unreadable) == ((), (), ())
    assert (found.exclusion, found.directory) == ("private", exclusion.directory)


def test_an_open_hold_and_its_processes_are_seen_and_then_its_end(tmp_path, exclusion):
    modules = write_modules(tmp_path / "modules")
    with held(tmp_path) as hold:
        channel, _ = started(hold, "waits", modules)
        found = seen(exclusion, SystemClock())
        (one,) = found.holds
        assert (one.hold, one.state, one.fence, one.why) == (hold.hold_id, "open", 1, "")
        assert (one.gpus, one.user, one.exclusion) == (GPUS, os.geteuid(), "private")
        assert one.command == str(hold.admission.command)
        assert 0 < one.left_s <= 5400
        assert len(one.alive) == 1
        assert f"waits (pid {channel.pid}, " in one.alive[0]
        assert [(gpu.gpu, gpu.taken, gpu.fence) for gpu in found.gpus] == [
            (A, True, 1),
            (B, True, 1),
        ]
    found = seen(exclusion, SystemClock())
    (one,) = found.holds
    assert (one.state, one.why, one.alive, one.left_s) == ("closed", "done", (), None)
    assert [gpu.taken for gpu in found.gpus] == [False, False]


def test_the_time_that_is_left_counts_boot_time(exclusion):
    write_hold(exclusion, "a" * 16, holder=me(), deadline_ns=100 * 10**9)
    at = clock()
    at.suspend(40.5)
    assert seen(exclusion, at).holds[0].left_s == 59
    at.suspend(1000)
    assert seen(exclusion, at).holds[0].left_s == 0


@pytest.mark.parametrize("holder", [dead, reused])
def test_a_hold_whose_holder_is_dead_is_lost(exclusion, holder):
    write_hold(exclusion, "a" * 16, holder=holder())
    assert one_hold(exclusion).state == "lost"


def test_a_holder_that_nobody_reaped_is_dead(exclusion):
    with living() as holder:
        write_hold(exclusion, "a" * 16, holder=holder)
        assert one_hold(exclusion).state == "open"
        os.kill(holder.pid, signal.SIGSTOP)
        assert one_hold(exclusion).state == "open"
        zombie(holder)
        assert one_hold(exclusion).state == "lost"


def test_a_coordinator_that_was_killed_is_seen_with_what_it_left(tmp_path, exclusion):
    modules = write_modules(tmp_path / "modules")

    def killed():
        with held(tmp_path) as hold:
            path = {"PYTHONPATH": f"{ROOT}:{modules}"}
            hold.start("silent", [], environment=path, label="silent")
            os.kill(os.getpid(), signal.SIGKILL)

    assert forked(killed) == -signal.SIGKILL
    one = one_hold(exclusion)
    (line,) = read_chained(files(tmp_path, one.hold) / "procs.jsonl").lines
    pid = line["detail"]["pid"]
    try:
        assert one.state == "lost"
        assert [text.split(",")[0] for text in one.alive] == [f"silent (pid {pid}"]
        assert [gpu.taken for gpu in seen(exclusion).gpus] == [False, False]
    finally:
        os.kill(pid, signal.SIGKILL)


def test_only_processes_that_are_the_registered_ones_are_alive(exclusion):
    with living("lives") as lives, living("zombie") as gone:
        zombie(gone)
        procs = (lives, gone, dead("dead"), reused("reused"))
        write_hold(exclusion, "a" * 16, procs=procs)
        assert one_hold(exclusion).alive == (str(lives),)


def test_a_process_in_no_book_is_seen_by_its_mark(exclusion):
    write_hold(exclusion, "a" * 16)
    write_hold(exclusion, "b" * 16)
    with living(mark="a" * 16) as marked:
        first, second = sorted(seen(exclusion).holds, key=lambda one: one.hold)
        assert first.alive == (f"unregistered (pid {marked.pid}, start {marked.start_token})",)
        assert second.alive == ()


def test_a_hold_of_an_earlier_boot_is_void_and_has_no_process(exclusion):
    write_hold(exclusion, "a" * 16, holder=me(), boot="another", procs=[me("namesake")])
    one = one_hold(exclusion)
    assert (one.state, one.alive, one.left_s) == ("void", (), None)


def test_a_hold_whose_end_had_begun_says_why(exclusion):
    write_hold(exclusion, "a" * 16, survivors=[], why="cancelled")
    assert (one_hold(exclusion).state, one_hold(exclusion).why) == ("closing", "cancelled")


def test_of_another_namespace_only_the_locks_tell(exclusion):
    write_hold(exclusion, "a" * 16, holder=me(), pids="pid:[1]", procs=[me("namesake")])
    assert one_hold(exclusion).state == "lost"
    assert one_hold(exclusion).alive == ()
    assert one_hold(exclusion).unproven == ("processes of another pid namespace",)
    with exclusion.locked(GPUS):
        assert one_hold(exclusion).state == "open"


class EndsMeanwhile(Exclusion):
    """Locks of a HOLD that ends while somebody looks at them."""

    def lock_path(self, gpu):
        write_hold(self, "a" * 16, pids="pid:[1]", closed="2026-01-02T00:00:00Z")
        return super().lock_path(gpu)


def test_a_hold_that_ends_while_it_is_looked_at_is_not_lost(exclusion):
    write_hold(exclusion, "a" * 16, pids="pid:[1]")
    ending = EndsMeanwhile(exclusion.directory, "private", exclusion.boot_id)
    assert (one_hold(ending).state, one_hold(ending).why) == ("closed", "done")


BROKEN = {
    "no JSON": b"{",
    "empty": b"",
    "a list": b"[]",
    "another member": b'{"hold":1}',
    "too deep": b"[" * 200_000,
    "not UTF-8": b"\xff",
    "a number": b"5\n",
}


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("file", ["registration.json", "closed.json", "closing.json"])
def test_a_record_that_cannot_be_read_hides_no_other(exclusion, name, file):
    good = write_hold(exclusion, "a" * 16, closed="2026-01-02T00:00:00Z")
    bad = write_hold(exclusion, "b" * 16, closed="2026-01-02T00:00:00Z", survivors=[])
    (bad / file).write_bytes(BROKEN[name])
    found = seen(exclusion)
    states = {one.hold: (one.state, one.why) for one in found.holds}
    assert states[good.name] == ("closed", "done")
    faults = [one.path for one in found.unreadable]
    if file == "registration.json":
        assert bad.name not in states
        assert faults == [bad / file]
    elif file == "closed.json":
        assert states[bad.name] == ("closed", "")
        assert faults == [bad / file]
    else:
        assert faults == []


@pytest.mark.parametrize("name", BROKEN)
def test_books_that_cannot_be_read_prove_nothing(exclusion, name):
    with living() as lives:
        directory = write_hold(exclusion, "a" * 16, procs=[lives])
        whole = (directory / "procs.jsonl").read_bytes()
        (directory / "procs.jsonl").write_bytes(whole + BROKEN[name] + b"\n")
        one = one_hold(exclusion)
        assert one.alive == (str(lives),)
        assert [text.startswith("procs.jsonl: line 1: ") for text in one.unproven] == [True]


def test_a_registration_that_is_a_pipe_or_a_link_is_named_and_blocks_nobody(exclusion):
    for name in ("a" * 16, "b" * 16):
        (exclusion.holds / name).mkdir()
    os.mkfifo(exclusion.holds / ("a" * 16) / "registration.json")
    (exclusion.holds / ("b" * 16) / "registration.json").symlink_to("/dev/zero")
    (exclusion.holds / "linked").symlink_to(exclusion.holds / ("a" * 16))
    assert len(seen(exclusion).unreadable) == 2


def test_a_registration_cannot_name_a_file_elsewhere(tmp_path, exclusion):
    directory = write_hold(exclusion, "a" * 16)
    tree = json.loads((directory / "registration.json").read_text())
    tree["gpus"] = ["../../../outside"]
    (directory / "registration.json").write_text(json.dumps(tree))
    found = seen(exclusion)
    assert (found.holds, found.gpus) == ((), ())
    assert [one.path for one in found.unreadable] == [directory / "registration.json"]


def test_gpus_are_seen_with_fence_and_quarantine(exclusion):
    write_hold(exclusion, "a" * 16, gpus=[A], fence=7)
    assert gpu_of(exclusion).fault == "none"
    exclusion.raise_fence([A], 6)
    assert (gpu_of(exclusion).fence, gpu_of(exclusion).fault) == (None, "fence 6")
    exclusion.raise_fence([A], 7)
    assert (gpu_of(exclusion).fence, gpu_of(exclusion).fault) == (7, "")
    assert gpu_of(exclusion).quarantine is None
    exclusion.quarantine([A], "a" * 16, ["one", "two"])
    assert gpu_of(exclusion).quarantine == Quarantine(A, "a" * 16, ("one", "two"), void=False)
    Exclusion(exclusion.directory, "private", "before").quarantine([A], "b" * 16, [])
    assert gpu_of(exclusion).quarantine == Quarantine(A, "b" * 16, (), void=True)
    exclusion.quarantine_path(A).write_bytes(b"?")
    broken = gpu_of(exclusion).quarantine
    assert (broken.hold, broken.void, broken.fault != "") == ("unknown", False, True)
    exclusion.quarantine_path(A).write_bytes(b"{}")
    fault = "not what a HOLD of pp4 writes"
    assert gpu_of(exclusion).quarantine == Quarantine(A, "unknown", (), void=False, fault=fault)


def test_text_of_another_user_is_shown_in_printable_signs(exclusion):
    exclusion.quarantine([A], "\x1b[2J", ["\x1b]0;x\x07"])
    found = gpu_of(exclusion).quarantine
    assert found.hold.isprintable()
    assert found.survivors[0].isprintable()


def test_looking_changes_nothing_and_keeps_no_lock(exclusion):
    write_hold(exclusion, "a" * 16)
    exclusion.raise_fence([A], 1)
    before = snapshot(exclusion.directory)
    assert gpu_of(exclusion).taken is False
    # no lock file is made
    assert snapshot(exclusion.directory) == before
    with exclusion.locked(GPUS):
        assert gpu_of(exclusion).taken is True
        # and the holder has it still
        assert forked(lambda: gpu_of(exclusion).taken) is True
    assert gpu_of(exclusion).taken is False
    with exclusion.locked(GPUS):
        pass


def test_two_who_look_do_not_take_each_other_for_holders(exclusion):
    with exclusion.locked([A]):
        pass
    descriptor = os.open(exclusion.lock_path(A), os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        assert gpu_of(exclusion).taken is False
    finally:
        os.close(descriptor)


@as_root
def test_a_private_hold_is_seen_beside_those_of_the_host(shared):
    theirs = private(shared)
    write_hold(theirs, "a" * 16)
    exclusion = open_exclusion(shared / "host", shared / "state")
    write_hold(exclusion, "b" * 16, state_dir=shared / "state")
    found = overview(exclusion, shared / "state", clock())
    assert {one.hold: one.exclusion for one in found.holds} == {
        "a" * 16: "private",
        "b" * 16: "host",
    }
    assert found.exclusion == "host"


def test_two_hundred_holds_are_all_seen_the_oldest_first(exclusion):
    holder = dead()
    for number in range(200):
        opened = f"2026-01-{1 + number // 10:02d}T00:00:00Z"
        closed = "2026-02-01T00:00:00Z" if number % 2 else None
        write_hold(
            exclusion,
            f"{number:016x}",
            holder=holder,
            fence=number + 1,
            opened=opened,
            closed=closed,
        )
    found = seen(exclusion)
    assert [one.fence for one in found.holds] == list(range(1, 201))
    assert [one.state for one in found.holds] == ["lost", "closed"] * 100


# -- the end of a quarantine -------------------------------------------------------------------


def cleared_lines(exclusion, gpu=A):
    path = exclusion.directory / "gpu" / f"{gpu}.cleared.jsonl"
    return list(read_chained(path).lines)


def end(exclusion, gpu=A, operator="Ada", why="rebooted the card"):
    return clear(exclusion, gpu, operator, why, clock())


def test_a_quarantine_ends_by_an_operators_word_that_is_written_down(exclusion):
    gone = dead("rank 1")
    exclusion.quarantine(GPUS, "a" * 16, [str(gone), "the group of rank 1 (pid 1)"])
    found = end(exclusion)
    assert (found.gpu, found.hold, found.operator, found.why) == (
        A,
        "a" * 16,
        "Ada",
        "rebooted the card",
    )
    assert found.at == "2026-03-01T00:00:00Z"
    assert found.survivors == (str(gone), "the group of rank 1 (pid 1)")
    exclusion.require_usable([A])
    assert refused(exclusion.require_usable, [B]).code is Code.QUARANTINED
    (line,) = cleared_lines(exclusion)
    assert found.record == exclusion.directory / "gpu" / f"{A}.cleared.jsonl"
    assert line["step"] == f"quarantine of {A}"
    assert line["detail"] == {
        "operator": "Ada",
        "why": "rebooted the card",
        "at": "2026-03-01T00:00:00Z",
        "user": os.geteuid(),
        "hold": "a" * 16,
        "survivors": [str(gone), "the group of rank 1 (pid 1)"],
        "fault": "",
        "boot_id": exclusion.boot_id,
    }
    exclusion.quarantine([A], "b" * 16, [])
    end(exclusion, why="again")
    assert [one["detail"]["hold"] for one in cleared_lines(exclusion)] == ["a" * 16, "b" * 16]


@pytest.mark.parametrize("text", ["", " ", "two\nlines", "\x1b[2J", "x" * 2001, "\udcff"])
@pytest.mark.parametrize("which", ["operator", "why"])
def test_nobody_and_no_reason_end_nothing(exclusion, which, text):
    exclusion.quarantine([A], "a" * 16, [])
    before = snapshot(exclusion.directory)
    with pytest.raises(UsageError) as caught:
        end(exclusion, **{which: text})
    assert (caught.value.refusal.code, caught.value.exit) == (Code.USAGE, Exit.USAGE)
    assert caught.value.refusal.where == f"pp4 hold clear --{which}"
    assert snapshot(exclusion.directory) == before


@pytest.mark.parametrize("gpu", [B, "", "GPU-1", "../gpu/x", f"{A}.lock", "\x00"])
def test_a_gpu_that_is_not_in_quarantine_is_refused_with_those_that_are(exclusion, gpu):
    before = snapshot(exclusion.directory)
    refusal = refused(end, exclusion, gpu, kind=UsageError)
    assert refusal.found == "no GPU in quarantine"
    assert snapshot(exclusion.directory) == before
    exclusion.quarantine([A], "a" * 16, [])
    refusal = refused(end, exclusion, gpu, kind=UsageError)
    assert (refusal.code, refusal.expected) == (Code.USAGE, f"a GPU in quarantine: {A}")
    assert exclusion.quarantine_path(A).exists()


def test_a_gpu_that_a_hold_has_is_not_cleared(exclusion):
    exclusion.quarantine([A], "a" * 16, [])
    write_hold(exclusion, "b" * 16, holder=me())
    with exclusion.locked([A]):
        refusal = refused(end, exclusion, kind=RefusedError)
    assert refusal.code is Code.HELD_BY
    assert "b" * 16 in refusal.found
    assert exclusion.quarantine_path(A).exists()
    assert cleared_lines(exclusion) == []


@pytest.mark.parametrize("stop", [False, True])
def test_a_survivor_that_is_seen_alive_keeps_the_quarantine(exclusion, stop):
    with living("rank 1") as survivor:
        exclusion.quarantine([A], "a" * 16, [str(survivor)])
        if stop:
            os.kill(survivor.pid, signal.SIGSTOP)
        refusal = refused(end, exclusion, kind=RefusedError)
        assert refusal.code is Code.QUARANTINED
        state = "T (stopped)" if stop else "S (sleeping)"
        assert refusal.found == f"{survivor} in state {state}"
        assert refusal.next == f"ps -fp {survivor.pid}"
        assert exclusion.quarantine_path(A).exists()
        assert cleared_lines(exclusion) == []
        zombie(survivor)
        assert end(exclusion).survivors == (str(survivor),)
    assert not exclusion.quarantine_path(A).exists()


def test_a_survivor_that_only_its_books_or_its_mark_tell_keeps_it_too(exclusion):
    with living("rank 1") as registered, living(mark="a" * 16) as marked:
        write_hold(exclusion, "a" * 16, gpus=[A], procs=[registered])
        exclusion.quarantine([A], "a" * 16, ["no process by its name"])
        refusal = refused(end, exclusion, kind=RefusedError)
        for owned in (registered, marked):
            assert f"(pid {owned.pid}, start {owned.start_token})" in refusal.found
        zombie(registered)
        assert f"pid {marked.pid}" in refused(end, exclusion, kind=RefusedError).found
        zombie(marked)
        end(exclusion)


def test_a_process_that_has_the_id_of_a_dead_one_does_not_keep_it(exclusion):
    exclusion.quarantine([A], "a" * 16, [str(reused())])
    write_hold(exclusion, "a" * 16, gpus=[A], procs=[reused(), dead()])
    end(exclusion)
    assert not exclusion.quarantine_path(A).exists()


def test_a_quarantine_of_an_earlier_boot_is_cleared_whoever_has_its_pids_now(exclusion):
    Exclusion(exclusion.directory, "private", "before").quarantine([A], "a" * 16, [str(me())])
    assert end(exclusion).survivors == (str(me()),)


def test_a_hold_of_an_earlier_boot_has_no_process_that_keeps_it(exclusion):
    write_hold(exclusion, "b" * 16, gpus=[A], boot="before", procs=[me("namesake")])
    exclusion.quarantine([A], "a" * 16, [])
    assert end(exclusion).hold == "a" * 16


@pytest.mark.parametrize("name", BROKEN)
def test_a_quarantine_that_cannot_be_read_can_be_cleared(exclusion, name):
    exclusion.quarantine_path(A).write_bytes(BROKEN[name])
    assert end(exclusion).hold == "unknown"
    assert not exclusion.quarantine_path(A).exists()
    (line,) = cleared_lines(exclusion)
    assert (line["detail"]["hold"], line["detail"]["fault"] != "") == ("unknown", True)


def test_a_link_in_the_place_of_a_quarantine_is_taken_away_and_not_what_it_names(
    tmp_path, exclusion
):
    (tmp_path / "precious").write_text("precious")
    exclusion.quarantine_path(A).symlink_to(tmp_path / "precious")
    end(exclusion)
    assert not os.path.lexists(exclusion.quarantine_path(A))
    assert (tmp_path / "precious").read_text() == "precious"


def test_a_record_that_was_changed_takes_no_more_lines(exclusion):
    for hold in ("a" * 16, "b" * 16):
        exclusion.quarantine([A], hold, [])
        end(exclusion)
    path = exclusion.directory / "gpu" / f"{A}.cleared.jsonl"
    path.write_bytes(path.read_bytes().replace(b"Ada", b"Bob", 1))
    changed = path.read_bytes()
    exclusion.quarantine([A], "c" * 16, [])
    refusal = refused(end, exclusion, kind=RefusedError)
    assert (refusal.code, refusal.where) == (Code.JOURNAL_CHAIN, shown(str(path)))
    assert exclusion.quarantine_path(A).exists()
    assert path.read_bytes() == changed
    subprocess.run(shlex.split(refusal.next), check=True)
    end(exclusion)
    assert [one["detail"]["hold"] for one in cleared_lines(exclusion)] == ["c" * 16]


def killed_at(action, point, calls):
    """Run an action in a process that is killed before its n-th call; -> whether it got there."""

    def child():
        count = 0

        def counted(real):
            def call(*given, **more):
                nonlocal count
                count += 1
                if count == point:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*given, **more)

            return call

        for name in calls:
            setattr(os, name, counted(getattr(os, name)))
        action()

    return forked(child) == -signal.SIGKILL


def test_a_kill_at_any_step_leaves_no_end_without_its_record(exclusion):
    point = 1
    while True:
        before = len(cleared_lines(exclusion))
        exclusion.quarantine([A], "a" * 16, [])
        again = killed_at(lambda: end(exclusion), point, ("fsync", "rename", "unlink"))
        if not exclusion.quarantine_path(A).exists():
            assert len(cleared_lines(exclusion)) == before + 1
        if not again:
            break
        point += 1
    assert point > 4
    assert not exclusion.quarantine_path(A).exists()


@as_root
def test_another_user_goes_on_with_the_record(shared):
    exclusion = open_exclusion(shared / "host", shared / "state")
    exclusion.quarantine([A], "a" * 16, [])
    end(exclusion)
    exclusion.quarantine([A], "b" * 16, [])
    assert as_nobody(lambda: end(exclusion, operator="Bob").hold) == "b" * 16
    exclusion.quarantine([A], "c" * 16, [])
    end(exclusion)
    users = [one["detail"]["user"] for one in cleared_lines(exclusion)]
    assert users == [0, NOBODY, 0]


# -- old records -------------------------------------------------------------------------------


def closed_days_ago(days):
    return (NOW - days * DAY).strftime("%Y-%m-%dT%H:%M:%SZ")


def pruned(exclusion, days=30, dry_run=False, state_dir=None):
    found = prune(exclusion, state_dir or exclusion.directory, days * DAY, clock(), dry_run)
    return sorted(path.name for path in found)


def left(exclusion):
    return sorted(path.name for path in exclusion.holds.iterdir())


def test_what_is_over_for_long_goes_and_the_rest_stays(exclusion):
    write_hold(exclusion, "1" * 16, fence=1, closed=closed_days_ago(31))
    write_hold(exclusion, "2" * 16, fence=2, closed=closed_days_ago(30))
    write_hold(exclusion, "3" * 16, fence=3)
    write_hold(exclusion, "4" * 16, fence=4, survivors=[])
    write_hold(exclusion, "5" * 16, fence=5, boot="before")
    write_hold(exclusion, "6" * 16, fence=6, closed=closed_days_ago(-1))
    write_hold(exclusion, "7" * 16, fence=7, closed=closed_days_ago(99))
    exclusion.raise_fence(GPUS, 7)
    exclusion.quarantine([A], "4" * 16, [])
    before = snapshot(exclusion.directory)
    assert pruned(exclusion, dry_run=True) == ["1" * 16]
    assert snapshot(exclusion.directory) == before
    assert pruned(exclusion) == ["1" * 16]
    gone = exclusion.holds / ("1" * 16)
    with_locks = {exclusion.lock_path(gpu): b"" for gpu in GPUS}
    expected = {p: v for p, v in before.items() if p != gone and gone not in p.parents}
    assert snapshot(exclusion.directory) == {**expected, **with_locks}
    assert pruned(exclusion) == []


def test_a_lost_fence_is_noticed_after_everything_old_is_gone(exclusion):
    for fence in range(1, 6):
        write_hold(exclusion, f"{fence}" * 16, fence=fence, closed=closed_days_ago(99))
    exclusion.raise_fence(GPUS, 5)
    assert len(pruned(exclusion)) == 4
    exclusion.fence_path(A).unlink()
    records = read_records(exclusion.holds)
    refusal = refused(exclusion.highest_fence, A, highest_granted(records, A))
    assert refusal.code is Code.FENCE_LOST
    assert '"fence":"5"' in refusal.next


THIRD = A.replace("1", "3")
ages = st.one_of(st.none(), st.integers(0, 60))
some_holds = st.lists(
    st.tuples(ages, st.sampled_from([[A], [B], [A, B], [B, THIRD]]), st.integers(1, 9)), max_size=8
)


@given(some_holds, st.integers(0, 60))
def test_whatever_goes_the_highest_fence_of_each_gpu_stays(tmp_path_factory, holds, days):
    exclusion = private(tmp_path_factory.mktemp("prune"))
    holder = reused()
    for number, (age, gpus, fence) in enumerate(holds):
        closed = None if age is None else closed_days_ago(age)
        write_hold(
            exclusion, f"{number:016x}", gpus=gpus, fence=fence, holder=holder, closed=closed
        )
    granted = {gpu: highest_granted(read_records(exclusion.holds), gpu) for gpu in (A, B, THIRD)}
    would = pruned(exclusion, days, dry_run=True)
    gone = pruned(exclusion, days)
    assert gone == would
    after = read_records(exclusion.holds)
    assert {gpu: highest_granted(after, gpu) for gpu in granted} == granted
    for number, (age, gpus, fence) in enumerate(holds):
        highest = any(granted[gpu] == fence for gpu in gpus)
        old = age is not None and age > days
        assert (f"{number:016x}" in gone) == (old and not highest)
    assert sorted([*gone, *left(exclusion)]) == [f"{n:016x}" for n in range(len(holds))]


def test_a_hold_that_a_quarantine_names_stays(exclusion):
    write_hold(exclusion, "1" * 16, fence=1, closed=closed_days_ago(99))
    write_hold(exclusion, "2" * 16, fence=2, closed=closed_days_ago(99))
    exclusion.quarantine([B], "1" * 16, ["x"])
    assert pruned(exclusion) == []
    end(exclusion, B)
    assert pruned(exclusion) == ["1" * 16]


def test_a_hold_whose_host_was_not_put_back_stays(exclusion):
    directory = write_hold(exclusion, "a" * 16, fence=1, closed=closed_days_ago(99))
    write_hold(exclusion, "b" * 16, fence=2, closed=closed_days_ago(99))
    keep(directory, [HostCommand(argv=("true",), limit_s=5.0)])
    assert pruned(exclusion) == []
    assert settle(directory) == ("true: done",)
    assert pruned(exclusion) == ["a" * 16]


def test_a_hold_whose_gpus_are_held_goes_the_next_time(exclusion):
    write_hold(exclusion, "1" * 16, fence=1, closed=closed_days_ago(99))
    write_hold(exclusion, "2" * 16, fence=2, closed=closed_days_ago(99))
    with exclusion.locked([B]):
        assert pruned(exclusion) == []
        assert left(exclusion) == ["1" * 16, "2" * 16]
    assert pruned(exclusion) == ["1" * 16]


class Watched(Exclusion):
    """Locks that see, at their end, what the next holder would read."""

    @contextmanager
    def locked(self, gpus):
        with super().locked(gpus):
            yield
            SEEN.append([record.directory.name for record in read_records(self.holds)])


SEEN = []


def test_under_the_locks_a_hold_goes_in_one_step(exclusion):
    """Whoever reads records has a lock, and must not meet a HOLD without its tombstone."""
    write_hold(exclusion, "1" * 16, fence=1, closed=closed_days_ago(99))
    write_hold(exclusion, "2" * 16, fence=2, closed=closed_days_ago(99))
    SEEN.clear()
    assert pruned(Watched(exclusion.directory, "private", exclusion.boot_id)) == ["1" * 16]
    assert SEEN == [["2" * 16]]


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("file", ["registration.json", "closed.json"])
def test_what_cannot_be_read_stays(exclusion, name, file):
    directory = write_hold(exclusion, "1" * 16, fence=1, closed=closed_days_ago(99))
    write_hold(exclusion, "2" * 16, fence=2, closed=closed_days_ago(99))
    (directory / file).write_bytes(BROKEN[name])
    assert pruned(exclusion) == []
    assert left(exclusion) == ["1" * 16, "2" * 16]


def test_no_link_is_followed(tmp_path, exclusion):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("precious")
    old = write_hold(exclusion, "1" * 16, fence=1, closed=closed_days_ago(99))
    write_hold(exclusion, "2" * 16, fence=2, closed=closed_days_ago(99))
    (old / "work").mkdir()
    (old / "work" / "link").symlink_to(tmp_path / "precious")
    (old / "link").symlink_to(tmp_path / "precious")
    (exclusion.holds / "linked").symlink_to(old)
    assert pruned(exclusion) == ["1" * 16]
    assert (tmp_path / "precious" / "file").read_text() == "precious"
    assert left(exclusion) == ["2" * 16, "linked"]


@as_root
def test_of_a_host_a_user_removes_its_own_with_their_journals(shared):
    exclusion = open_exclusion(shared / "host", shared / "state")
    own_directory(shared / "state")
    for number in (1, 2, 3):
        old = closed_days_ago(99)
        write_hold(
            exclusion, f"{number}" * 16, fence=number, closed=old, state_dir=shared / "state"
        )
    os.chown(exclusion.holds / ("2" * 16), NOBODY, NOBODY)
    assert as_nobody(lambda: pruned(exclusion, dry_run=True, state_dir=Path("/nowhere"))) == [
        "2" * 16
    ]
    found = prune(exclusion, shared / "state", 30 * DAY, clock())
    name = "1" * 16
    assert found == (shared / "state" / "holds" / name, exclusion.holds / name)
    assert not any(path.exists() for path in found)
    assert left(exclusion) == ["2" * 16, "3" * 16]
    assert as_nobody(lambda: pruned(exclusion, state_dir=Path("/nowhere"))) == ["2" * 16]


def test_a_kill_at_any_step_leaves_no_hold_that_looks_open(exclusion):
    write_hold(exclusion, "f" * 16, fence=99, closed=closed_days_ago(99))
    point = 1
    while True:
        old = write_hold(exclusion, "1" * 16, closed=closed_days_ago(99), survivors=[])
        (old / "work").mkdir(exist_ok=True)
        (old / "work" / "file").touch()
        again = killed_at(lambda: pruned(exclusion), point, ("fsync", "unlink", "rmdir"))
        assert all(record.closed for record in read_records(exclusion.holds))
        # what a kill has left goes with the next one, but for an empty directory
        pruned(exclusion)
        assert not old.exists() or list(old.iterdir()) == []
        if not again:
            break
        point += 1
    assert point > 5
    assert not old.exists()


def test_a_span_has_to_be_one(exclusion):
    with pytest.raises(BadInputError):
        pruned(exclusion, -1)
    write_hold(exclusion, "1" * 16, closed=closed_days_ago(99))
    assert prune(exclusion, exclusion.directory, timedelta.max, clock()) == ()
