"""Two accounts of one host, each with a state directory of its own, exclude each other."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from pp4.clock import Deadline, SystemClock
from pp4.hold.upkeep import init_host
from pp4.transport.pipes import Pipes
from pp4.wire import Request
from tests.faults.windows import GPUS, PATIENCE_S, ROOT, asked, tombstone

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root starts what others own")

USERS = (64_001, 64_002)

# Everything is loaded first: the other account need not be able to read this installation.
AS_USER = """
import ctypes, os, sys
from pp4.hold import supervisor
from pp4.receipts.digests import installed_source
from pp4.receipts.canonical import dump
import pwd
installed_source()
dump({'a': 'b'})
user = int(sys.argv[1])
os.setgroups([])
os.setgid(user)
os.setuid(user)
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # its own /proc is its own again
sys.exit(supervisor.main())
"""


class User:
    """An account that asks for a HOLD of the same two names."""

    def __init__(self, place, user):
        self.user, self.state = user, place / f"state-{user}"
        if not self.state.exists():
            self.state.mkdir(0o700)
            os.chown(self.state, user, user)
        self.place = place
        self.process = subprocess.Popen(
            [sys.executable, "-c", AS_USER, str(user)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd="/",
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HOME": str(self.state)},
        )
        pipes = Pipes(self.process.stdout.fileno(), self.process.stdin.fileno())
        told = asked(place, state_dir=str(self.state), ttl_s=300.0)
        pipes.send(Request(sequence=1, verb="open", arguments=told.model_dump(mode="json")))
        self.reply = pipes.receive(Deadline.after(SystemClock(), PATIENCE_S))

    def end(self, number):
        self.process.send_signal(number)
        with self.process:
            return self.process.wait(PATIENCE_S)


@pytest.fixture
def place():
    # others have to be able to come here
    directory = Path(tempfile.mkdtemp(prefix="pp4-two-users-"))
    directory.chmod(0o755)
    init_host(directory / "host")
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def user(place):
    started = []

    def start(number):
        started.append(User(place, USERS[number]))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.end(signal.SIGKILL)
        one.process.stdin.close()
        one.process.stdout.close()


def test_who_comes_second_is_told_who_holds_and_is_granted_after_the_end(place, user):
    first = user(0)
    assert first.reply.facts["exclusion"] == "host"
    assert first.reply.facts["fence"] == 1
    second = user(1)
    assert second.reply.refusal["code"] == "HELD_BY"
    assert f"HOLD {first.reply.facts['hold']}, fence 1" in second.reply.refusal["found"]
    assert f"of user {USERS[0]}" in second.reply.refusal["found"]
    assert second.process.wait(PATIENCE_S) == 3
    # a loser stores nothing
    assert [one.name for one in (place / "host" / "holds").iterdir()] == [first.reply.facts["hold"]]
    first.end(signal.SIGTERM)
    assert tombstone(place, first.reply.facts["hold"])["why"] == "cancelled"
    third = user(1)
    assert third.reply.facts["fence"] == 2


def test_a_supervisor_of_another_user_that_was_killed_keeps_nobody_out(place, user):
    first = user(0)
    first.end(signal.SIGKILL)
    second = user(1)
    assert second.reply.facts["fence"] == 2
    # its tombstone is its own user's to write; the proof was made all the same
    assert tombstone(place, first.reply.facts["hold"]) is None
    second.end(signal.SIGTERM)
    third = user(0)
    assert third.reply.facts["fence"] == 3
    assert tombstone(place, first.reply.facts["hold"])["why"] == "abandoned"
    for gpu in GPUS:
        assert json.loads((place / "host" / "fence" / gpu).read_text())["fence"] == "3"
