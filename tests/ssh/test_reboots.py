"""A receiving host that restarts in the middle: nothing of it says a word, and its boot is another.

All that the server had started is killed in one moment; the server that answers next runs, with
whatever it starts, where the kernel names another boot.
"""

import json
import signal

import pytest

from pp4.errors import Code, Exit, RefusedError, UncleanError
from pp4.hold.deferred import CLOSES
from pp4.hold.delivery import deliver
from pp4.hold.processes import Owned, start_token
from pp4.hold.trees import descendants
from pp4.transport.lasting import LastingHost
from pp4.wire.holds import Close
from tests.faults.boots import another_boot
from tests.faults.windows import (
    DRILLS,
    GPUS,
    PATIENCE_S,
    gone,
    program,
    public,
    supervisor_of,
    tokens,
    tombstone,
    touch,
    until,
    window,
)
from tests.ssh.commands import Command
from tests.ssh.hosts import LONG, address_of, after
from tests.ssh.servers import needs_sshd

pytestmark = needs_sshd

TTL_S = 12.0
"""Its host is back before the coordinator has given up, on a machine that has much to do too."""


def lose_power(server):
    """Kill a server with all that descends from it, stopped first, so that nobody says a word.

    Returns the ids of what was killed.
    """
    seen = {Owned(server.pid, start_token(server.pid), "sshd")}
    new = seen
    while new:
        for one in new:
            one.signal(signal.SIGSTOP)
        # what was forked in between runs on, until nothing new is found
        new = {*descendants(server.pid, label="sshd")} - seen
        seen |= new
    for one in seen:
        one.signal(signal.SIGKILL)
    until(lambda: not any(one.alive() for one in seen))
    server.stop()
    return {one.pid for one in seen}


def lasting(server):
    return LastingHost(address_of(server), after(LONG))


def restart(server, prefix):
    """Start a server in another boot."""
    server._prefix = prefix
    server.start(server.port)


def test_a_host_that_restarts_is_held_by_nobody_and_repeats_nothing(sshd, tmp_path):
    prefix, boot = another_boot(tmp_path)
    after_it, mark, seen = tmp_path / "after", tmp_path / "mark", {}
    with pytest.raises(UncleanError) as raised:
        _work_until_it_restarts(sshd, prefix, tmp_path, after_it, mark, seen)
    one, host = seen["window"], seen["host"]
    hold, fence = one.granted.hold, one.granted.fence
    # unknown, and not "failed": what became of the step nobody can say
    assert raised.value.exit is Exit.UNCLEAN
    assert raised.value.refusal.code is Code.LEASE_LOST
    assert hold in raised.value.refusal.left
    assert one.tombstone is None
    # nothing was ended in order: neither a tombstone nor a guard's word, and nothing was put back
    assert tombstone(tmp_path, hold) is None
    assert not list((tmp_path / "state").rglob("*.ended"))
    assert not after_it.exists()
    close = Close(hold=hold, fence=fence, why="cancelled")
    directories = (str(tmp_path / "state"), str(tmp_path / "host"))
    try:
        with window(tmp_path, host=host, transport="ssh", ttl_s=TTL_S) as again:
            assert (again.granted.fence, again.granted.boot_id) == (fence + 1, boot)
            # before anything is done in it, and once
            assert after_it.read_text() == "x"
            found = tombstone(tmp_path, hold)
            assert (found["why"], found["fence"]) == ("host_reboot", str(fence))
            assert not list(public(tmp_path, hold).parents[1].glob("gpu/*.quarantine"))
            # a close that is delivered late says how it ended, and ends no other one
            host = lasting(sshd)
            assert deliver(host, program, close, directories, again._clock) == found
            assert again.run("drill", DRILLS, {"answer": {"n": 1}}) == {"n": 1}
        assert again.tombstone["why"] == "done"
    finally:
        host.close()
    assert mark.read_bytes() == b"x"


def _work_until_it_restarts(server, prefix, place, after_it, mark, seen):
    """Work on a host until it restarts, which is as soon as the work has begun."""
    host = seen["host"] = lasting(server)
    more = {"transport": "ssh", "ttl_s": TTL_S, "restore": [touch(after_it)]}

    def restarted(item):
        known = tokens(item["pid"], *item["pids"])
        supervisor = supervisor_of(place, seen["window"].granted.hold)
        killed = lose_power(server)
        assert {supervisor.pid, *known} <= killed
        assert gone(known)
        restart(server, prefix)

    with window(place, host=_Kept(host), **more) as one:
        seen["window"], one.watching.told = one, restarted
        one.run("drill", DRILLS, {"start": ["plain", "deaf", "setsid", "twice"], "mark": str(mark)})


class _Kept:
    """A host that whoever is given it does not close."""

    def __init__(self, host):
        self.name, self.address, self.fingerprint = host.name, host.address, host.fingerprint
        self.run, self.put = host.run, host.put

    def close(self):
        """Not here."""


def test_a_quarantine_of_another_boot_is_void(sshd, tmp_path):
    prefix, _ = another_boot(tmp_path)
    kept = [tmp_path / "host" / "gpu" / f"{gpu}.quarantine" for gpu in GPUS]
    seen = {}
    with pytest.raises(UncleanError):
        # all of it is killed and the machine goes on: nobody knows what the step has left behind
        _work_until_it_restarts(sshd, [], tmp_path, tmp_path / "a", tmp_path / "b", seen)
    hold = seen["window"].granted.hold
    seen["host"].close()
    with pytest.raises(RefusedError) as raised, window(tmp_path, host=lasting(sshd)):
        pass
    assert raised.value.refusal.code is Code.QUARANTINED
    assert all(one.exists() for one in kept)
    assert tombstone(tmp_path, hold) is None
    sshd.stop()
    restart(sshd, prefix)
    with window(tmp_path, host=lasting(sshd), transport="ssh", ttl_s=TTL_S) as again:
        assert not any(one.exists() for one in kept)
        assert tombstone(tmp_path, hold)["why"] == "host_reboot"
    assert again.tombstone["why"] == "done"


def test_the_command_keeps_its_close_and_recover_buries_the_hold(sshd, tmp_path):
    prefix, _ = another_boot(tmp_path)
    put_back = tmp_path / "after"
    restore = touch(put_back)["argv"]
    command = Command(sshd, tmp_path, TTL_S, f"[[restore]]\nargv = {json.dumps(restore)}\n")
    process = command.start("pair-qualify", "--dry-run-device", "--out", str(tmp_path / "out"))
    try:
        hold = until(lambda: command.working(process))
        lose_power(sshd)
        restart(sshd, prefix)
        _, said = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == int(Exit.UNCLEAN), said
    assert "Traceback" not in said
    assert f"pp4 hold recover {hold}" in " ".join(said.split())
    assert not list((tmp_path / "out").glob("*.json"))
    kept = command.mine / CLOSES / f"{hold}.json"
    fence = json.loads(kept.read_text())["fence"]
    assert tombstone(tmp_path, hold) is None
    status, told = command.run("hold", "recover", hold, "--out", str(tmp_path / "incidents"))
    assert (status, told["state"], told["unproven"]) == (0, "closed", []), told
    incident = json.loads((tmp_path / "incidents" / f"incident-{hold}.json").read_text())
    assert incident["kind"] == "incident"
    found = tombstone(tmp_path, hold)
    assert (found["why"], found["fence"]) == ("host_reboot", fence)
    assert put_back.read_text() == "x"
    assert command.run("hold", "close", hold) == (0, found)
    assert not kept.exists()
