"""What each failure of a hop leaves on both hosts: nothing that runs, and proof of it or a word."""

import json
import os
import signal
import subprocess

import pytest

from pp4.clock import SystemClock
from pp4.errors import Code, RefusedError
from pp4.hold.clearing import clear
from pp4.hold.exclusion import open_exclusion
from pp4.hold.processes import Owned
from tests.faults.windows import GPUS, PATIENCE_S, gone, program, public, tombstone, until, window
from tests.ssh.brief import Brief
from tests.ssh.further import Hopping
from tests.ssh.servers import needs_sshd

pytestmark = needs_sshd
EVERY = {"start": ["plain", "deaf", "setsid", "twice"]}


@pytest.fixture
def hopping(near, far):
    started = []

    def start(arguments=EVERY, **more):
        started.append(Hopping(near, far, arguments, **more))
        return started[-1]

    yield start
    for one in started:
        one.close()


def supervisor_of(place, hold):
    found = json.loads((public(place, hold) / "registration.json").read_text())["coordinator"]
    return Owned(found["pid"], found["start_token"], "supervisor")


def book(near, hold, what):
    path = near / "state" / "holds" / hold / f"hop-1.{what}.json"
    return json.loads(path.read_text()) if path.exists() else None


def require_over(near, far, one):
    """Both ends have a tombstone, and nothing of either is alive."""
    far_end = until(lambda: far.tombstone(one.far_hold))
    until(lambda: gone(one.drill))
    until(lambda: not far.supervisor(one.far_hold).alive())
    assert far_end["survivors"] == []
    assert book(near, one.hold, "closed")["tombstone"] == far_end
    near_end = tombstone(near, one.hold)
    assert near_end["survivors"] == []
    return near_end["why"], far_end["why"]


def kept_back(near):
    """What keeps the GPUs of the near host from being given out."""
    found = []
    for gpu in GPUS:
        for where in ("host", "state"):
            path = near / where / "gpu" / f"{gpu}.quarantine"
            if path.exists():
                found.append(json.loads(path.read_text())["survivors"])
    return found


def test_a_near_supervisor_that_is_killed_takes_the_far_end_with_it(near, far, hopping):
    one = hopping()
    os.kill(supervisor_of(near, one.hold).pid, signal.SIGKILL)
    # the hop closes its child at the end of its input, and where it cannot its lease does
    until(lambda: far.tombstone(one.far_hold))
    until(lambda: gone(one.drill))
    assert tombstone(near, one.hold) is None
    one.wait()
    with window(near) as again:
        assert again.granted.fence == one.told["fence"] + 1
        why, far_why = require_over(near, far, one)
    assert why == "abandoned"
    assert far_why in ("cancelled", "abandoned")


def test_a_coordinator_that_is_killed_takes_the_far_end_with_it(near, far, hopping):
    one = hopping()
    one.signal(signal.SIGKILL)
    until(lambda: tombstone(near, one.hold))
    assert require_over(near, far, one)[0] == "abandoned"


def test_a_hop_that_is_killed_has_its_far_end_closed_by_the_near_host(near, far, hopping):
    one = hopping()
    os.kill(one.near_step().pid, signal.SIGKILL)
    status, said = one.wait()
    assert status != 0
    assert "RANK_DIED" in said
    until(lambda: tombstone(near, one.hold))
    assert require_over(near, far, one)[0] == "failed"


def test_a_far_supervisor_that_is_killed_is_proven_dead_by_the_near_host(near, far, hopping):
    one = hopping()
    os.kill(far.supervisor(one.far_hold).pid, signal.SIGKILL)
    until(lambda: gone(one.drill))
    assert one.wait()[0] != 0
    until(lambda: tombstone(near, one.hold))
    assert require_over(near, far, one) == ("failed", "abandoned")


def test_a_far_host_that_stands_still_closes_its_end_itself(near, far, hopping):
    one = hopping()
    far.server.signal(signal.SIGSTOP)
    assert until(lambda: far.tombstone(one.far_hold))["why"] == "abandoned"
    assert gone(one.drill)
    assert tombstone(near, one.hold) is None
    far.server.signal(signal.SIGCONT)
    one.wait()
    until(lambda: tombstone(near, one.hold))
    assert require_over(near, far, one) == ("failed", "abandoned")


@pytest.mark.parametrize("killed", ["nobody", "supervisor"])
def test_a_far_host_out_of_reach_keeps_the_gpus_until_it_is_asked(near, far, hopping, killed):
    one = hopping()
    far.server.stop()
    if killed == "supervisor":
        os.kill(supervisor_of(near, one.hold).pid, signal.SIGKILL)
    _, said = one.wait()
    # the far end is over with its lease, but nobody has told the near host
    assert until(lambda: far.tombstone(one.far_hold))["why"] == "abandoned"
    # whoever asks from here on asks in vain, and briefly
    brief = Brief(near).program
    with pytest.raises(RefusedError) as raised, window(near, by=brief):
        pass
    assert raised.value.refusal.code is Code.QUARANTINED
    unproven = f"HOLD {one.far_hold} of hop-engine at {far.login()}, unproven"
    assert unproven in raised.value.refusal.found
    assert (killed == "supervisor") is (unproven not in said)
    assert kept_back(near) == [[unproven]] * 2
    assert tombstone(near, one.hold) is None
    # out of reach still: asked in vain
    assert recovered(near, one.hold, by=brief)["unproven"] != []
    far.server.start(far.server.port)
    told = recovered(near, one.hold)
    assert (told["state"], told["unproven"], told["survivors"]) == ("quarantined", [], [])
    assert told["facts"]["hops"] == ["hop-engine: tombstone: abandoned"]
    assert far.login().address not in json.dumps({**told, "private": None})
    # the quarantine is a person's to end
    for gpu in GPUS:
        clear(open_exclusion(near / "host", near / "state"), gpu, "op", "looked", SystemClock())
    with window(near):
        assert require_over(near, far, one)[0] == "abandoned"


def recovered(near, hold, by=program):
    """The receipt of ``pp4 hold recover``."""
    done = subprocess.run(
        by("pp4.hold.recovery", hold),
        env={
            **os.environ,
            "PP4_STATE_DIR": str(near / "state"),
            "PP4_HOST_DIR": str(near / "host"),
        },
        capture_output=True,
        timeout=PATIENCE_S,
        check=True,
    )
    return json.loads(done.stdout)
