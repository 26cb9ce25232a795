"""A worker's life as a HOLD's step sees it: orders, signals, what its ranks have, how it ends."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pp4.clock import SystemClock
from pp4.config import INTERPRETED, child_environment
from pp4.transport.worker_socket import ask_status
from pp4.wire import Decoder, Event, Request, encode
from pp4.wire.frozen import RANKS
from pp4.wire.holds import Granted
from pp4.worker.client import Ask, Client
from tests.unit.processes import LONG, running, within
from tests.unit.worker.drafters import write_drafter

ROOT = Path(__file__).parents[3]


def granted(seconds=LONG):
    """The grant of a rehearsal on this machine, which is over after some seconds."""
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
        deadline_boottime_ns=SystemClock().boottime_ns() + int(seconds * 1e9),
        transport="local",
        rehearsal=True,
        directory="/h",
        public="/p",
        work="/w",
        compiled="/k",
    ).model_dump(mode="json")


class Held:
    """A worker that a HOLD's step has started."""

    def __init__(self, directory, **more):
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
            **more,
        }
        argv = [sys.executable, "-P", "-m", "pp4.worker.serve", json.dumps(settings)]
        environment = child_environment({**INTERPRETED, "PYTHONPATH": str(ROOT)})
        pipe = subprocess.PIPE
        self._log = directory / "log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                argv, stdin=pipe, stdout=pipe, stderr=log, env=environment
            )
        self._decoder, self._answers = Decoder(), {}
        self.told = None

    @property
    def log(self):
        return [json.loads(line) for line in self._log.read_text().splitlines()]

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
            for one in self._decoder.feed(data):
                if isinstance(one, Event):
                    assert not self._answers, "the ranks are told of before anything else"
                    self.told = RANKS.fullmatch(one.name)
                else:
                    self._answers[one.sequence] = one
        return self._answers[sequence]

    def close(self):
        self.process.kill()
        self.process.wait(LONG)
        for stream in (self.process.stdin, self.process.stdout):
            stream.close()


def start(directory, seconds=LONG, **more):
    """Start one, with another order right behind the first."""
    held = Held(directory, **more)
    first = Request(sequence=1, verb="serve", arguments={"granted": granted(seconds)})
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


def test_the_ranks_are_told_of_before_the_worker_serves(held):
    held.answer(1)
    assert tuple(map(int, held.told.groups())) == ask_status(held.socket).ranks


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


def children(pid):
    """Processes that a process has started and that have not ended."""
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def forked(held):
    """Wait for both ranks, or for the end of their owner; -> the process ids of those seen."""
    found = []

    def there():
        if held.process.poll() is not None:
            return True
        found[:] = children(held.process.pid)
        return len(found) == 2

    assert within(there)
    return found


@pytest.mark.parametrize("serving", [False, True])
def test_a_step_that_is_gone_takes_its_worker_with_it(tmp_path, serving):
    """However it ended: the kernel closes the worker's input, also while that starts."""
    held = start(tmp_path)
    try:
        ranks = forked(held)
        assert len(ranks) == 2
        if serving:
            held.answer(2)
        held.process.stdin.close()
        assert held.process.wait(LONG) == 0
        assert not any(running(pid) for pid in ranks)
        assert not held.socket.exists()
    finally:
        held.close()


def test_a_worker_ends_with_its_hold_though_nobody_says_so(tmp_path):
    began = time.monotonic()
    held = start(tmp_path, seconds=4)
    try:
        # on a machine that is slow enough it is over before there are two
        ranks = forked(held)
        # 5: it did not even come to serve within that time, 3: not even to ask for leave
        assert held.process.wait(LONG) in (0, 3, 5)
        assert time.monotonic() - began >= 4
        assert not any(running(pid) for pid in ranks)
    finally:
        held.close()


def test_a_worker_that_refuses_to_start_has_served_nobody(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        held = start(tmp_path, metrics_port=taken.getsockname()[1])
        try:
            assert held.answer(1).refusal["code"] == "BAD_SETTING"
            assert held.process.wait(LONG) == 3
        finally:
            held.close()
    states = [line["state"] for line in held.log if line["event"] == "state"]
    assert states == ["primed", "failed", "torn down"]
