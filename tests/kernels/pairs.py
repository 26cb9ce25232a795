"""Two rank processes under test, and the memory that they share as a third party sees it."""

import itertools
import pickle
import selectors
import subprocess
import sys
from pathlib import Path

import numpy as np

from pp4.kernels.link import Bounds
from tests.kernels.cases import POLLS

ROOT = Path(__file__).parents[2]
PATIENCE_S = 120
PATIENT = Bounds(first_polls=POLLS, next_polls=POLLS)


class Rank:
    """One child process; an operation is sent, its answer read later."""

    def __init__(self, rank, controls):
        self.rank = rank
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.kernels.ranks", str(rank), str(controls)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
        )

    def ask(self, operation, *arguments):
        pickle.dump((operation, arguments), self.process.stdin)
        self.process.stdin.flush()

    def answer(self):
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            assert selector.select(PATIENCE_S), f"rank {self.rank} does not answer"
        result, error = pickle.load(self.process.stdout)
        assert error is None, f"rank {self.rank}: {error}"
        return result

    def end(self):
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


class Pair:
    """Two ranks that run one case after another."""

    def __init__(self, directory):
        self.directory = directory
        self.numbers = itertools.count()
        self.ranks = [Rank(rank, directory / "controls") for rank in (0, 1)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for rank in self.ranks:
            rank.end()

    def both(self, operation, *arguments):
        """Ask both ranks at once; -> their answers."""
        for rank in self.ranks:
            rank.ask(operation, *arguments)
        return [rank.answer() for rank in self.ranks]

    def prepare(self, case, bounds=(PATIENT, PATIENT)):
        """Bring both ranks to the point where a launch may follow; -> their workspace files."""
        number = next(self.numbers)
        files = [self.directory / f"{number}-{rank}" for rank in (0, 1)]
        for rank, own, peer, bound in zip(self.ranks, files, reversed(files), bounds, strict=True):
            rank.ask("make", case, str(own), str(peer), bound)
        for rank in self.ranks:
            rank.answer()
        self.both("connect")
        return files

    def run(self, case, bounds=(PATIENT, PATIENT)):
        """Run every position of a case on both ranks; -> [(outputs, words)] by rank."""
        self.prepare(case, bounds)
        results = self.both("launch", 0, case.n_out)
        self.both("close")
        return results


class Memory:
    """The words of a workspace, by name; see the layout in ``device/exchange.py``."""

    def __init__(self, path, rows):
        words = np.memmap(path, dtype=np.int64, mode="r+")
        self.inbox = words[: rows * 64].reshape(rows, 2, 32)
        self.flag = words[rows * 64 : rows * 66].reshape(rows, 2)
        self.ack = words[rows * 66 : rows * 67]
        self.error = words[rows * 67 :]
        assert len(self.error) == 8
