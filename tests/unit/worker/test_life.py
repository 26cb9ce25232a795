"""A worker's life as a HOLD's step sees it: orders, signals, what its ranks have, how it ends."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pp4.clock import SystemClock
from pp4.config import INTERPRETED, child_environment
from pp4.transport.worker_socket import ask_status
from pp4.wire import Decoder, Request, encode
from pp4.wire.holds import Granted
from pp4.worker.client import Ask, Client
from tests.unit.processes import LONG
from tests.unit.worker.drafters import write_drafter

ROOT = Path(__file__).parents[3]


def granted():
    """The grant of a rehearsal on this machine."""
    return Granted(
        hold="00112233aabbccdd",
        fence=1,
        nonce="a nonce",
        exclusion="private",
        boot_id=Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        gpus=(),
        opened_at="2026-03-01T12:00:00Z",
        bound_s=LONG,
        ttl_s=LONG,
        deadline_boottime_ns=SystemClock().boottime_ns() + int(LONG * 1e9),
        transport="local",
        rehearsal=True,
        directory="/h",
        public="/p",
        work="/w",
        compiled="/k",
    ).model_dump(mode="json")


class Held:
    """A worker that a HOLD's step has started."""

    def __init__(self, directory):
        self.socket = directory / "s"
        settings = {
            "checkpoint": str(write_drafter(directory / "drafter")),
            "device": "reference",
            "batches": [1],
            "depths": [4],
            "slots": 2,
            "context": 64,
            "cache_mib": 0,
            "socket": str(self.socket),
            "tcp": {"port": 0},
            "state": str(directory / "state"),
            "compiled": str(directory / "compiled"),
            "permission": {"kind": "grant"},
        }
        argv = [sys.executable, "-P", "-m", "pp4.worker.serve", json.dumps(settings)]
        environment = child_environment({**INTERPRETED, "PYTHONPATH": str(ROOT)})
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, env=environment)
        self._decoder, self._answers = Decoder(), {}

    def say(self, *orders):
        self.process.stdin.write(b"".join(map(encode, orders)))
        self.process.stdin.flush()

    def answer(self, sequence):
        """Wait for an answer."""
        end, source = time.monotonic() + LONG, self.process.stdout.fileno()
        while sequence not in self._answers:
            assert select.select([source], [], [], end - time.monotonic())[0], "no answer"
            data = os.read(source, 1 << 16)
            assert data, "it has ended"
            self._answers.update((one.sequence, one) for one in self._decoder.feed(data))
        return self._answers[sequence]

    def close(self):
        self.process.kill()
        self.process.communicate(timeout=LONG)


def start(directory):
    """Start one, with another order right behind the first."""
    held = Held(directory)
    first = Request(sequence=1, verb="serve", arguments={"granted": granted()})
    held.say(first, Request(sequence=2, verb="settle"))
    return held


@pytest.fixture(scope="module")
def held(tmp_path_factory):
    made = start(tmp_path_factory.mktemp("held"))
    yield made
    made.close()


def test_an_order_that_came_with_the_first_is_answered(held):
    assert held.answer(1).facts["socket"] == str(held.socket)
    assert held.answer(2).facts["counters"]["blocks"] == 0


def test_a_rank_cannot_be_connected_to(held):
    held.answer(1)
    for pid in ask_status(held.socket).ranks:
        found = [os.readlink(one) for one in Path(f"/proc/{pid}/fd").iterdir()]
        assert not [one for one in found if one.startswith("socket:")]


def test_signals_of_a_terminal_are_for_the_owner(held):
    held.answer(1)
    for pid in ask_status(held.socket).ranks:
        os.kill(pid, signal.SIGINT)
        os.kill(pid, signal.SIGTERM)
    with Client.unix(held.socket, LONG) as client:
        client.hello(depth=4)
        client.open(1, key=1)
        assert len(client.draft(Ask(1, round=0, anchor=1)).tokens) == 4


def test_an_end_that_was_ordered_is_no_failure(tmp_path):
    held = start(tmp_path)
    try:
        held.answer(1)
        held.say(Request(sequence=3, verb="teardown"))
        assert held.answer(3).facts["dead"] == [True, True]
        assert held.process.wait(LONG) == 0
    finally:
        held.close()
