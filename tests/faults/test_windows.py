"""What each failure of a HOLD leaves on both sides: rows of the table of docs/hold.md."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading

import pytest

from pp4.clock import Deadline, SystemClock
from pp4.errors import Code, Pp4Error, RefusedError, TimedOutError
from pp4.hold.cgroup import leaves
from tests.faults.windows import (
    DRILLS,
    PATIENCE_S,
    ROOT,
    TTL_S,
    ask_there,
    fences,
    gone,
    supervisor_of,
    tokens,
    told_by,
    tombstone,
    until,
    window,
)
from tests.unit.processes import halt

EVERY = ["plain", "deaf", "setsid", "twice"]


# -- nothing fails --------------------------------------------------------------------------


def test_a_hold_is_opened_worked_in_and_closed(place):
    with window(place) as one:
        facts = one.run("drill", DRILLS, {"answer": {"n": 1}, "start": EVERY, "journal": ["a"]})
        assert facts == {"n": 1}
        (told,) = one.watching.items
        known = tokens(told["pid"], *told["pids"])
        supervisor = supervisor_of(place, one.granted.hold)
        assert supervisor.alive()
        assert tombstone(place, one.granted.hold) is None
    assert one.tombstone == tombstone(place, one.granted.hold)
    assert (one.tombstone["why"], one.tombstone["survivors"]) == ("done", [])
    assert gone(known)
    until(lambda: not supervisor.alive())
    with window(place) as again:
        assert again.granted.fence == one.granted.fence + 1


def test_what_a_step_leaves_behind_is_ended_before_the_hold_is_closed(place):
    with window(place) as one:
        one.run("drill", DRILLS, {"answer": {}, "start": EVERY})
        (told,) = one.watching.items
        # by the guard, as soon as the step itself has ended
        known = tokens(*told["pids"])
        until(lambda: gone(known))


def test_the_refusal_of_a_step_is_raised_here(place):
    with window(place) as one:
        with pytest.raises(Pp4Error) as raised:
            one.run("drill", "tests.faults.no_such_module", {})
        assert raised.value.refusal.code is Code.RANK_DIED


# -- the coordinator ------------------------------------------------------------------------


def test_a_coordinator_that_is_killed_is_outlived_by_its_lease_alone(place, coordinator):
    one = coordinator({"start": EVERY})
    supervisor = supervisor_of(place, one.hold)
    one.signal(signal.SIGKILL)
    found = until(lambda: tombstone(place, one.hold))
    assert found["why"] == "abandoned"
    assert gone(one.drill)
    until(lambda: not supervisor.alive())
    assert fences(place) == [str(one.told["fence"])] * 2
    with window(place) as again:
        assert again.granted.fence == one.told["fence"] + 1


def test_a_coordinator_that_slept_past_its_lease_stops_itself(place, coordinator):
    one = coordinator({"start": ["plain"]})
    one.signal(signal.SIGSTOP)
    assert until(lambda: tombstone(place, one.hold))["why"] == "abandoned"
    assert gone(one.drill)
    one.signal(signal.SIGCONT)
    status, said = one.wait()
    assert status != 0
    assert "LEASE_LOST" in said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_supervisor_that_is_asked_to_end_closes_its_hold(place, coordinator, number):
    one = coordinator({"start": EVERY})
    supervisor = supervisor_of(place, one.hold)
    os.kill(supervisor.pid, number)
    if number == signal.SIGINT:
        # what a terminal sends to everybody is not meant for it
        with pytest.raises(RefusedError) as raised, window(place):
            pass
        assert raised.value.refusal.code is Code.HELD_BY
        assert supervisor.alive()
        return
    assert until(lambda: tombstone(place, one.hold))["why"] == "cancelled"
    assert gone(one.drill)


# -- the supervisor and the guard -----------------------------------------------------------


def test_a_supervisor_that_is_killed_leaves_nothing_that_runs(place, coordinator):
    one = coordinator({"start": EVERY})
    supervisor = supervisor_of(place, one.hold)
    os.kill(supervisor.pid, signal.SIGKILL)
    until(lambda: gone(one.drill))
    status, said = one.wait()
    assert status != 0
    assert "SURVIVOR" in said or "LEASE_LOST" in said or "CONNECTION_LOST" in said
    assert tombstone(place, one.hold) is None
    # the next grant looks first, and says what became of it
    with window(place) as again:
        assert again.granted.fence == one.told["fence"] + 1
        assert tombstone(place, one.hold)["why"] == "abandoned"


def test_a_guard_that_is_killed_loses_nothing_to_anybody(place, coordinator):
    one = coordinator({"start": EVERY})
    guard = int(told_by(one.told["pid"], "stat").rpartition(")")[2].split()[1])
    assert "pp4.hold.guard" in told_by(guard, "cmdline")
    os.kill(guard, signal.SIGKILL)
    status, said = one.wait()
    assert status != 0
    assert "RANK_DIED" in said
    assert until(lambda: tombstone(place, one.hold))["why"] == "failed"
    assert gone(one.drill)
    # nor a cgroup of what it guarded, where it could make one
    assert leaves(one.hold) == ()


# -- two at once, and time ------------------------------------------------------------------


def test_the_loser_of_a_race_is_told_who_holds(place, coordinator):
    one = coordinator({})
    with pytest.raises(RefusedError) as raised, window(place):
        pass
    refusal = raised.value.refusal
    assert refusal.code is Code.HELD_BY
    assert one.hold in refusal.found
    assert one.process.poll() is None
    assert tombstone(place, one.hold) is None


def test_a_deadline_ends_what_runs_whatever_the_coordinator_wants(place):
    with pytest.raises(Pp4Error), window(place, bound_s=4.0) as one:
        one.run("drill", DRILLS, {"start": ["deaf"]})
    known = tokens(*one.watching.items[0]["pids"])
    assert until(lambda: tombstone(place, one.granted.hold))["why"] == "deadline"
    assert gone(known) or not any(known.values())


def test_a_request_of_another_fence_is_refused(place):
    with window(place) as one:
        one.granted = one.granted.model_copy(update={"fence": one.granted.fence + 1})
        with pytest.raises(RefusedError) as raised:
            one.run("drill", DRILLS, {"answer": {}})
        assert raised.value.refusal.code is Code.STALE_FENCE
        one.granted = one.granted.model_copy(update={"fence": one.granted.fence - 1})


def test_a_lease_that_is_not_renewed_is_over(place):
    with window(place) as one:
        one._stop.set()
        with pytest.raises(TimedOutError) as raised:
            one.run("drill", DRILLS, {})
        # half a lease after the last heartbeat; the host waits for the whole of it
        assert raised.value.refusal.code is Code.LEASE_LOST
        assert until(lambda: tombstone(place, one.granted.hold))["why"] == "abandoned"
    assert one.tombstone["why"] == "abandoned"


# -- what a supervisor must not be kept from ------------------------------------------------


def test_a_step_that_floods_keeps_nobody_from_ending_the_hold(place, coordinator):
    one = coordinator({"start": ["plain"], "flood": True})
    one.signal(signal.SIGKILL)
    assert until(lambda: tombstone(place, one.hold))["why"] == "abandoned"
    assert gone(one.drill)


def test_a_step_that_reads_no_answer_costs_nobody_else_time(place):
    with window(place) as one:
        # each answer has all the lines so far: they soon fill every pipe
        told = {"unread": 5000, "start": ["plain"]}
        ask_there(place, one.granted.hold, "start", label="unread", module=DRILLS, arguments=told)
        # heard and answered on, for several leases
        until(lambda: len(one.watching.beats) > 20)
        assert one.run("drill", DRILLS, {"answer": {"n": 1}}) == {"n": 1}
    assert one.tombstone["why"] == "done"


def test_a_step_owns_what_it_has_started_and_nothing_else(place):
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    try:
        with window(place) as one, pytest.raises(Pp4Error) as raised:
            one.run("drill", DRILLS, {"own": [other.pid], "answer": {}})
        assert raised.value.refusal.code is Code.RANK_DIED
        assert f"process {other.pid}: expected one that this step has started" in (
            raised.value.refusal.found
        )
        assert one.tombstone["why"] == "done"
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_silent_connections_keep_nobody_out(place):
    with window(place, ttl_s=60.0) as one:
        one.run("first", DRILLS, {"answer": {}})
        with contextlib.ExitStack() as silent:
            for _ in range(40):
                silent.enter_context(connected(place, one.granted.hold))
            # both over a connection that was there before and over a new one
            assert one.run("second", DRILLS, {"answer": {"n": 2}}) == {"n": 2}
            assert "steps" in ask_there(place, one.granted.hold, "beat")
    assert one.tombstone["why"] == "done"


def connected(place, hold):
    """A connection to a supervisor on which nothing is said."""
    there = os.open(place / "state" / "holds" / hold, os.O_PATH)
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # the whole name may be longer than a socket's may be
        link.connect(f"/proc/self/fd/{there}/socket")
    finally:
        os.close(there)
    return link


def test_a_guard_ends_its_step_in_time_although_the_supervisor_hangs(place, coordinator):
    one = coordinator({"start": ["deaf", "setsid"]}, bound_s=6.0, ttl_s=300.0)
    supervisor = supervisor_of(place, one.hold)
    halt(supervisor.pid)
    one.signal(signal.SIGKILL)
    try:
        until(lambda: gone(one.drill))
        assert supervisor.alive()
    finally:
        os.kill(supervisor.pid, signal.SIGCONT)
    assert until(lambda: tombstone(place, one.hold))["why"] == "deadline"


def test_with_supervisor_and_guard_killed_the_gpus_are_kept_back(place, coordinator):
    one = coordinator({"start": ["setsid"]})
    guard = int(told_by(one.told["pid"], "stat").rpartition(")")[2].split()[1])
    supervisor = supervisor_of(place, one.hold)
    for pid in (guard, supervisor.pid):
        os.kill(pid, signal.SIGKILL)
    try:
        # nobody can say any more what the step has started; the child with no name lives on
        with pytest.raises(RefusedError) as raised, window(place):
            pass
        assert raised.value.refusal.code is Code.QUARANTINED
        assert "guard-drill" in raised.value.refusal.found
        assert tombstone(place, one.hold) is None
    finally:
        for pid in one.told["pids"]:
            os.kill(pid, signal.SIGKILL)


def test_signals_that_whoever_started_it_ignored_are_heard(place):
    script = f"""
import os, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
os.execv(sys.executable, [sys.executable, "-c", {RUNS!r}, {str(place)!r}])
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stdout == "NOT_IDLE\ndone\n", done.stderr


RUNS = """
import sys
from pathlib import Path
from pp4.errors import RefusedError
from tests.faults.windows import window
place = Path(sys.argv[1])
wrong = {"argv": [sys.executable, "-c", "raise SystemExit(3)"], "limit_s": 30.0}
try:
    with window(place, quiesce=[wrong]):
        pass
except RefusedError as error:
    print(error.refusal.code)
with window(place) as one:
    pass
print(one.tombstone["why"])
"""


def test_a_screen_that_stands_still_costs_nobody_a_hold(place):
    stands, goes_on = threading.Event(), threading.Event()

    def blocked(*_):
        stands.set()
        goes_on.wait(PATIENCE_S)

    try:
        with window(place) as one:
            one.watching.alive = blocked
            until(stands.is_set)
            lease = Deadline.after(SystemClock(), 2 * TTL_S)
            until(lease.expired)
            assert one.run("drill", DRILLS, {"answer": {"n": 1}}) == {"n": 1}
        assert one.tombstone["why"] == "done"
    finally:
        goes_on.set()
