"""``pp4 worker serve`` as a service manager sees it: one process, ready and over."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest

from pp4.transport.worker_socket import ask_status
from pp4.wire import encode
from pp4.wire.frames import Request

SIZES = {
    "vocab": 96, "hidden": 32, "layers": 1, "heads": 2, "kv-heads": 1, "head-dim": 16,
    "intermediate": 32, "rank": 16, "features": 1, "positions": 128,
}  # fmt: skip
LIMIT_S = 120


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    path = tmp_path_factory.mktemp("drafters") / "drafter"
    sizes = [text for name, size in SIZES.items() for text in (f"--{name}", str(size))]
    argv = [sys.executable, "-m", "pp4.drafter.checkpoint.synthetic", str(path), *sizes]
    subprocess.run(argv, check=True, timeout=LIMIT_S)
    return path


class Manager:
    """Starts ``pp4 worker serve`` as systemd would, and listens."""

    def __init__(self, directory):
        self.directory = directory
        self.notices = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notices.settimeout(LIMIT_S)
        self.notices.bind(str(directory / "notify"))
        self.socket = directory / "s"
        self.process = None

    def start(self, checkpoint, *more, stdin=subprocess.DEVNULL, **environment):
        argv = [sys.executable, "-m", "pp4", "worker", "serve", str(checkpoint)]
        argv += ["--device", "reference", "--batches", "1", "--depths", "4", "--slots", "2"]
        argv += ["--context", "64", "--cache-mib", "0", "--socket", str(self.socket), *more]
        told = {"NOTIFY_SOCKET": str(self.directory / "notify"), "WATCHDOG_USEC": "500000"}
        self.process = subprocess.Popen(
            argv, stdin=stdin, stderr=subprocess.PIPE, env=os.environ | told | environment
        )

    def heard(self, word):
        """Wait for a notice with a word in it."""
        while word not in (text := self.notices.recv(4096).decode()):
            pass
        return text

    def end(self):
        """Wait for the end; -> exit code and the log."""
        _, err = self.process.communicate(timeout=LIMIT_S)
        return self.process.returncode, [json.loads(line) for line in err.splitlines()]

    def close(self):
        if self.process is not None:
            self.process.kill()
            self.process.communicate(timeout=LIMIT_S)
        self.notices.close()


@pytest.fixture
def manager(tmp_path):
    made = Manager(tmp_path)
    yield made
    made.close()


def test_a_service_from_ready_to_its_end(manager, checkpoint):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    manager.start(checkpoint, "--metrics-port", str(port), DSPARK_SAMPLED_TOP32="1")
    assert "STATUS=serving; switch on" in manager.heard("READY=1")
    manager.heard("WATCHDOG=1")
    standing = ask_status(manager.socket)
    assert (standing.state, standing.offer.sampled) == ("serving", True)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=LIMIT_S) as answer:
        assert 'pp4_worker_state{state="serving"} 1.0' in answer.read().decode()
    # the ranks' owner is the very process that was started
    for pid in standing.ranks:
        with open(f"/proc/{pid}/stat") as stat:
            assert int(stat.read().rpartition(")")[2].split()[1]) == manager.process.pid
    manager.process.send_signal(signal.SIGTERM)
    manager.heard("STOPPING=1")
    code, log = manager.end()
    assert code == 0
    assert not manager.socket.exists()
    assert not any(os.path.exists(f"/proc/{pid}") for pid in standing.ranks)
    events = [line["event"] for line in log]
    assert {"serving", "metrics", "torn_down"} <= set(events)
    assert "reference is no GPU" in log[events.index("serving")]["switch"]


def test_what_is_no_grant(manager, checkpoint):
    manager.start(checkpoint, "--grant", stdin=subprocess.PIPE)
    manager.process.stdin.write(encode(Request(sequence=1, verb="serve")))
    manager.process.stdin.flush()
    code, log = manager.end()
    assert (code, log[-1]["code"]) == (3, "BAD_FRAME")
