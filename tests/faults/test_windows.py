"""What each failure of a HOLD leaves on both sides: rows of the table of docs/hold.md."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pp4.errors import Code, Pp4Error, RefusedError, TimedOutError
from pp4.hold.cgroup import leaves
from pp4.hold.processes import Owned
from tests.faults.windows import (
    DRILLS,
    GPUS,
    ROOT,
    Coordinator,
    gone,
    public,
    tokens,
    tombstone,
    until,
    window,
)

EVERY = ["plain", "deaf", "setsid", "twice"]


@pytest.fixture
def place(tmp_path):
    for name in ("state", "host"):
        (tmp_path / name).mkdir(mode=0o700)
    if os.geteuid() == 0:
        (tmp_path / "host").chmod(0o755)
        # a host directory below one that others may write would exclude nobody
        (tmp_path / "host").rmdir()
        return tmp_path
    (tmp_path / "host").rmdir()
    return tmp_path


@pytest.fixture
def coordinator(place):
    started = []

    def start(arguments=None, **more):
        started.append(Coordinator(place, arguments, **more))
        return started[-1]

    yield start
    for one in started:
        one.close()


def supervisor_of(place, hold):
    found = json.loads((public(place, hold) / "registration.json").read_text())["coordinator"]
    return Owned(found["pid"], found["start_token"], "supervisor")


def told_by(pid, what):
    return Path(f"/proc/{pid}/{what}").read_text()


def fences(place):
    directory = place / "host" if (place / "host").exists() else place / "state"
    return [json.loads((directory / "fence" / gpu).read_text())["fence"] for gpu in GPUS]


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


# -- around the work ------------------------------------------------------------------------


def touch(path, status=0):
    text = f"open({str(path)!r}, 'a').write('x'); raise SystemExit({status})"
    return {"argv": [sys.executable, "-c", text], "limit_s": 30.0}


def test_the_host_is_made_quiet_before_and_put_back_after(place):
    before, after = place / "before", place / "after"
    with window(place, quiesce=[touch(before)], restore=[touch(after)]) as one:
        assert before.read_text() == "x"
        one.run("drill", DRILLS, {"answer": {}})
        assert not after.exists()
    assert after.read_text() == "x"
    assert one.tombstone["restored"] == [f"{sys.executable}: done"]


def test_a_host_that_does_not_get_quiet_refuses_and_is_put_back(place):
    quiesce, after = [touch(place / "before", status=3)], place / "after"
    with (
        pytest.raises(RefusedError) as raised,
        window(place, quiesce=quiesce, restore=[touch(after)]),
    ):
        pass
    assert raised.value.refusal.code is Code.NOT_IDLE
    assert "status 3" in raised.value.refusal.found
    assert after.read_text() == "x"
    # nothing is held, and the next one is granted
    with window(place):
        pass


def test_the_host_is_put_back_whoever_dies(place, coordinator):
    after = place / "after"
    one = coordinator({"start": ["deaf"]}, restore=[touch(after)])
    one.signal(signal.SIGKILL)
    found = until(lambda: tombstone(place, one.hold))
    assert (found["why"], found["restored"]) == ("abandoned", [f"{sys.executable}: done"])
    assert after.read_text() == "x"


def test_what_does_not_put_the_host_back_is_said(place):
    wrong = [touch(place / "after", status=4), {"argv": ["/no/such/program"], "limit_s": 1.0}]
    with window(place, restore=wrong) as one:
        pass
    first, second = one.tombstone["restored"]
    assert first == f"{sys.executable}: status 4"
    assert second.startswith("/no/such/program: ")
    assert "No such file" in second


def test_a_bound_that_is_too_short_for_the_end_is_refused(place):
    restore = [{"argv": ["true"], "limit_s": 30.0}]
    with pytest.raises(Pp4Error) as raised, window(place, bound_s=30.0, restore=restore):
        pass
    assert raised.value.refusal.code is Code.DEADLINE


def test_what_a_killed_supervisor_did_not_put_back_the_next_one_does(place, coordinator):
    after = place / "after"
    one = coordinator({}, restore=[touch(after)])
    os.kill(supervisor_of(place, one.hold).pid, signal.SIGKILL)
    until(lambda: gone(one.drill))
    assert not after.exists()
    with window(place):
        # before anything is done in the new one
        assert after.read_text() == "x"
    with window(place):
        pass
    # and once only
    assert after.read_text() == "x"


def test_a_supervisor_that_is_ended_while_the_host_gets_quiet_puts_it_back(place):
    before, after = place / "before", place / "after"
    text = f"open({str(before)!r}, 'w').close(); import time; time.sleep(100)"
    slow = {"argv": [sys.executable, "-c", text], "limit_s": 100.0}
    raised = []

    def ask():
        try:
            with window(place, quiesce=[slow], restore=[touch(after)]):
                raised.append(None)
        except Pp4Error as error:
            raised.append(error.refusal.code)

    asking = threading.Thread(target=ask)
    asking.start()
    until(before.exists)
    (registered,) = until(lambda: list(place.glob("*/holds/*/registration.json")))
    os.kill(json.loads(registered.read_text())["coordinator"]["pid"], signal.SIGTERM)
    asking.join()
    assert raised == [Code.INTERRUPTED]
    assert after.read_text() == "x"
    assert tombstone(place, registered.parent.name)["why"] == "cancelled"


# -- what a supervisor must not be kept from ------------------------------------------------


def test_a_step_that_floods_keeps_nobody_from_ending_the_hold(place, coordinator):
    one = coordinator({"start": ["plain"], "flood": True})
    one.signal(signal.SIGKILL)
    assert until(lambda: tombstone(place, one.hold))["why"] == "abandoned"
    assert gone(one.drill)


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


def test_a_restore_command_that_does_not_end_is_ended_with_what_it_started(place):
    started = place / "started"
    text = (
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)'])\n"
        f"open({str(started)!r}, 'w').write(str(child.pid))\n"
        "time.sleep(1000)"
    )
    endless = {"argv": [sys.executable, "-c", text], "limit_s": 3.0}
    with window(place, restore=[endless]) as one:
        pass
    assert one.tombstone["restored"] == [f"{sys.executable}: no end within 3 s"]
    known = tokens(int(started.read_text()))
    until(lambda: gone(known))


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
