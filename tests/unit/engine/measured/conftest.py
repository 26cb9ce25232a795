"""Two real workers of one pair, one for each switch, that start at once.

A test that kills one gets another after.
"""

import pytest

from tests.faults.workers import Worker
from tests.unit.engine.measured.arms import write_pair
from tests.unit.engine.served import CONTEXT


class Workers:
    """Workers by their switch.

    Args:
        directory: for all that they write.
    """

    def __init__(self, directory):
        self._directory, self._running, self._count = directory, {}, 0
        self.pair = write_pair(directory)
        for sampled in (True, False):
            self._start(sampled)

    def _start(self, sampled):
        self._count += 1
        self._running[sampled] = Worker(
            self._directory / f"worker{self._count}",
            self.pair["drafter"],
            sampled=sampled,
            batches=(4,),
            slots=8,
            context=CONTEXT,
            depths=(5,),
        )

    def of(self, sampled):
        """A worker that serves."""
        if self._running[sampled].process.poll() is not None:
            self._start(sampled)
        return self._running[sampled].serving()

    def close(self):
        for worker in self._running.values():
            worker.close()


@pytest.fixture(scope="session")
def workers(tmp_path_factory):
    """Workers of a small pair."""
    made = Workers(tmp_path_factory.mktemp("measured"))
    yield made
    made.close()
