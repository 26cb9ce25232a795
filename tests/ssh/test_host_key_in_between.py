"""A server that ends in the middle of a HOLD: with its own key it is met again, else never."""

import json

import pytest

from pp4.errors import Code, Exit, RefusedError
from pp4.hold.deferred import CLOSES
from pp4.transport.lasting import LastingHost
from tests.faults.windows import (
    DRILLS,
    PATIENCE_S,
    gone,
    tokens,
    tombstone,
    until,
    window,
)
from tests.ssh.commands import Command
from tests.ssh.hosts import LONG, address_of, after
from tests.ssh.servers import fingerprint, keygen, needs_sshd

pytestmark = needs_sshd

TTL_S = 6.0
"""Long enough for a server to start anew within half of it on a machine that has much to do."""


def lasting(server):
    return LastingHost(address_of(server), after(LONG))


def change_key(server):
    """Put a server with another host key in its place; -> both fingerprints."""
    before = fingerprint(server.host_key_files[0])
    server.host_key_files = [keygen(server.directory / "changed")]
    server.stop()
    server.start(server.port)
    return before, fingerprint(server.host_key_files[0])


def sessions(server):
    """How often somebody has shown a key to the server that runs now."""
    return server.log.read_text().rpartition("Server listening")[2].count("Accepted")


def test_a_hold_outlives_a_server_that_starts_anew(sshd, tmp_path):
    with window(tmp_path, host=lasting(sshd), transport="ssh", ttl_s=TTL_S) as one:
        assert one.run("first", DRILLS, {"answer": {"n": 1}, "start": ["setsid"]}) == {"n": 1}
        sshd.stop()
        sshd.start(sshd.port)
        assert one.run("second", DRILLS, {"answer": {"n": 2}}) == {"n": 2}
        assert tombstone(tmp_path, one.granted.hold) is None
    assert one.tombstone == tombstone(tmp_path, one.granted.hold)
    assert one.tombstone["why"] == "done"


@pytest.mark.parametrize("busy", [True, False])
def test_another_host_key_ends_the_run_at_once_with_both_fingerprints(sshd, tmp_path, busy):
    seen = {}
    with pytest.raises(RefusedError) as raised:
        _work_until_the_key_changes(sshd, tmp_path, busy, seen)
    one, refusal = seen["window"], raised.value.refusal
    before, after_it = seen["keys"]
    assert raised.value.exit is Exit.REFUSED
    assert refusal.code is Code.HOST_KEY
    assert before in refusal.expected
    assert after_it in refusal.found
    assert one.granted.hold in refusal.left
    # what is no answer is no end: somebody has to close it later
    assert one.tombstone is None
    # at once: nobody waited for the lease to be over first
    assert not seen["lost"]
    assert sessions(sshd) == 0
    # its own host ends it, with its lease and no word from anybody
    assert until(lambda: tombstone(tmp_path, one.granted.hold))["why"] == "abandoned"
    assert gone(seen["known"])


def _work_until_the_key_changes(server, place, busy, seen):
    """Work in a HOLD whose host shows another key in the middle, or just before the close."""

    def changed(item):
        seen["known"] = tokens(item["pid"], *item["pids"])
        if busy:
            seen["keys"] = change_key(server)

    with window(place, host=lasting(server), transport="ssh", ttl_s=TTL_S) as one:
        seen["window"], one.watching.told = one, changed
        try:
            more = {} if busy else {"answer": {}}
            one.run("drill", DRILLS, {"start": ["plain", "setsid"], **more})
            seen["keys"] = change_key(server)
        finally:
            seen["lost"] = one._contact.lost()


def test_the_heartbeat_alone_finds_another_key_and_nothing_is_asked_any_more(sshd, tmp_path):
    with pytest.raises(RefusedError) as raised:
        _rest_until_the_key_changes(sshd, tmp_path)
    assert raised.value.refusal.code is Code.HOST_KEY
    assert sessions(sshd) == 0


def _rest_until_the_key_changes(server, place):
    with window(place, host=lasting(server), transport="ssh", ttl_s=TTL_S) as one:
        change_key(server)
        until(lambda: one._line.ended is not None)
        assert not one._contact.lost()
        with pytest.raises(RefusedError) as asked:
            one.run("drill", DRILLS, {"answer": {}})
        assert asked.value.refusal.code is Code.HOST_KEY


def test_the_command_ends_with_both_fingerprints_and_keeps_the_close(sshd, tmp_path):
    command = Command(sshd, tmp_path, TTL_S)
    process = command.start("pair-qualify", "--dry-run-device", "--out", str(tmp_path / "out"))
    try:
        hold = until(lambda: command.working(process))
        before, after_it = change_key(sshd)
        _, said = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == int(Exit.REFUSED), said
    assert "HOST_KEY" in said
    # a narrow terminal breaks lines where it must
    unbroken = "".join(said.split())
    assert before in unbroken
    assert after_it in unbroken
    assert "Traceback" not in said
    kept = json.loads((command.mine / CLOSES / f"{hold}.json").read_text())
    found = until(lambda: tombstone(tmp_path, hold))
    assert (kept["hold"], kept["fence"]) == (hold, found["fence"])
    assert found["why"] == "abandoned"
    assert not list((tmp_path / "out").glob("*.json"))
