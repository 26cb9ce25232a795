"""A real owner process with real ranks, asked over its own frames and nothing else."""

import os
import sys
from pathlib import Path

from pp4.clock import Deadline, SystemClock
from pp4.transport.local import LocalTransport
from pp4.wire import Request

ROOT = Path(__file__).parents[3]
LONG = 120.0
SHAPE = {"vocab": 67, "split": 35, "tile": 32, "rank_dim": 8}
"""Two tiles a shard, both with a rest: every border is inside a row."""
OTHER = {**SHAPE, "tile": 64}
PATIENT = {"first_polls": 1_000_000, "next_polls": 1_000_000}
HASTY = {"first_polls": 300, "next_polls": 300}
COMPILED = Path(os.environ["TEST_COMPILED"])
"""What owners compile, they compile once for all workers of a test run."""
ENVIRONMENT = {
    "PYTHONPATH": str(ROOT),
    "TRITON_INTERPRET": "1",
    "TRITON_DISABLE_LINE_INFO": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


def case(batch=1, n_out=2, seed=5, **more):
    """Inputs of a block."""
    modes = [1] * batch
    return {"batch": batch, "n_out": n_out, "seed": seed, "modes": modes, **more}


class Asker:
    """Asks one owner; keeps what it learned about the running pair."""

    def __init__(self, directory, module="pp4.worker.owner", compiled=COMPILED, seats=()):
        self.directory = directory / "of-the-owner"
        self.directory.mkdir()
        self.channel = LocalTransport().start(
            [sys.executable, "-P", "-m", module, str(self.directory), str(compiled), *seats],
            environment={**os.environ, **ENVIRONMENT},
            directory=directory,
            label="owner",
        )
        self.sequence = 0
        self.pids = ()
        self.running = False

    def reply(self, verb, **arguments):
        """Ask one verb; -> the whole reply."""
        self.sequence += 1
        deadline = Deadline.after(SystemClock(), LONG)
        request = Request(sequence=self.sequence, verb=verb, arguments=arguments)
        self.channel.send(request, deadline)
        reply = self.channel.receive(deadline)
        assert reply.sequence == self.sequence
        return reply

    def ask(self, verb, **arguments):
        """Ask one verb; -> facts."""
        reply = self.reply(verb, **arguments)
        assert reply.facts is not None, reply.refusal
        return reply.facts

    def refused(self, verb, **arguments):
        """Ask one verb that has to be refused; -> the code."""
        reply = self.reply(verb, **arguments)
        assert reply.facts is None, reply.facts
        assert set(reply.refusal) >= {"code", "where", "expected", "found", "left", "next"}
        return reply.refusal["code"]

    def start(self):
        """Start a pair."""
        self.teardown()
        ranks = self.ask("start")["ranks"]
        self.running = True
        self.pids = tuple(rank["facts"]["pid"] for rank in ranks)
        return [rank["facts"] for rank in ranks]

    def prime(self, shape=SHAPE, **more):
        """Prime and seal both ranks, with what an earlier pair compiled where there is such."""
        return self.ask("prime", shape=shape, recorded=True, **more)

    def link(self, waits=PATIENT, rows=3, second=None):
        """Make a rendezvous; -> the epoch before the first."""
        given = [waits, second or waits]
        return self.ask("link", nonce="n", fence=1, rows=rows, waits=given)["start"]

    def fresh(self, waits=PATIENT, *, controls=(), **more):
        """Start, prime and link a pair."""
        self.start()
        self.prime(controls=controls)
        return self.link(waits, **more)

    def both(self, verb, first=None, second=None):
        """Ask both ranks a verb of theirs; -> (facts or code) of each."""
        first = first or {}
        given = [first, first if second is None else second]
        ranks = self.ask("both", verb_of_rank=verb, arguments=given)["ranks"]
        return [
            rank["refusal"]["code"] if rank["facts"] is None else rank["facts"] for rank in ranks
        ]

    def one(self, rank, verb, arguments=None):
        """Ask one rank a verb of its own; -> facts or code."""
        found = self.ask("one", rank=rank, verb_of_rank=verb, arguments=arguments or {})
        return found["refusal"]["code"] if found["facts"] is None else found["facts"]

    def block(self, given=None, **how):
        """Run one block."""
        return self.ask("block", case=given or case(), **how)

    def teardown(self):
        """End the pair, if there is one; -> what the owner says about it."""
        if not self.running:
            return None
        self.running = False
        return self.ask("teardown")

    def close(self):
        """End the owner."""
        return self.channel.stop(10.0)
