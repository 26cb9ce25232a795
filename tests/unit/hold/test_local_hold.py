"""A HOLD of GPUs of this machine: granted in order, known to others, proven over at its end."""

import hashlib
import json
import os
import signal
import stat
import subprocess
import sys
from contextlib import ExitStack
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pp4.clock import ManualClock, SystemClock
from pp4.errors import BadInputError, Code, Refusal, RefusedError, TimedOutError, UncleanError
from pp4.hold import local, local_hold, sweep
from pp4.hold import open as opening
from pp4.hold.chained import read_chained
from pp4.hold.exclusion import Exclusion, open_exclusion
from pp4.hold.guard import GUARD
from pp4.hold.local import open_local
from pp4.hold.processes import Owned, boot_id, marked, start_token
from pp4.receipts.journal import first_break, head
from pp4.transport.local import LocalTransport
from tests.unit.hold.holds import (
    GPUS,
    NOBODY,
    ROOT,
    admission,
    as_nobody,
    fence_on_disk,
    files,
    forked,
    held,
    private,
    started,
    tombstone,
    write_modules,
)
from tests.unit.hold.written import dead
from tests.unit.processes import printed, running, within

A, B = GPUS
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a host's directory")


@pytest.fixture
def modules(tmp_path):
    return write_modules(tmp_path / "modules")


@pytest.fixture
def quick(monkeypatch):
    """Shorter graces: nothing here needs the time, and some wait them out."""
    monkeypatch.setattr(opening, "_GRACE_S", 0.3)
    monkeypatch.setattr(local_hold, "_GRACE_S", 0.3)


def entered(root, *given, **more):
    """Open a HOLD; -> it, and what closes it."""
    stack = ExitStack()
    return stack.enter_context(held(root, *given, **more)), stack.close


def opens(root, gpus=GPUS):
    """Open and close one in another process; -> its fence, or the code of the refusal."""

    def action():
        try:
            with held(root, gpus) as hold:
                return hold.fence
        except RefusedError as error:
            return str(error.refusal.code)

    return forked(action)


def test_a_hold_says_what_it_was_granted(tmp_path):
    clock = ManualClock(datetime(2026, 3, 4, 5, 4, 27, tzinfo=UTC))
    clock.suspend(100)
    with held(tmp_path, [B, A], clock=clock, bound_s=60) as hold:
        assert (hold.gpus, hold.exclusion, hold.boot_id) == ((B, A), "private", boot_id())
        assert hold.opened_at == datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
        assert hold.deadline.remaining_s() == 60
        assert (hold.fence, hold.transport) == (1, "local")
        directory = files(tmp_path, hold.hold_id)
        assert hold.directory == directory / "work"
        assert stat.S_IMODE(hold.directory.stat().st_mode) == 0o700
        written = json.loads((directory / "registration.json").read_text())
    assert written == {
        "hold": hold.hold_id,
        "command": "pair-qualify --scope kernels",
        "fence": "1",
        "gpus": [B, A],
        "coordinator": {
            "pid": os.getpid(),
            "start_token": start_token(os.getpid()),
            "pid_namespace": os.readlink("/proc/self/ns/pid"),
            "uid": os.geteuid(),
        },
        "nonce_sha256": hashlib.sha256(hold.nonce.encode()).hexdigest(),
        "source_digest": "0" * 64,
        "transport": "local",
        "asked_by": None,
        "exclusion": "private",
        "boot_id": boot_id(),
        "opened_at": "2026-03-04T05:06:07Z",
        "opened_boottime_ns": "100000000000",
        "deadline_boottime_ns": "160000000000",
        "journal": str(directory / "journal.jsonl"),
    }


def test_closing_leaves_the_records_and_nothing_else(tmp_path, modules):
    with held(tmp_path) as hold:
        channel, _ = started(hold, "waits", modules)
        (hold.directory / "big").write_text("x")
    assert not running(channel.pid)
    directory = files(tmp_path, hold.hold_id)
    assert sorted(path.name for path in directory.iterdir()) == [
        "closed.json",
        "closing.json",
        "journal.jsonl",
        "procs.jsonl",
        "registration.json",
    ]
    lines = list(read_chained(directory / "journal.jsonl").lines)
    found = tombstone(tmp_path, hold.hold_id)
    assert datetime.fromisoformat(found.pop("closed_at")).tzinfo is not None
    assert found == {
        "hold": hold.hold_id,
        "fence": "1",
        "gpus": list(GPUS),
        "why": "done",
        "journal_head": head(lines),
        "survivors": [],
        "restored": [],
        "boot_id": boot_id(),
        "closed_by": os.getpid(),
    }
    assert lines == list(hold.journal.lines)


def test_no_file_that_stays_holds_the_nonce(tmp_path, modules):
    with held(tmp_path) as hold:
        started(hold, "waits", modules)
    for path in (tmp_path / "state").rglob("*"):
        assert path.is_dir() or hold.nonce.encode() not in path.read_bytes()


def test_a_process_is_in_the_books_before_it_is_used(tmp_path, modules):
    with held(tmp_path) as hold:
        for number in range(2):
            channel, _ = started(hold, "waits", modules, f"w{number}")
            path = files(tmp_path, hold.hold_id) / "procs.jsonl"
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            assert first_break(lines) is None
            assert lines[number]["step"] == f"w{number}"
            assert lines[number]["detail"] == {
                "pid": channel.pid,
                "pgid": channel.pid,
                "start_token": start_token(channel.pid),
                "boot_id": boot_id(),
            }


def test_one_gpu_leaves_the_other_to_somebody_else(tmp_path):
    with held(tmp_path, [A]) as first, held(tmp_path, [B]) as second:
        assert (first.gpus, second.gpus) == ((A,), (B,))
    with held(tmp_path, [A]) as hold:
        assert hold.fence == 2


def test_a_fence_is_above_those_of_both_gpus(tmp_path):
    for _ in range(3):
        with held(tmp_path, [B]):
            pass
    with held(tmp_path) as hold:
        assert hold.fence == 4
    exclusion = private(tmp_path)
    assert [fence_on_disk(exclusion, gpu) for gpu in GPUS] == [4, 4]


def test_the_one_who_comes_second_is_told_who_holds(tmp_path):
    clock = ManualClock()
    with held(tmp_path, clock=clock, bound_s=60) as hold:
        clock.advance(20)
        before = sorted(path for path in tmp_path.rglob("*"))
        with pytest.raises(RefusedError) as caught, held(tmp_path, [B], clock=clock):
            pytest.fail("opened")
        refusal = caught.value.refusal
        assert (refusal.code, refusal.where, refusal.left) == (Code.HELD_BY, B, "nothing")
        assert refusal.found == (
            f"HOLD {hold.hold_id}, fence 1, since 2026-01-01T00:00:00Z, pid {os.getpid()} "
            f"of user {os.geteuid()}, at most 40 s left"
        )
        assert sorted(path for path in tmp_path.rglob("*")) == before
        assert fence_on_disk(private(tmp_path), B) == 1


def test_a_holder_that_has_not_registered_yet_has_no_name(tmp_path, monkeypatch):
    monkeypatch.setattr(local, "_NAME_S", 0.1)
    with (
        private(tmp_path).locked([A]),
        pytest.raises(RefusedError) as caught,
        held(tmp_path),
    ):
        pytest.fail("opened")
    assert caught.value.refusal.code is Code.HELD_BY
    assert "not registered" in caught.value.refusal.found


def test_an_error_closes_the_hold_and_is_the_one_that_is_seen(tmp_path, modules):
    seen = []

    def fail():
        with held(tmp_path) as hold:
            seen.extend([hold, started(hold, "waits", modules)[0]])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert tombstone(tmp_path, seen[0].hold_id)["why"] == "failed"
    assert not running(seen[1].pid)
    assert opens(tmp_path) == 2


def test_a_second_close_changes_nothing(tmp_path, modules):
    with held(tmp_path) as hold:
        started(hold, "waits", modules)
        hold.close("cancelled")
        first = tombstone(tmp_path, hold.hold_id)
        hold.close()
        assert tombstone(tmp_path, hold.hold_id) == first
        with pytest.raises(RefusedError) as caught:
            started(hold, "waits", modules, "late")
        assert caught.value.refusal.code is Code.STALE_FENCE
        # the locks are still those of this context
        assert opens(tmp_path) == "HELD_BY"
    assert tombstone(tmp_path, hold.hold_id) == first
    assert first["why"] == "cancelled"


@pytest.mark.parametrize("pass_by", ["advance", "suspend"])
def test_nothing_starts_after_the_deadline(tmp_path, modules, pass_by):
    clock = ManualClock()
    with held(tmp_path, clock=clock, bound_s=5) as hold:
        started(hold, "waits", modules)
        assert hold.within(3600).remaining_s() == 5
        getattr(clock, pass_by)(5)
        with pytest.raises(TimedOutError) as caught:
            started(hold, "waits", modules, "late")
        assert caught.value.refusal.code is Code.DEADLINE
        assert caught.value.refusal.left == "waits"
        assert len(hold.running()) == 1
        assert hold.within(1).expired()
    assert tombstone(tmp_path, hold.hold_id)["why"] == "deadline"


@pytest.mark.parametrize("bound_s", [0, -1, 5400.1, float("nan"), float("inf")])
def test_a_bound_beyond_ninety_minutes_is_refused(tmp_path, bound_s):
    with pytest.raises(BadInputError), held(tmp_path, bound_s=bound_s):
        pytest.fail("opened")


def test_a_rehearsal_opens_no_gpu(tmp_path):
    exclusion = private(tmp_path)
    given = {"gpus": GPUS, "exclusion": exclusion, "state_dir": tmp_path / "state"}
    with (
        pytest.raises(RefusedError) as caught,
        open_local(admission(), LocalTransport(), SystemClock(), **given),
    ):
        pytest.fail("opened")
    assert caught.value.refusal.code is Code.WRONG_KIND
    assert list(exclusion.holds.iterdir()) == []


@as_root
def test_under_the_directory_of_the_host_others_see_what_they_must_and_no_more(tmp_path, modules):
    exclusion = open_exclusion(tmp_path / "host", tmp_path / "state")
    mask = os.umask(0o077)
    try:
        with held(tmp_path, exclusion=exclusion) as hold:
            started(hold, "waits", modules)
            work = hold.directory
    finally:
        os.umask(mask)
    assert hold.exclusion == "host"
    public = exclusion.holds / hold.hold_id
    found = {path.name: stat.S_IMODE(path.stat().st_mode) for path in public.iterdir()}
    names = ("closed.json", "closing.json", "procs.jsonl", "registration.json")
    assert found == dict.fromkeys(names, 0o644)
    assert stat.S_IMODE(public.stat().st_mode) == 0o755
    assert [path.name for path in files(tmp_path, hold.hold_id).iterdir()] == ["journal.jsonl"]
    assert stat.S_IMODE(files(tmp_path, hold.hold_id).stat().st_mode) == 0o700
    assert not work.exists()


@as_root
def test_users_of_one_host_bury_each_others_holds(shared):
    """The proof needs no right to write; the tombstone does, and its user makes up for it."""
    exclusion = open_exclusion(shared / "host", shared / "mine")
    (shared / "home").mkdir()
    os.chown(shared / "home", NOBODY, NOBODY)

    def turn(root, *, kill):
        theirs = open_exclusion(shared / "host", root / "state")
        with held(root, exclusion=theirs) as hold:
            if kill:
                os.kill(os.getpid(), signal.SIGKILL)
            return [hold.fence, hold.exclusion]

    def closed():
        return [(path / "closed.json").exists() for path in ordered()]

    def ordered():
        fences = {
            int(json.loads(path.read_text())["fence"]): path.parent
            for path in exclusion.holds.glob("*/registration.json")
        }
        return [fences[fence] for fence in sorted(fences)]

    assert as_nobody(lambda: turn(shared / "home", kill=True)) == -signal.SIGKILL
    assert turn(shared / "mine", kill=False) == [2, "host"]
    assert closed() == [True, True]
    assert forked(lambda: turn(shared / "mine", kill=True)) == -signal.SIGKILL
    assert as_nobody(lambda: turn(shared / "home", kill=False)) == [4, "host"]
    assert closed() == [True, True, False, True]
    assert turn(shared / "mine", kill=False) == [5, "host"]
    assert closed() == [True] * 5


# -- what is left ------------------------------------------------------------------------------


def test_a_process_that_left_its_group_and_the_books_is_found_and_ended(tmp_path, modules, quick):
    with held(tmp_path) as hold:
        _, said = started(hold, "escapes", modules)
        survivor = int(said)
        assert [owned.pid for owned in marked(hold.hold_id) if owned.pid == survivor] == [survivor]
    assert not running(survivor)
    assert tombstone(tmp_path, hold.hold_id)["why"] == "done"


def test_a_process_that_cannot_be_ended_puts_its_gpus_in_quarantine(
    tmp_path, modules, quick, monkeypatch
):
    monkeypatch.setattr(Owned, "signal", lambda *_: None)
    hold, close = entered(tmp_path)
    _, said = started(hold, "escapes", modules)
    hold.own(int(said), "escaped")
    with pytest.raises(UncleanError) as caught:
        close()
    try:
        assert caught.value.refusal.code is Code.SURVIVOR
        assert caught.value.refusal.found.startswith(f"escaped (pid {said}, start ")
        assert tombstone(tmp_path, hold.hold_id) is None
        directory = files(tmp_path, hold.hold_id)
        closing = json.loads((directory / "closing.json").read_text())
        assert len(closing["survivors"]) == 1
        for gpu in GPUS:
            kept = json.loads(private(tmp_path).quarantine_path(gpu).read_text())
            assert kept["survivors"] == closing["survivors"]
        # what it wrote is evidence
        assert hold.directory.is_dir()
        assert [opens(tmp_path, [gpu]) for gpu in GPUS] == ["QUARANTINED"] * 2
    finally:
        os.kill(int(said), signal.SIGKILL)
    assert within(lambda: not running(int(said)))
    # that it died later is for an operator to say
    assert opens(tmp_path) == "QUARANTINED"
    for gpu in GPUS:
        private(tmp_path).quarantine_path(gpu).unlink()
    assert opens(tmp_path) == 2
    assert tombstone(tmp_path, hold.hold_id)["why"] == "abandoned"


def test_further_hosts_are_asked_once_at_the_end(tmp_path):
    asked = []

    def elsewhere():
        asked.append("x")
        return ("HOLD of hop-engine, unproven",)

    hold, leave = entered(tmp_path)
    hold.elsewhere = elsewhere
    # as a supervisor does it, whose way out closes what is not closed
    for close in (hold.close, leave):
        with pytest.raises(UncleanError) as caught:
            close()
    assert asked == ["x"]
    assert caught.value.refusal.found == "HOLD of hop-engine, unproven"
    assert opens(tmp_path) == "QUARANTINED"


def test_a_quarantine_that_could_not_be_written_is_no_word_of_an_operator(tmp_path, monkeypatch):
    def full(*_):
        raise RefusedError(Refusal(Code.UNWRITABLE, "quarantine", "a durable file", "disk full"))

    hold, close = entered(tmp_path)
    # a guard without its last word: nobody knows what it has left to itself
    hold.own(dead().pid, f"{GUARD}a")
    hold.elsewhere = lambda: ("something unproven",)
    with monkeypatch.context() as patch:
        patch.setattr(Exclusion, "quarantine", full)
        with pytest.raises(UncleanError):
            close()
    assert tombstone(tmp_path, hold.hold_id) is None
    assert opens(tmp_path) == "QUARANTINED"


def test_only_the_process_that_was_meant_is_signalled():
    script = """
import os
for number in (1, 2):
    print(number, flush=True)
    os.read(0, 1)
"""
    argv = [sys.executable, "-c", script]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout.readline() == b"1\n"
        token = start_token(child.pid)
        Owned(child.pid, str(int(token) - 1), "somebody before").signal(signal.SIGKILL)
        # it goes on, and says so
        os.write(child.stdin.fileno(), b"x")
        assert child.stdout.readline() == b"2\n"
        Owned(child.pid, token, "it").signal(signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
    Owned(child.pid, token, "gone").signal(signal.SIGKILL)


def test_a_hold_whose_lock_file_was_removed_is_not_granted_twice(tmp_path, monkeypatch):
    monkeypatch.setattr(sweep, "_SETTLE_S", 0.1)
    with held(tmp_path) as hold:
        for gpu in GPUS:
            private(tmp_path).lock_path(gpu).unlink()
        assert opens(tmp_path) == "HELD_BY"
        assert fence_on_disk(private(tmp_path), A) == 1
    assert tombstone(tmp_path, hold.hold_id)["why"] == "done"
    assert opens(tmp_path) == 2


def test_a_registration_that_is_none_is_refused(tmp_path):
    with held(tmp_path) as hold:
        pass
    path = files(tmp_path, hold.hold_id) / "registration.json"
    whole = path.read_text()
    for text in ("", "{}", whole[:-3], whole.replace('"fence":"1"', '"fence":1')):
        path.write_text(text)
        with pytest.raises(RefusedError) as caught, held(tmp_path):
            pytest.fail("opened")
        assert (caught.value.refusal.code, caught.value.refusal.where) == (
            Code.UNREADABLE,
            str(path),
        )
    path.write_text(whole)
    assert opens(tmp_path) == 2


def test_a_lost_fence_stops_everything_before_it_begins(tmp_path):
    with held(tmp_path):
        pass
    path = private(tmp_path).fence_path(B)
    path.unlink()
    with pytest.raises(RefusedError) as caught, held(tmp_path):
        pytest.fail("opened")
    assert caught.value.refusal.code is Code.FENCE_LOST
    assert fence_on_disk(private(tmp_path), A) == 1
    assert len(list((tmp_path / "state" / "holds").iterdir())) == 1
    subprocess.run(caught.value.refusal.next, shell=True, check=True)
    assert opens(tmp_path) == 2


# -- disks -------------------------------------------------------------------------------------


def test_too_little_room_is_refused_before_the_start(tmp_path, monkeypatch):
    monkeypatch.setattr(local, "_RESERVE", 1 << 62)
    with pytest.raises(RefusedError) as caught, held(tmp_path):
        pytest.fail("opened")
    assert caught.value.refusal.code is Code.UNWRITABLE
    assert not any((tmp_path / "state" / name / A).exists() for name in ("gpu", "fence"))
    assert list((tmp_path / "state" / "holds").iterdir()) == []


class Failing:
    """Makes one flush fail, as a disk does that is full or broken."""

    def __init__(self, monkeypatch):
        self.calls, self.at = 0, 0
        self._real = os.fsync
        monkeypatch.setattr(os, "fsync", self)

    def __call__(self, descriptor):
        self.calls += 1
        if self.calls == self.at:
            raise OSError(28, "No space left on device")
        self._real(descriptor)


def test_whichever_flush_fails_nothing_runs_on_and_the_gpus_are_free(
    tmp_path, modules, monkeypatch
):
    failing = Failing(monkeypatch)
    highest, failures, point = 0, 0, 0
    while True:
        point += 1
        failing.calls, failing.at = 0, point
        failed, pids = None, []
        try:
            with held(tmp_path) as hold:
                pids.append(started(hold, "waits", modules)[0].pid)
        except (RefusedError, UncleanError) as error:
            failed = error.refusal
        if failed is not None:
            failures += 1
            assert failed.code is Code.UNWRITABLE
            assert not any(map(running, pids))
        reached = failing.calls >= point
        failing.at = 0
        found = opens(tmp_path)
        assert isinstance(found, int)
        assert found > highest
        highest = found
        if not reached:
            break
    # fences, registration, journals, a process, the end: each was made to fail; a tombstone that
    # is tried again is no failure
    assert failures >= 12
    dead = [path for path in (tmp_path / "state" / "holds").iterdir() if path.is_dir()]
    assert all((path / "closed.json").exists() for path in dead)


def test_a_failed_opening_leaves_no_hold(tmp_path, monkeypatch):
    failing = Failing(monkeypatch)
    with held(tmp_path):
        pass
    failing.calls, failing.at = 0, 7
    with pytest.raises(RefusedError) as caught, held(tmp_path):
        pytest.fail("opened")
    assert (caught.value.refusal.code, caught.value.refusal.left) == (Code.UNWRITABLE, "nothing")
    assert len(list((tmp_path / "state" / "holds").iterdir())) == 1


def test_work_that_cannot_be_removed_is_said_after_the_tombstone(tmp_path, monkeypatch):
    def rmtree(path, **_):
        raise PermissionError(13, "Permission denied", str(path))

    hold, close = entered(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(local_hold.shutil, "rmtree", rmtree)
        with pytest.raises(UncleanError) as caught:
            close()
    assert caught.value.refusal.code is Code.UNWRITABLE
    assert str(hold.directory) in caught.value.refusal.left
    assert tombstone(tmp_path, hold.hold_id)["why"] == "done"
    assert opens(tmp_path) == 2


# -- signals -----------------------------------------------------------------------------------

SCRIPT = """
import os, signal, sys
sys.path[:0] = [{root!r}]
from pathlib import Path
from pp4.console.endings import Stopped, signals
from pp4.hold import local, local_hold
from tests.unit.hold.holds import held, started
root, modules = Path(sys.argv[1]), Path(sys.argv[2])
{body}
"""


def run(root, modules, body):
    return printed(SCRIPT.format(root=str(ROOT), body=body), root, modules)


def test_a_signal_inside_is_a_cancelled_hold(tmp_path, modules):
    body = """
try:
    with signals(), held(root) as hold:
        print(hold.hold_id, started(hold, "waits", modules)[0].pid)
        signal.raise_signal(signal.SIGTERM)
except Stopped as stopped:
    print(stopped.number)
"""
    hold_id, pid, number = run(tmp_path, modules, body)
    assert int(number) == signal.SIGTERM
    assert not running(int(pid))
    assert tombstone(tmp_path, hold_id)["why"] == "cancelled"
    assert opens(tmp_path) == 2


def test_a_signal_during_registration_leaves_no_open_hold(tmp_path, modules):
    body = """
real = local._register
def register(*given):
    signal.raise_signal(signal.SIGINT)
    hold = real(*given)
    print(hold.hold_id)
    return hold
local._register = register
try:
    with signals(), held(root):
        print("went on")
except Stopped as stopped:
    print(stopped.number)
"""
    hold_id, number = run(tmp_path, modules, body)
    assert int(number) == signal.SIGINT
    assert tombstone(tmp_path, hold_id)["why"] == "cancelled"
    assert opens(tmp_path) == 2


def test_a_first_signal_during_the_end_is_obeyed_after_it(tmp_path, modules):
    body = """
real = local_hold.LocalHold._end_rest
def end(self):
    if not seen:
        seen.append(True)
        signal.raise_signal(signal.SIGINT)
    return real(self)
seen = []
local_hold.LocalHold._end_rest = end
try:
    with signals(), held(root) as hold:
        print(hold.hold_id, started(hold, "waits", modules)[0].pid)
except Stopped as stopped:
    print(stopped.number)
"""
    hold_id, pid, _ = run(tmp_path, modules, body)
    assert not running(int(pid))
    assert tombstone(tmp_path, hold_id)["why"] == "done"


# -- any order ---------------------------------------------------------------------------------

steps = st.tuples(st.sampled_from(["close", "fail", "kill"]), st.sampled_from([[A], [B], [A, B]]))


def one(root, end, gpus):
    """Hold in another process and end it one way or another."""

    def action():
        try:
            with held(root, gpus):
                if end == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                if end == "fail":
                    raise ZeroDivisionError
        except ZeroDivisionError:
            return "failed"

    return forked(action)


@settings(max_examples=12, deadline=None)
@given(order=st.lists(steps, min_size=1, max_size=6))
def test_fences_only_rise_however_holds_end(order, tmp_path_factory):
    root = tmp_path_factory.mktemp("order")
    exclusion = private(root)
    highest = dict.fromkeys(GPUS, 0)
    for end, gpus in order:
        one(root, end, gpus)
        found = {fence_on_disk(exclusion, gpu) for gpu in gpus}
        assert found == {max(highest[gpu] for gpu in gpus) + 1}
        highest.update(dict.fromkeys(gpus, found.pop()))
    with held(root) as hold:
        assert hold.fence == max(highest.values()) + 1
    holds = [path for path in exclusion.holds.iterdir() if path.name != hold.hold_id]
    whys = sorted(tombstone(root, path.name)["why"] for path in holds)
    words = {"close": "done", "fail": "failed", "kill": "abandoned"}
    assert whys == sorted(words[end] for end, _ in order)
