"""A real worker: ``python -m pp4.worker.serve`` in a process of its own, asked over its socket."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

from pp4.config import INTERPRETED, ON_GPUS, SWITCHES, child_environment
from pp4.drafter.checkpoint import synthetic
from pp4.errors import RefusedError
from pp4.transport.worker_socket import ask_status
from pp4.worker.client import Client
from tests.unit.processes import LONG, within
from tests.unit.worker import drafters

ROOT = Path(__file__).parents[2]
# odd: one shard is longer than the other
SMALL = replace(drafters.SMALL, vocab=131, draft_vocab=131, mask_token=130, target_layers=(0, 1))
CONTEXT = 96
BATCH = 8
"""Rows of every batch: with one captured size, equal drafts have equal bits in any company."""
USUAL = {
    "device": "reference",
    "batches": (BATCH,),
    "slots": 128,
    "context": CONTEXT,
    "cache_mib": 0,
}


def write_checkpoint(path):
    """Write the small drafter that all workers of these tests serve; -> its directory."""
    synthetic.write(path, SMALL)
    return path


def _event(line):
    """A line of a log; one of a rank that says its last is no JSON."""
    if line.startswith("{"):
        return json.loads(line)
    return {"event": "said", "text": line}


@dataclass(frozen=True)
class Ended:
    """How a worker ended.

    Attributes:
        code: its exit code.
        seconds: from the request to end, or from the call that waited, to its end.
        log: its lines.
    """

    code: int
    seconds: float
    log: list

    def events(self, name):
        """Lines of one event."""
        return [line for line in self.log if line["event"] == name]


class Worker:
    """A worker from its start to its end.

    Args:
        directory: for its state, log and, unless told otherwise, its socket; made where it is not.
        checkpoint: of the drafter.
        sampled: whether the switch is on.
        socket: path of its socket.
        program: module that is run.
        settings: of :class:`pp4.wire.serving.Serve`, in the place of the usual ones.
    """

    def __init__(
        self,
        directory,
        checkpoint,
        *,
        sampled=True,
        socket=None,
        program="pp4.worker.serve",
        **settings,
    ):
        directory.mkdir(mode=0o700, exist_ok=True)
        self.socket, self._log = socket or directory / "s", directory / "log"
        told = {
            "checkpoint": str(checkpoint),
            "socket": str(self.socket),
            "state": str(directory / "state"),
            "compiled": os.environ.get("TEST_COMPILED", str(directory / "compiled")),
            **USUAL,
            **settings,
        }
        where = ON_GPUS if told["device"] == "gpu" else INTERPRETED
        changes = {**where, "PYTHONPATH": str(ROOT)}
        if sampled:
            changes[SWITCHES[0]] = "1"
        argv = [sys.executable, "-P", "-m", program, json.dumps(told)]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stderr=log, env=child_environment(changes)
            )
        self.ranks = ()

    @property
    def pid(self):
        return self.process.pid

    @property
    def log(self):
        """Its log so far, and what else it wrote."""
        whole, _, _ = self._log.read_text().rpartition("\n")
        return [_event(line) for line in whole.splitlines()]

    def status(self):
        """What STATUS says."""
        return ask_status(self.socket)

    def until(self, *states):
        """Wait until it is in one of some states, by STATUS; -> what that says."""
        found = []

        def there():
            if self.process.poll() is not None:
                raise AssertionError(f"it ended with {self.process.returncode}: {self.log}")
            with contextlib.suppress(RefusedError):
                # nobody listens there yet
                found.append(self.status())
            state = found[-1].state if found else None
            # what has failed does not come to anything else
            assert state != "failed" or "failed" in states, found[-1]
            return state in states

        assert within(there), found[-1:]
        self.ranks = found[-1].ranks
        return found[-1]

    def serving(self):
        """Wait until it serves; -> itself."""
        self.until("serving")
        return self

    def client(self, depth=None, limit_s=LONG):
        """A client, greeted where a depth is given."""
        client = Client.unix(self.socket, limit_s)
        if depth is not None:
            client.hello(depth=depth)
        return client

    @property
    def gone(self):
        """Whether the kernel lists neither rank any more, also not as a zombie."""
        return not any(Path(f"/proc/{pid}").exists() for pid in self.ranks)

    def signal(self, number):
        self.process.send_signal(number)

    def end(self, limit_s=LONG):
        """Ask it to end and wait for that."""
        self.signal(signal.SIGTERM)
        return self.ended(limit_s)

    def ended(self, limit_s=LONG):
        """Wait for its end."""
        began = time.monotonic()
        code = self.process.wait(limit_s)
        return Ended(code, time.monotonic() - began, self.log)

    def close(self):
        """Leave nothing of it, whatever state it is in; its ranks end with it."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(LONG)
