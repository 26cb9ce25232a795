"""Where a worker listens: for its own user, on this machine, and never over another worker."""

import contextlib
import os
import resource
import socket
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from pp4.errors import Code, RefusedError
from pp4.wire.draft_frames import encode
from pp4.wire.drafts import Status
from pp4.worker.client import Client
from pp4.worker.front.listening import listen_tcp, listen_unix
from tests.unit.worker.fronts import PATIENT_S, Worker, answers

NOBODY = 65534


@pytest.fixture
def path(tmp_path):
    return tmp_path / "worker.sock"


def refused(code, listen, *given):
    with pytest.raises(RefusedError) as caught:
        listen(*given)
    assert caught.value.refusal.code is code
    return caught.value.refusal


def test_the_file_is_private_under_any_umask_and_the_umask_is_as_before(path):
    before = os.umask(0)
    try:
        listener = listen_unix(path)
        assert os.umask(0) == 0
    finally:
        os.umask(before)
    found = path.lstat()
    assert stat.S_ISSOCK(found.st_mode)
    assert stat.S_IMODE(found.st_mode) == 0o600
    listener.close()
    assert not path.exists()


def test_the_file_is_private_from_its_first_moment(path, monkeypatch):
    seen = []
    monkeypatch.setattr(
        socket.socket, "listen", lambda *_: seen.append(stat.S_IMODE(path.lstat().st_mode))
    )
    before = os.umask(0)
    try:
        listen_unix(path).close()
    finally:
        os.umask(before)
    assert seen == [0o600]


def test_a_live_worker_is_not_replaced(path):
    listener = listen_unix(path)
    try:
        assert "listens" in refused(Code.EXISTS, listen_unix, path).expected
        with Client.unix(path):
            pass
    finally:
        listener.close()


def test_what_a_dead_worker_left_is_replaced(path):
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(path))
    dead.close()
    old = path.lstat().st_ino
    keep = path.with_name("kept")
    os.link(path, keep)  # so that the inode's number is not given out again
    listener = listen_unix(path)
    assert path.lstat().st_ino != old
    with Client.unix(path):
        pass
    listener.close()


@pytest.mark.parametrize("kind", ["file", "directory", "link"])
def test_what_is_no_socket_stays(path, kind):
    if kind == "file":
        path.write_text("precious")
    elif kind == "directory":
        path.mkdir()
    else:
        path.symlink_to(path.with_name("elsewhere"))
    before = path.lstat()
    refused(Code.EXISTS, listen_unix, path)
    assert path.lstat() == before


def test_a_worker_takes_only_its_own_file_away(path):
    first = listen_unix(path)
    path.unlink()
    second = listen_unix(path)
    first.close()
    assert path.exists()
    second.close()
    assert not path.exists()
    path.write_text("precious")
    second.close()
    assert path.exists()


@pytest.mark.parametrize("name", ["missing/worker.sock", "x" * 200])
def test_a_path_that_cannot_be_had_is_refused(tmp_path, name):
    refused(Code.BAD_SETTING, listen_unix, tmp_path / name)


def test_two_that_start_at_once_do_not_take_each_others_file_away(path):
    # each of them finds a dead socket; whoever comes second has to find the first one alive
    program = (
        "import sys, pathlib\n"
        "from pp4.errors import RefusedError\n"
        "from pp4.worker.front.listening import listen_unix\n"
        "sys.stdin.readline()\n"
        "try:\n"
        "    listener = listen_unix(pathlib.Path(sys.argv[1]))\n"
        "except RefusedError as error:\n"
        "    sys.stdout.write(error.refusal.code)\n"
        "else:\n"
        "    sys.stdout.write('listens')\n"
        "sys.stdout.flush()\n"
        "sys.stdin.readline()\n"
    )
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(path))
    dead.close()
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    try:
        for racer in racers:
            racer.stdin.write("go\n")
            racer.stdin.flush()
        told = sorted(racer.stdout.read(6) for racer in racers)
        assert told == ["EXISTS", "EXISTS", "listen"]
    finally:
        for racer in racers:
            racer.communicate("end\n", PATIENT_S)


# -- TCP ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "192.168.1.1", "8.8.8.8", "localhost", "", "127.0.0.1 "]
)
def test_tcp_off_loopback_is_refused(host):
    refused(Code.BAD_SETTING, listen_tcp, host, 0)


def test_a_port_that_is_taken_or_none_is_refused():
    listener = listen_tcp("127.0.0.1", 0)
    try:
        refused(Code.BAD_SETTING, listen_tcp, "127.0.0.1", listener.socket.getsockname()[1])
        refused(Code.BAD_SETTING, listen_tcp, "127.0.0.1", 1 << 16)
    finally:
        listener.close()


def test_a_worker_serves_over_loopback(path):
    listener = listen_tcp("127.0.0.1", 0)
    worker = Worker(path, more=[listener])
    try:
        with Client.tcp(*listener.socket.getsockname(), PATIENT_S) as client:
            client.hello(4)
            client.open(1, key=1)
    finally:
        worker.close()


# -- who is at the other end -------------------------------------------------------------------

AS_NOBODY = """
import os, socket, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
end = socket.socket(socket.AF_UNIX)
end.settimeout(30)
try:
    end.connect(sys.argv[1])
except PermissionError:
    sys.stdout.write("not permitted")
    raise SystemExit
while data := end.recv(4096):
    sys.stdout.buffer.write(data)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become somebody else")
def test_another_user_is_kept_out_by_the_file_and_by_the_worker():
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        worker = Worker(Path(directory) / "worker.sock")
        try:
            given = [sys.executable, "-I", "-c", AS_NOBODY, str(worker.path)]
            assert subprocess.check_output(given, timeout=PATIENT_S) == b"not permitted"
            worker.path.chmod(0o666)
            found = subprocess.check_output(given, timeout=PATIENT_S)
            assert b'"PEER_USER"' in found
            assert f'"user {NOBODY}"'.encode() in found
            assert worker.server.counters.connections == 0
            assert worker.server.counters.refusals == {Code.PEER_USER: 1}
        finally:
            worker.close()


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become somebody else")
def test_a_client_does_not_talk_to_another_users_worker():
    program = (
        "import os, socket, sys\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "end = socket.socket(socket.AF_UNIX)\n"
        "end.bind(sys.argv[1]); end.listen()\n"
        "sys.stdout.write('listens\\n'); sys.stdout.flush()\n"
        "sys.stdin.readline()\n"
    )
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o777)
        path = Path(directory) / "worker.sock"
        given = [sys.executable, "-I", "-c", program, str(path)]
        other = subprocess.Popen(given, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            assert other.stdout.readline() == b"listens\n"
            refused(Code.PEER_USER, Client.unix, path)
        finally:
            other.communicate(b"end\n", PATIENT_S)


@contextlib.contextmanager
def no_descriptor_free():
    """This process can open nothing more."""
    limits, taken = resource.getrlimit(resource.RLIMIT_NOFILE), []
    highest = max(int(one) for one in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, limits[1]))
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for one in taken:
            os.close(one)


def test_whoever_comes_while_descriptors_are_short_is_let_in_later(worker, monkeypatch):
    """It is tried again and again, and said once."""
    monkeypatch.setattr("pp4.worker.front.server._PAUSE_S", 0.001)
    tried, listen = [], worker.server._listen
    monkeypatch.setattr(worker.server, "_listen", lambda one: (tried.append(one), listen(one)))
    with socket.socket(socket.AF_UNIX) as late:
        late.settimeout(PATIENT_S)
        with no_descriptor_free():
            late.connect(str(worker.path))
            worker.until(lambda: len(tried) >= 5)
        late.sendall(encode(Status(sequence=3)))
        (standing,) = answers(late, 1)
    assert (standing.sequence, standing.state) == (3, "serving")
    assert [event for event, _ in worker.events].count("accept failed") == 1
