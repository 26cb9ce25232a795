"""What there is on a host: HOLDs, GPUs, processes; looking changes nothing."""

import fcntl
import json
import os
import signal

import pytest

from pp4.clock import SystemClock
from pp4.hold.chained import read_chained
from pp4.hold.exclusion import Exclusion, open_exclusion
from pp4.hold.upkeep import Quarantine, overview
from tests.unit.hold.holds import (
    GPUS,
    ROOT,
    files,
    forked,
    held,
    private,
    started,
    write_modules,
)
from tests.unit.hold.looking import BROKEN, A, B, clock, gpu_of, one_hold, seen
from tests.unit.hold.written import (
    MARKED,
    dead,
    living,
    me,
    reused,
    snapshot,
    write_hold,
    zombie,
)
from tests.unit.processes import halt

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a host's directory")


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
        halt(holder.pid)
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
    write_hold(exclusion, MARKED)
    write_hold(exclusion, "b" * 16)
    with living(mark=MARKED) as marked:
        alive = {one.hold: one.alive for one in seen(exclusion).holds}
        found = (f"unregistered (pid {marked.pid}, start {marked.start_token})",)
        assert alive == {MARKED: found, "b" * 16: ()}


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
