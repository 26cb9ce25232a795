"""A rank process: reads (operation, arguments) from its input, writes one answer for each."""

import os
import pickle
import sys
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "1"

import torch

from pp4.kernels import interpreting, pattern
from pp4.kernels.controls import build
from pp4.kernels.link import SharedMemoryLink

torch.set_num_threads(1)
interpreting.repeat_nothing()


class Rank:
    """What a rank holds between operations."""

    def __init__(self, rank, controls):
        self.rank = rank
        self.controls = Path(controls)

    def make(self, case, own, peer, bounds):
        """Create the own workspace and everything else that needs no peer."""
        self.link = SharedMemoryLink(
            Path(own), Path(peer), rank=self.rank, rows=case.batch, start=case.start, bounds=bounds
        )
        self.case = case
        self.kernel = build(case.control, self.controls)._kernel if case.control else None

    def connect(self):
        """Map the peer's workspace and load the inputs."""
        self.link.connect()
        self.block = self.case.block(self.link, self.kernel, self.rank)

    def launch(self, first, past):
        """Run some positions; -> (outputs, words)."""
        for index in range(first, past):
            self.block.launch(index)
        return self.block.outputs(), self.link.words()

    def pattern(self, way, numbers):
        """Take part in a data-pattern check, in Python or by the kernel."""
        take_part = {"python": pattern.run, "kernel": pattern.launched}[way]
        return take_part(self.link, limit_s=60, **numbers)

    def waits(self):
        """How long each exchange of the last launches waited, in polls."""
        return self.block.waits()

    def reload(self, requests, logits):
        """Give the same block new inputs, as a replay does; -> (outputs, words)."""
        self.block.load(requests, logits)
        self.block.poison()
        return self.launch(0, self.block.n_out)

    def close(self):
        """Remove the workspace."""
        self.link.close()


def main():
    # whatever a library prints must not end up between two answers
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    rank = Rank(int(sys.argv[1]), sys.argv[2])
    while True:
        try:
            operation, arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer = getattr(rank, operation)(*arguments), None
        except Exception as error:
            answer = None, f"{type(error).__name__}: {error}"
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    main()
