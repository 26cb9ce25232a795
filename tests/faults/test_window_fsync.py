"""A disk on which nothing can be made durable any more: real supervisors whose fsync fails."""

import json

import pytest

from pp4.clock import SystemClock
from pp4.errors import Code, Exit, Pp4Error, RefusedError, UncleanError
from pp4.hold.clearing import clear
from pp4.hold.exclusion import open_exclusion
from pp4.hold.processes import marked
from pp4.receipts.journal import head
from tests.faults.failing_disk import FailingDisk
from tests.faults.windows import (
    DRILLS,
    GPUS,
    gone,
    public,
    supervisor_of,
    tokens,
    tombstone,
    touch,
    until,
    window,
)


@pytest.fixture
def disk(tmp_path):
    return FailingDisk(tmp_path)


def opened(disk, place, **more):
    # what does not fail as it should ends by its deadline, and a lease is nothing to wait for here
    return window(place, by=disk.program, bound_s=40.0, ttl_s=20.0, **more)


def quarantines(place):
    return {one.stem for one in place.glob("*/gpu/*.quarantine")}


def refused(disk, place):
    """The refusal of the next HOLD, under which nothing may have been begun."""
    with pytest.raises(RefusedError) as raised, opened(disk, place):
        pass
    return raised.value.refusal


def test_a_disk_that_fails_from_the_start_is_refused_and_nothing_is_left(disk, tmp_path):
    before, after = tmp_path / "before", tmp_path / "after"
    disk.flag.touch()
    with (
        pytest.raises(RefusedError) as raised,
        opened(disk, tmp_path, quiesce=[touch(before)], restore=[touch(after)]),
    ):
        pass
    assert raised.value.exit is Exit.REFUSED
    assert raised.value.refusal.code is Code.UNWRITABLE
    assert "Input/output error" in raised.value.refusal.found
    assert not before.exists()
    assert not after.exists()
    assert not list(tmp_path.glob("*/holds/*"))
    assert not list(tmp_path.glob("*/fence/*"))
    # no GPU is taken by it and none kept back: the next one is the first that was ever granted
    disk.flag.unlink()
    with opened(disk, tmp_path) as one:
        assert one.granted.fence == 1


def test_a_disk_that_fails_in_the_middle_ends_the_work_and_keeps_the_gpus_back(disk, tmp_path):
    after, seen = tmp_path / "after", {}
    with pytest.raises(UncleanError) as raised:
        _work_until_it_fails(disk, tmp_path, seen, restore=[touch(after)])
    one, refusal = seen["window"], raised.value.refusal
    hold, fence = one.granted.hold, one.granted.fence
    assert raised.value.exit is Exit.UNCLEAN
    assert refusal.code is Code.UNWRITABLE
    assert refusal.next.startswith(f"pp4 hold recover {hold}")
    # what ran is dead and the host put back, although neither could be written down
    known = tokens(*one.watching.items[0]["pids"])
    until(lambda: gone(known))
    assert marked(hold) == ()
    until(lambda: not seen["supervisor"].alive())
    assert after.read_text() == "x"
    assert one.tombstone is None
    assert tombstone(tmp_path, hold) is None
    # as long as it fails, nobody gets them
    assert refused(disk, tmp_path).code is Code.UNWRITABLE
    assert tombstone(tmp_path, hold) is None
    # nor after that, without an operator: the guard's word went with the work that filled the disk
    disk.flag.unlink()
    found = refused(disk, tmp_path)
    assert (found.code, "guard-drill" in found.found) == (Code.QUARANTINED, True)
    assert quarantines(tmp_path) == set(GPUS)
    assert tombstone(tmp_path, hold) is None
    exclusion = open_exclusion(tmp_path / "host", tmp_path / "state", make=False)
    for gpu in GPUS:
        clear(exclusion, gpu, "somebody", "changed the disk, and looked", SystemClock())
    with opened(disk, tmp_path) as again:
        assert again.granted.fence == fence + 1
        assert tombstone(tmp_path, hold)["why"] == "abandoned"
    assert again.tombstone["why"] == "done"
    assert after.read_text() == "x"


def _work_until_it_fails(disk, place, seen, **more):
    """Run a step during which the disk begins to fail, and which then has something to write."""
    with opened(disk, place, **more) as one:
        seen["window"], seen["supervisor"] = one, supervisor_of(place, one.granted.hold)
        told = {"start": ["plain", "deaf", "setsid"], "touch": str(disk.flag), "then": "late"}
        one.run("drill", DRILLS, told)


def test_work_that_went_well_is_no_success_where_its_end_cannot_be_kept(disk, tmp_path):
    seen = {}
    with pytest.raises(UncleanError) as raised:
        _work_well_and_fail(disk, tmp_path, seen)
    assert raised.value.refusal.code is Code.UNWRITABLE
    assert seen["facts"] == {"n": 1}
    assert tombstone(tmp_path, seen["window"].granted.hold) is None
    assert seen["window"].tombstone is None


def _work_well_and_fail(disk, place, seen):
    with opened(disk, place) as one:
        seen["window"] = one
        seen["facts"] = one.run("drill", DRILLS, {"answer": {"n": 1}})
        disk.flag.touch()


def test_a_step_that_cannot_be_written_down_does_not_run_on(disk, tmp_path):
    seen = {}
    with pytest.raises(UncleanError):
        _start_where_it_fails(disk, tmp_path, seen)
    hold = seen["window"].granted.hold
    assert seen["refused"].code is Code.UNWRITABLE
    until(lambda: marked(hold) == ())
    assert tombstone(tmp_path, hold) is None


def _start_where_it_fails(disk, place, seen):
    with opened(disk, place) as one:
        seen["window"] = one
        disk.flag.touch()
        with pytest.raises(Pp4Error) as raised:
            one.run("drill", DRILLS, {"start": ["setsid"]})
        seen["refused"] = raised.value.refusal


def test_a_disk_that_recovers_before_the_end_has_a_tombstone_and_a_whole_journal(disk, tmp_path):
    restore = [{"argv": ["true"], "limit_s": 10.0}]
    with opened(disk, tmp_path, restore=restore) as one:
        told = {"start": ["setsid"], "touch": str(disk.flag), "then": "late"}
        with pytest.raises(Pp4Error) as raised:
            one.run("drill", DRILLS, told)
        assert raised.value.refusal.code is Code.RANK_DIED
        disk.flag.unlink()
    # nothing was added behind the line that may be torn, and its end does not count on it
    found = tombstone(tmp_path, one.granted.hold)
    assert (one.tombstone, found["survivors"]) == (found, [])
    assert found["restored"] == ["true: done"]
    registered = json.loads((public(tmp_path, one.granted.hold) / "registration.json").read_text())
    with open(registered["journal"]) as journal:
        *durable, torn = [json.loads(line) for line in journal]
    assert (torn["step"], found["journal_head"]) == ("late", head(durable))
    assert gone(tokens(*one.watching.items[0]["pids"]))
    with opened(disk, tmp_path) as again:
        assert again.granted.fence == one.granted.fence + 1
    assert quarantines(tmp_path) == set()
