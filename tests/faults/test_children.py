"""Children of a HOLD of another host: real supervisors, asked without a network."""

import json
import os
import signal
import subprocess
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path

import pytest

from pp4.clock import SystemClock
from pp4.errors import Code, Pp4Error, RefusedError
from pp4.hold.exclusion import open_exclusion
from pp4.hold.guard import GUARD
from pp4.hold.overview import overview
from pp4.hold.pruning import prune
from tests.faults.windows import (
    DRILLS,
    GPUS,
    PATIENCE_S,
    gone,
    program,
    public,
    tokens,
    tombstone,
    until,
    window,
)
from tests.unit.processes import halt

ORIGIN, OTHER = "00000000000000aa", "00000000000000bb"
PARENT = "0123456789abcdef"
GUARDED = f"{GUARD}drill"


def parent(fence=7, hop=1, hold=PARENT, origin=ORIGIN):
    return {"hold": hold, "fence": fence, "hop": hop, "origin": origin}


def exclusion_of(place):
    return open_exclusion(place / "host", place / "state")


def files(place):
    """Every file of locks, fences and registrations with its bytes."""
    top = exclusion_of(place).directory
    return {
        str(path): path.read_bytes()
        for name in ("fence", "holds", "gpu")
        for path in sorted((top / name).rglob("*"))
        if path.is_file() and not path.name.endswith(".lock")
    }


def refused(place, **more):
    """The refusal of a HOLD that is not granted."""
    with pytest.raises(RefusedError) as raised, window(place, **more):
        pass
    return raised.value.refusal


def test_a_child_has_the_fence_of_its_parent_and_takes_no_gpu(tmp_path):
    with window(tmp_path, parent=parent(7)) as child:
        assert child.granted.fence == 7
        # the GPUs are another host's, whatever they are called: this host's own HOLD is not refused
        with window(tmp_path) as own:
            assert own.granted.fence == 1
            assert own.run("a", DRILLS, {"answer": {"n": 1}}) == {"n": 1}
        assert child.run("a", DRILLS, {"answer": {"n": 2}}) == {"n": 2}
        seen = overview(exclusion_of(tmp_path), tmp_path / "state", SystemClock())
        (told,) = [one for one in seen.holds if one.hold == child.granted.hold]
        assert (told.parent, told.state) == (f"HOLD {PARENT}, hop 1", "open")
        assert [one.parent for one in seen.holds if one.hold == own.granted.hold] == [""]
        # and its fence is none of theirs
        assert {one.gpu: (one.fence, one.taken) for one in seen.gpus} == dict.fromkeys(
            GPUS, (1, False)
        )
        assert "parent" in asdict(told)
    assert child.tombstone["fence"] == "7"
    with window(tmp_path) as own:
        assert own.granted.fence == 2
    # a host whose HOLDs have no hops needs no name among hosts
    assert not (exclusion_of(tmp_path).directory / "fence" / ".origin").exists()


def test_two_hops_of_one_parent_have_a_child_each_and_one_hop_has_no_second(tmp_path):
    with window(tmp_path, parent=parent(7, hop=1)), window(tmp_path, parent=parent(7, hop=2)):
        before = files(tmp_path)
        refusal = refused(tmp_path, parent=parent(7, hop=1))
        assert refusal.code is Code.EXISTS
        assert files(tmp_path) == before


def test_a_lower_fence_is_refused_and_stores_nothing(tmp_path):
    with window(tmp_path, parent=parent(9)):
        pass
    before = files(tmp_path)
    refusal = refused(tmp_path, parent=parent(8, hold="fedcba9876543210"))
    assert refusal.code is Code.STALE_FENCE
    assert refusal.expected == "a fence of at least 9"
    assert refusal.found == "fence 8 of HOLD fedcba9876543210, hop 1"
    assert files(tmp_path) == before
    # fences of two hosts are never compared
    with window(tmp_path, parent=parent(1, origin=OTHER)) as other:
        assert other.granted.fence == 1


def test_a_later_parent_waits_for_the_children_of_an_earlier_one(tmp_path):
    later = parent(8, hold="fedcba9876543210")
    with window(tmp_path, parent=parent(7)) as child:
        refusal = refused(tmp_path, parent=later)
        assert refusal.code is Code.HELD_BY
        assert child.granted.hold in refusal.found
    with window(tmp_path, parent=later) as again:
        assert again.granted.fence == 8


def test_a_child_whose_supervisor_was_killed_is_buried_by_whoever_asks(tmp_path):
    seen = {}
    with pytest.raises(Pp4Error):
        _work_until_it_is_killed(tmp_path, seen)
    child, known = seen["child"], seen["known"]
    assert tombstone(tmp_path, child.granted.hold) is None
    # the GPUs of its parent may be held meanwhile, on one machine also in one directory
    with window(tmp_path):
        told = recovered(tmp_path, child.granted.hold)
    assert (told["state"], told["facts"]["why"]) == ("closed", "abandoned")
    until(lambda: gone(known))


def _work_until_it_is_killed(place, seen):
    with window(place, parent=parent(7)) as child:
        child.run("a", DRILLS, {"answer": {}, "start": ["setsid"]})
        seen |= {"child": child, "known": tokens(*child.watching.items[0]["pids"])}
        registered = public(place, child.granted.hold) / "registration.json"
        os.kill(json.loads(registered.read_text())["coordinator"]["pid"], signal.SIGKILL)
        child.run("b", DRILLS, {"answer": {}})


def guard_of(place, hold):
    lines = (public(place, hold) / "procs.jsonl").read_text().splitlines()
    (pid,) = [one["detail"]["pid"] for one in map(json.loads, lines) if one["step"] == GUARDED]
    return pid


def test_a_child_that_is_being_closed_is_left_to_its_supervisor(place, coordinator):
    one = coordinator({"start": ["deaf"]}, parent=parent(7))
    # what does not hear that it is to end takes about as long as anybody waits for its end
    halt(guard_of(place, one.hold))
    one.signal(signal.SIGINT)
    until((public(place, one.hold) / "closing.json").exists)
    told = recovered(place, one.hold)
    if "refusal" in told:
        assert told["refusal"]["code"] == "HELD_BY"
    else:
        assert (told["state"], told["facts"]["why"]) == ("closed", "cancelled")
    assert until(lambda: tombstone(place, one.hold))["why"] == "cancelled"
    assert not list(exclusion_of(place).directory.glob("gpu/*.quarantine"))
    assert gone(one.drill)


def test_a_child_that_ends_while_it_is_asked_after_keeps_its_own_tombstone(place):
    with window(place, parent=parent(7)) as child, open(place / "told", "w+b") as told:
        asking = subprocess.Popen(
            program("pp4.hold.recovery", child.granted.hold), env=settings(place), stdout=told
        )
        # it has the lock of the children, and waits for the end of the one that it found
        until(lambda: locked(asking.pid))
    assert asking.wait(PATIENCE_S) == 0
    own = child.tombstone
    assert (own["why"], tombstone(place, child.granted.hold)) == ("done", own)


def locked(pid):
    """Whether a process has locks of children."""
    try:
        found = [os.readlink(one) for one in Path(f"/proc/{pid}/fd").iterdir()]
    except OSError:
        # one that was closed meanwhile
        return False
    return any(name.endswith(f".{ORIGIN}.lock") for name in found)


def recovered(place, hold):
    return asked_there(place, "pp4.hold.recovery", hold)


def settings(place):
    mine = {"PP4_STATE_DIR": str(place / "state"), "PP4_HOST_DIR": str(place / "host")}
    return {**os.environ, **mine}


def asked_there(place, module, *arguments):
    """What a program of the host prints."""
    done = subprocess.run(
        program(module, *arguments),
        env=settings(place),
        capture_output=True,
        timeout=PATIENCE_S,
        check=True,
    )
    return json.loads(done.stdout)


def test_a_hop_that_opened_nothing_can_open_nothing_once_it_was_asked_after(tmp_path):
    named = (PARENT, "7", "1", ORIGIN, *GPUS)
    (tmp_path / "state").mkdir(mode=0o700)
    told = asked_there(tmp_path, "pp4.hold.children", *named)
    assert (told["hold"], told["fence"]) == (None, 7)
    refusal = refused(tmp_path, parent=parent(7))
    assert (refusal.code, refusal.expected) == (Code.STALE_FENCE, "a hop that goes on")
    # that is one hop, and no other
    with window(tmp_path, parent=parent(7, hop=2)) as child:
        told = asked_there(tmp_path, "pp4.hold.children", PARENT, "7", "2", ORIGIN, *GPUS)
        assert (told["hold"], told["boot_id"]) == (child.granted.hold, child.granted.boot_id)


@pytest.mark.parametrize(
    "arguments", [(), (PARENT, "7", "1"), (PARENT, "0", "1", ORIGIN, *GPUS),
                  ("../../etc/passwd", "7", "1", ORIGIN, *GPUS), (PARENT, "7", "1", ORIGIN, "a/b")],
)  # fmt: skip
def test_what_names_no_child_is_refused(tmp_path, arguments):
    told = asked_there(tmp_path, "pp4.hold.children", *arguments)
    assert told["refusal"]["code"] in ("USAGE", "BAD_INPUT")


def test_another_source_is_refused_by_the_far_supervisor(tmp_path):
    refusal = refused(tmp_path, parent=parent(7), source_digest="src1:" + "0" * 64)
    assert refusal.code is Code.SUBJECT_MISMATCH
    assert refusal.expected == "src1:" + "0" * 64


def test_a_lost_fence_of_children_is_refused_with_its_repair(tmp_path):
    with window(tmp_path, parent=parent(7)):
        pass
    for gpu in GPUS:
        (exclusion_of(tmp_path).fence_path(f"{gpu}.{ORIGIN}")).unlink()
    refusal = refused(tmp_path, parent=parent(8, hold="fedcba9876543210"))
    assert refusal.code is Code.FENCE_LOST
    subprocess.run(["/bin/sh", "-c", refusal.next], check=True, timeout=PATIENCE_S)
    (exclusion_of(tmp_path).fence_path(f"{GPUS[1]}.{ORIGIN}")).write_text(
        (exclusion_of(tmp_path).fence_path(f"{GPUS[0]}.{ORIGIN}")).read_text().replace(*GPUS)
    )
    assert refused(tmp_path, parent=parent(6, hold="fedcba9876543210")).code is Code.STALE_FENCE


def test_the_child_that_a_fence_rests_on_is_never_pruned(tmp_path):
    for fence in (7, 8):
        with window(tmp_path, parent=parent(fence, hold=f"{fence:016x}")) as child:
            pass
    clock = SystemClock()
    until(lambda: tombstone(tmp_path, child.granted.hold))
    kept = child.granted.hold
    exclusion = exclusion_of(tmp_path)

    class Later(SystemClock):
        """A day from now."""

        def wall(self):
            return clock.wall() + timedelta(days=1)

    gone_now = prune(exclusion, tmp_path / "state", timedelta(hours=1), Later())
    assert gone_now
    assert [path.name for path in exclusion.holds.iterdir()] == [kept]
