"""A worker process for an engine: the exact reference in the place of the kernel, few tokens."""

from dataclasses import replace

from pp4.drafter.checkpoint import synthetic
from pp4.engine.adapters.handshake import Wanted
from pp4.engine.drafts import Drafts, Patience
from tests.faults.workers import Worker
from tests.unit.engine.doubles import TableTarget
from tests.unit.engine.target import checkpoints
from tests.unit.processes import LONG

VOCAB = 12
TARGET = replace(checkpoints.SMALL, vocab=VOCAB, max_positions=512)
"""A target that the drafter goes with, for the tests that have a real one."""
DRAFTER = checkpoints.drafter_of(TARGET)
WIDTH = DRAFTER.feature_width
CONTEXT = 64
DEPTH = 5
PATIENT = Patience(draft_s=LONG, exchange_s=LONG, retry_steps=3)
"""Only a hang takes as long."""


def table(**more):
    """A target that the worker's drafter fits."""
    return TableTarget(VOCAB, WIDTH, **{"context": CONTEXT, **more})


def drafts_of(path, target, patience=PATIENT, sampled=False):
    """Drafts of a worker for a target."""
    wanted = Wanted.of(vocab=target.vocab, block=DRAFTER.block, depth=DEPTH, sampled=sampled)
    return Drafts(path, target, wanted, patience)


class Served:
    """A worker from its start to its end, and perhaps the next on its socket.

    Args:
        directory: for all that it writes.
    """

    def __init__(self, directory):
        self._drafter, self.worker = directory / "drafter", None
        self.socket = directory / "s"
        synthetic.write(self._drafter, DRAFTER)
        self.start(directory / "worker")

    def start(self, directory):
        """Start a worker, whatever became of the last, and wait until it serves; -> it."""
        self.close()
        given = {"batches": (4, 32), "slots": 64, "context": CONTEXT}
        self.worker = Worker(directory, self._drafter, socket=self.socket, **given)
        try:
            return self.worker.serving()
        except BaseException:
            self.close()
            raise

    def drafts(self, target, patience=PATIENT, **more):
        """Drafts of it for a target."""
        return drafts_of(self.socket, target, patience, **more)

    def close(self):
        if self.worker is not None:
            self.worker.close()
