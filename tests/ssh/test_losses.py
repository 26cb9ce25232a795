"""A host that stops in the middle: every wait has its end, and nothing is said to have failed."""

import os
import signal
import socket
import threading
import time
from pathlib import Path

import pytest

from pp4.errors import Code, RefusedError
from pp4.transport.ssh import SshHost
from tests.ssh.hosts import (
    LONG,
    SHORT,
    address_of,
    after,
    connect,
    everything,
    lost,
    python,
    read_exactly,
    timed_out,
    within,
)
from tests.ssh.relays import Relay
from tests.ssh.servers import fingerprint, needs_sshd

pytestmark = needs_sshd
MIB = 1 << 20


@pytest.fixture
def host(sshd):
    made = connect(sshd)
    yield made
    # whatever the test did to the server, it must not be what the close waits for
    sshd.signal(signal.SIGCONT)
    made.close()


@pytest.fixture
def relay(sshd):
    made = Relay(sshd.port)
    yield made
    made.close()


def at_once(call, *arguments):
    """Require that a call does not wait for the host."""
    began = time.monotonic()
    call(*arguments)
    assert time.monotonic() - began < LONG / 4


@pytest.fixture
def stopped(sshd, host):
    """A program that runs on a host whose server is stopped."""
    stream = host.run(["cat"], after(LONG))
    stream.write(b"x", after(LONG))
    assert read_exactly(stream, 1) == b"x"
    sshd.signal(signal.SIGSTOP)
    return stream


def test_a_stopped_server_ends_the_start_of_a_program(host, stopped):
    refusal = timed_out(host.run, ["cat"], after(SHORT))
    assert refusal.left == "whether it was started is unknown"


def test_a_stopped_server_ends_a_read(stopped):
    timed_out(stopped.read, after(SHORT))


def test_a_stopped_server_ends_a_write(stopped):
    timed_out(stopped.write, b"x" * (32 * MIB), after(SHORT))


def test_a_stopped_server_ends_a_finish(stopped):
    timed_out(stopped.finish, after(SHORT))


def test_a_stopped_server_ends_a_put(host, stopped, tmp_path):
    timed_out(host.put, b"x", str(tmp_path / "x"), after(SHORT))


def stuff(connection):
    """Leave little room on the way, so that it is full before the window of a channel is."""
    connection.transport.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)


def test_a_stopped_server_does_not_hold_a_close(host, stopped):
    # whatever close would still like to say, it cannot
    stuff(host._connection)
    timed_out(stopped.write, b"x" * (32 * MIB), after(SHORT))
    timed_out(host.run, ["cat"], after(SHORT))
    timed_out(host.put, b"x", "/nowhere/x", after(SHORT))
    at_once(stopped.close)
    at_once(host.close)
    lost(host.run, ["cat"], after(LONG))


def test_closing_the_host_ends_the_threads_that_a_stopped_server_held(host, stopped):
    timed_out(stopped.write, b"x" * (32 * MIB), after(SHORT))
    timed_out(host.run, ["cat"], after(SHORT))
    host.close()

    def names():
        return [thread.name for thread in threading.enumerate() if host.address in thread.name]

    assert within(lambda: not names()), names()


def test_a_server_that_is_stopped_before_it_answers_is_unreachable(sshd):
    sshd.signal(signal.SIGSTOP)
    with pytest.raises(RefusedError) as caught:
        SshHost(address_of(sshd), after(SHORT))
    assert caught.value.refusal.code is Code.UNREACHABLE
    sshd.signal(signal.SIGCONT)


def test_a_server_that_goes_on_is_as_good_as_before(sshd, stopped):
    timed_out(stopped.read, after(SHORT))
    sshd.signal(signal.SIGCONT)
    stopped.write(b"again", after(LONG))
    assert read_exactly(stopped, 5) == b"again"
    assert stopped.finish(after(LONG)) == 0


def test_a_start_that_was_given_up_does_not_leave_a_program_waiting(sshd, host, tmp_path):
    """Whether it starts is unknown; if it does, it sees the end of its input at once."""
    said = tmp_path / "said"
    text = "import sys; open(sys.argv[1], 'w').write(repr(sys.stdin.read()))"
    sshd.signal(signal.SIGSTOP)
    timed_out(host.run, python(text, str(said)), after(SHORT))
    sshd.signal(signal.SIGCONT)
    # the connection still works, and the session that nobody wanted is closed
    stream = host.run(["echo", "x"], after(LONG))
    assert stream.finish(after(LONG)) == 0
    if said.exists():
        assert within(lambda: said.read_text() == "''")


def test_starts_that_were_given_up_leave_no_sessions_behind(sshd, host):
    sshd.signal(signal.SIGSTOP)
    # as many as a server allows for one connection
    for _ in range(10):
        timed_out(host.run, ["cat"], after(0.05))
    sshd.signal(signal.SIGCONT)

    def opens():
        try:
            stream = host.run(["true"], after(LONG))
        except RefusedError:
            return False
        return stream.finish(after(LONG)) == 0

    assert within(opens)


def test_a_server_that_opens_no_more_sessions_refuses_and_is_not_lost(start_sshd, tmp_path):
    host = connect(start_sshd("narrow", extra="MaxSessions 1"))
    first = host.run(["cat"], after(LONG))
    with pytest.raises(RefusedError) as caught:
        host.run(["cat"], after(LONG))
    assert caught.value.refusal.code is Code.UNREADABLE
    with pytest.raises(RefusedError) as caught:
        host.put(b"x", str(tmp_path / "x"), after(LONG))
    assert caught.value.refusal.code is Code.UNWRITABLE
    assert first.finish(after(LONG)) == 0
    host.close()


@pytest.mark.parametrize("sftp", [None, "/nowhere/sftp-server", "/bin/true"])
def test_a_server_without_sftp_takes_no_files(start_sshd, tmp_path, sftp):
    host = connect(start_sshd("no-sftp", sftp=sftp))
    with pytest.raises(RefusedError) as caught:
        host.put(b"x", str(tmp_path / "x"), after(LONG))
    assert caught.value.refusal.code is Code.UNWRITABLE
    stream = host.run(["echo", "fine"], after(LONG))
    assert stream.finish(after(LONG)) == 0
    host.close()


def test_a_login_shell_that_talks_is_no_sftp_server(start_sshd, tmp_path):
    host = connect(start_sshd("talks", sftp="/bin/echo Welcome to this host"))
    with pytest.raises(RefusedError) as caught:
        host.put(b"x", str(tmp_path / "x"), after(LONG))
    assert caught.value.refusal.found == "what answered is no SFTP server"
    host.close()


def kill_all(sshd):
    sshd.signal(signal.SIGKILL)


def test_a_killed_server_is_a_lost_connection_for_whoever_reads(sshd, host):
    stream = host.run(["cat"], after(LONG))
    killer = threading.Thread(target=kill_all, args=(sshd,))
    killer.start()
    assert "ended" in lost(stream.read, after(LONG)).found
    killer.join(LONG)
    lost(stream.write, b"x", after(LONG))
    lost(stream.finish, after(LONG))
    lost(host.run, ["cat"], after(LONG))


def test_what_arrived_before_the_loss_can_still_be_read(sshd, host):
    text = "import sys; print('before', flush=True); sys.stdin.read()"
    stream = host.run(python(text), after(LONG))
    assert within(lambda: stream._output._kept)
    kill_all(sshd)
    assert read_exactly(stream, 7) == b"before\n"
    lost(stream.read, after(LONG))


def test_a_killed_server_says_nothing_of_how_a_program_ended(sshd, host):
    stream = host.run(["cat"], after(LONG))
    kill_all(sshd)
    refusal = lost(stream.finish, after(LONG))
    assert refusal.left == "what ran there may still run"


def test_a_server_killed_in_the_middle_of_much_output(sshd, host):
    text = "import os\nwhile True: os.write(1, b'x' * 65536)"
    stream = host.run(python(text), after(LONG))
    read_exactly(stream, MIB)
    kill_all(sshd)
    lost(everything, stream)


def test_a_put_that_is_cut_goes_on_where_it_was(sshd, relay, tmp_path):
    data, path = os.urandom(3 * MIB), tmp_path / "file"
    path.write_bytes(b"old")
    host = connect(sshd, port=relay.port)
    relay.cut_after = relay.sent + 2 * MIB
    lost(host.put, data, str(path), after(LONG))
    host.close()
    assert path.read_bytes() == b"old"
    part = Path(f"{path}.part")
    # the server writes what it had taken before it sees the end
    assert within(lambda: part.stat().st_size > MIB)
    kept = part.read_bytes()
    assert data.startswith(kept)

    relay.cut_after, relay.sent = None, 0
    again = connect(sshd, port=relay.port)
    again.put(data, str(path), after(LONG))
    again.close()
    assert path.read_bytes() == data
    assert not part.exists()
    # what was there was not sent a second time
    assert relay.sent < len(data) - len(kept) + MIB // 2


def test_a_put_that_is_stopped_leaves_its_part_and_can_be_repeated(sshd, host, relay, tmp_path):
    data, path = os.urandom(3 * MIB), tmp_path / "file"
    over = connect(sshd, port=relay.port)
    begun = relay.sent

    def stop():
        assert within(lambda: relay.sent - begun > MIB)
        sshd.signal(signal.SIGSTOP)

    stopper = threading.Thread(target=stop)
    stopper.start()
    timed_out(over.put, data, str(path), after(2.0))
    stopper.join(LONG)
    assert not path.exists()
    sshd.signal(signal.SIGCONT)
    over.close()
    host.put(data, str(path), after(LONG))
    assert path.read_bytes() == data


# a host in between


@pytest.fixture
def jump(start_sshd):
    return start_sshd("jump")


def test_a_host_behind_another(sshd, jump, tmp_path):
    host = connect(sshd, jump=address_of(jump))
    assert host.fingerprint == fingerprint(sshd.host_key_files[0])
    stream = host.run(["cat"], after(LONG))
    stream.write(b"through", after(LONG))
    assert read_exactly(stream, 7) == b"through"
    assert stream.finish(after(LONG)) == 0
    host.put(b"data", str(tmp_path / "file"), after(LONG))
    assert (tmp_path / "file").read_bytes() == b"data"
    host.close()
    # it really went that way: the far host saw the jump host come
    assert "Accepted publickey" in jump.log.read_text()


def refused(code, where):
    with pytest.raises(RefusedError) as caught:
        SshHost(where, after(LONG))
    assert caught.value.refusal.code is code
    return caught.value.refusal


def test_each_of_both_is_held_to_its_own_key(sshd, jump):
    where = address_of(sshd, jump=address_of(jump, host_key=sshd.host_key))
    refusal = refused(Code.HOST_KEY, where)
    assert refusal.where == f"{jump.user}@127.0.0.1:{jump.port}"
    assert fingerprint(jump.host_key_files[0]) in refusal.found
    assert "Accepted" not in jump.log.read_text()

    refusal = refused(
        Code.HOST_KEY, address_of(sshd, host_key=jump.host_key, jump=address_of(jump))
    )
    assert refusal.where == f"{sshd.user}@127.0.0.1:{sshd.port}"
    assert fingerprint(sshd.host_key_files[0]) in refusal.found


def test_a_host_in_between_that_lets_nobody_through(sshd, start_sshd):
    jump = start_sshd("closed", extra="AllowTcpForwarding no")
    refusal = refused(Code.UNREACHABLE, address_of(sshd, jump=address_of(jump)))
    assert "the jump host says" in refusal.found
    assert str(sshd.port) in refusal.where


def test_a_host_behind_another_that_does_not_listen(sshd, jump):
    where = address_of(sshd, jump=address_of(jump))
    sshd.stop()
    assert "the jump host says" in refused(Code.UNREACHABLE, where).found


def test_a_stopped_host_in_between_holds_nothing(sshd, jump):
    host = connect(sshd, jump=address_of(jump))
    stream = host.run(["cat"], after(LONG))
    stuff(host._connection._below)
    jump.signal(signal.SIGSTOP)
    timed_out(stream.read, after(SHORT))
    timed_out(stream.write, b"x" * (32 * MIB), after(SHORT))
    timed_out(host.run, ["cat"], after(SHORT))
    at_once(stream.close)
    at_once(host.close)


def test_a_killed_host_in_between_is_a_lost_connection(sshd, jump):
    host = connect(sshd, jump=address_of(jump))
    stream = host.run(["cat"], after(LONG))
    kill_all(jump)
    lost(stream.read, after(LONG))
    host.close()
