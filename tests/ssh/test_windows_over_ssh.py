"""HOLDs over a real SSH server: opened, worked in, cut off; what is left on both sides."""

import os
import shutil
import signal
import subprocess

import pytest

from pp4.clock import Deadline, SystemClock
from pp4.errors import UncleanError
from pp4.hold.delivery import deliver
from pp4.wire.holds import Close
from tests.faults.windows import DRILLS, gone, program, tokens, tombstone, until, window
from tests.ssh.hosts import connect
from tests.ssh.servers import Sshd, needs_sshd

pytestmark = needs_sshd


def directories(place):
    return str(place / "state"), str(place / "host")


def delivered(server, place, one):
    """Deliver the close of a window that is gone, over a new connection; -> the tombstone."""
    host = connect(server)
    try:
        close = Close(hold=one.granted.hold, fence=one.granted.fence, why="cancelled")
        return deliver(host, program, close, directories(place), SystemClock())
    finally:
        host.close()


def test_a_hold_is_opened_worked_in_and_closed(sshd, tmp_path):
    with window(tmp_path, host=connect(sshd), transport="ssh") as one:
        told = {"answer": {"n": 1}, "start": ["setsid"], "noise": 8 << 20}
        assert one.run("drill", DRILLS, told) == {"n": 1}
        known = tokens(*one.watching.items[0]["pids"])
    assert one.tombstone == tombstone(tmp_path, one.granted.hold)
    assert one.tombstone["why"] == "done"
    assert gone(known)
    # closed as it is, it is closed no more by whoever asks again
    assert delivered(sshd, tmp_path, one) == one.tombstone


@pytest.mark.parametrize("fault", ["stopped", "killed", "unplugged"])
def test_a_host_that_is_not_heard_of_closes_the_hold_itself(sshd, tmp_path, fault, request):
    server = request.getfixturevalue("far_server") if fault == "unplugged" else sshd
    seen = {}
    with pytest.raises(UncleanError) as raised:
        _work_until(server, tmp_path, fault, seen)
    # that it could not be closed is what is said in the end, and what may still be there
    hold = seen["window"].granted.hold
    assert hold in raised.value.refusal.left
    assert raised.value.refusal.next.startswith("pp4 hold recover ")
    found = until(lambda: tombstone(tmp_path, hold))
    assert found["why"] == "abandoned"
    assert gone(seen["known"])
    if fault == "stopped":
        server.signal(signal.SIGCONT)
        assert delivered(server, tmp_path, seen["window"]) == found


def _work_until(server, place, fault, seen):
    """Work in a HOLD over a connection that breaks as soon as the work has begun."""
    breaks = {
        "stopped": lambda: server.signal(signal.SIGSTOP),
        "killed": lambda: server.signal(signal.SIGKILL),
        "unplugged": lambda: server.unplug(),
    }
    host = connect(server, address=server.address)
    with window(place, host=host, transport="ssh") as one:
        seen["window"] = one
        one.watching.told = lambda item: (
            seen.setdefault("known", tokens(item["pid"], *item["pids"])),
            breaks[fault](),
        )
        one.run("drill", DRILLS, {"start": ["plain", "setsid"]})


@pytest.fixture
def far_server(tmp_path):
    """A server in a network namespace of its own, reached over a pair of interfaces."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("needs root and ip to make a network namespace")
    name = f"pp4-{os.getpid()}"
    near, far = f"pa{os.getpid() % 10**6}", f"pb{os.getpid() % 10**6}"
    steps = [
        ["ip", "netns", "add", name],
        ["ip", "link", "add", near, "type", "veth", "peer", "name", far],
        ["ip", "link", "set", far, "netns", name],
        ["ip", "addr", "add", "10.213.7.1/30", "dev", near],
        ["ip", "link", "set", near, "up"],
        ["ip", "netns", "exec", name, "ip", "addr", "add", "10.213.7.2/30", "dev", far],
        ["ip", "netns", "exec", name, "ip", "link", "set", far, "up"],
    ]
    try:
        for step in steps:
            done = subprocess.run(step, capture_output=True, text=True, check=False)
            if done.returncode:
                pytest.skip(f"no network namespace here: {done.stderr.strip()}")
        one = Sshd(tmp_path / "far", address="10.213.7.2", prefix=["ip", "netns", "exec", name])
        one.unplug = lambda: subprocess.run(["ip", "link", "set", near, "down"], check=True)
        yield one
        one.stop()
    finally:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", near], capture_output=True, check=False)


def test_a_lease_over_ssh_is_kept_for_longer_than_it_lasts(sshd, tmp_path):
    with window(tmp_path, host=connect(sshd), transport="ssh") as one:
        deadline = Deadline.after(SystemClock(), 2.5 * one.granted.ttl_s)
        until(deadline.expired)
        assert one.run("drill", DRILLS, {"answer": {}}) == {}
        assert len(one.watching.beats) > 4
    assert one.tombstone["why"] == "done"
