"""A host that is reached again after its connection has ended, and no other one in its place."""

import signal

import pytest

from pp4.errors import Code, RefusedError, TimedOutError
from pp4.transport.lasting import LastingHost
from pp4.transport.ssh import SshHost
from tests.ssh.hosts import LONG, SHORT, address_of, after, everything, lost, within
from tests.ssh.servers import fingerprint, keygen, needs_sshd

pytestmark = needs_sshd


@pytest.fixture
def host(sshd):
    made = LastingHost(address_of(sshd), after(LONG))
    yield made
    sshd.signal(signal.SIGCONT)
    made.close()


def cut(server, host):
    """End the server with its connections, and wait until that is known here."""
    stream = host.run(["cat"], after(LONG))
    server.stop()
    lost(stream.read, after(LONG))
    assert within(host._host.ended)


def says(host):
    stream = host.run(["echo", "here"], after(LONG))
    return everything(stream), stream.finish(after(LONG))


def test_a_server_that_starts_anew_is_reached_again(sshd, host, tmp_path):
    assert says(host) == (b"here\n", 0)
    first = host._host
    assert says(host) == (b"here\n", 0)
    assert host._host is first
    cut(sshd, host)
    sshd.start(sshd.port)
    assert says(host) == (b"here\n", 0)
    cut(sshd, host)
    sshd.start(sshd.port)
    host.put(b"x", str(tmp_path / "x"), after(LONG))
    assert (tmp_path / "x").read_bytes() == b"x"


def test_a_server_that_is_gone_is_lost_until_it_is_back(sshd, host):
    cut(sshd, host)
    for _ in range(2):
        # whoever has to know whether it was refused must not read a loss as one
        assert "UNREACHABLE" in lost(host.run, ["cat"], after(LONG)).found
    sshd.start(sshd.port)
    assert says(host) == (b"here\n", 0)


def test_a_server_with_another_key_is_refused_again_and_again(sshd, host):
    before = fingerprint(sshd.host_key_files[0])
    cut(sshd, host)
    own = sshd.host_key_files
    sshd.host_key_files = [keygen(sshd.directory / "changed")]
    sshd.start(sshd.port)
    for _ in range(2):
        with pytest.raises(RefusedError) as raised:
            host.run(["cat"], after(LONG))
        refusal = raised.value.refusal
        assert refusal.code is Code.HOST_KEY
        assert before in refusal.expected
        assert fingerprint(sshd.host_key_files[0]) in refusal.found
    sshd.stop()
    sshd.host_key_files = own
    sshd.start(sshd.port)
    assert says(host) == (b"here\n", 0)


def test_nothing_connects_after_a_close(sshd, host):
    cut(sshd, host)
    sshd.start(sshd.port)
    host.close()
    assert lost(host.run, ["cat"], after(LONG)).found == "closed here"
    assert "Accepted" not in sshd.log.read_text().rpartition("Server listening")[2]


def test_a_close_while_it_connects_leaves_no_connection(sshd, host, monkeypatch):
    cut(sshd, host)
    sshd.start(sshd.port)
    made = []

    def connected(*given):
        # somebody else closes it in this moment
        made.append(SshHost(*given))
        host.close()
        return made[0]

    monkeypatch.setattr("pp4.transport.lasting.SshHost", connected)
    assert lost(host.run, ["cat"], after(LONG)).found == "closed here"
    assert made[0].ended()


def test_a_server_that_does_not_answer_holds_nobody_past_the_deadline(sshd, host):
    cut(sshd, host)
    sshd.start(sshd.port)
    sshd.signal(signal.SIGSTOP)
    assert "UNREACHABLE" in lost(host.run, ["cat"], after(SHORT)).found
    with pytest.raises(TimedOutError):
        host.run(["cat"], after(0))
