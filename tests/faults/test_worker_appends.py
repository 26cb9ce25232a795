"""Features that wait for a real worker's ranks: together they give the bits of each alone."""

import os
import signal
import threading

import numpy as np
import pytest

from pp4.errors import Code
from pp4.worker.client import Ask
from pp4.worker.step_client import StepClient
from tests.faults.worker_specs import features_of
from tests.faults.workers import BATCH, CONTEXT, SMALL, Worker
from tests.unit.processes import LONG, halt, within

REQUESTS = 2 * BATCH
BAD, FULL = 3, 5
"""Requests of which one part is refused: it is not finite, or beyond the context."""


@pytest.fixture(scope="module")
def worker(tmp_path_factory, drafter):
    made = Worker(tmp_path_factory.mktemp("appending"), drafter)
    yield made.serving()
    made.close()


@pytest.fixture
def engine(worker):
    with StepClient.unix(worker.socket, LONG) as client:
        client.hello(depth=5)
        yield client


class Waiting:
    """Features that are sent while a rank stands still, so that they wait together.

    Args:
        worker: theirs.
        engine: who sends.
        given: by request, the position of the first and the features.
    """

    def __init__(self, worker, engine, given):
        self._worker, self._pid = worker, worker.ranks[0]
        self.refusals = self.error = None
        before = self._came()
        halt(self._pid)
        self._thread = threading.Thread(target=self._send, args=(engine, given))
        self._thread.start()
        assert within(lambda: self._came() == before + len(given))

    def _came(self):
        """How many parts have come so far: those that the ranks were given, and those that wait."""
        counters = self._worker.status().counters
        return counters["append_parts"] + counters["features_waiting"]

    def _send(self, engine, given):
        try:
            self.refusals = engine.features_many(given)
        except Exception as error:
            self.error = error

    def end(self, number):
        """Send the rank a signal; -> what was refused, by request."""
        os.kill(self._pid, number)
        self._thread.join(LONG)
        assert not self._thread.is_alive()
        assert self.error is None
        return {one: error.refusal.code for one, error in self.refusals.items()}


def steps():
    """What each of three steps sends of each request."""
    count = np.random.default_rng(7)
    sizes = [[int(count.integers(1, 30)) for _ in range(REQUESTS)] for _ in range(3)]
    return [
        [
            features_of(100 * step + one, sizes[step][one], SMALL.feature_width)
            for one in range(REQUESTS)
        ]
        for step in range(3)
    ]


def drafts(engine, first):
    """A block of every request from a first, as bytes: what was drafted and from what."""
    asks = [Ask(first + one, round=4, anchor=one, temperature=0.7) for one in range(REQUESTS)]
    found = []
    for start in range(0, REQUESTS, BATCH):
        for ticket in engine.submit_many(asks[start : start + BATCH]):
            one = engine.collect(ticket)
            arrays = one.ids, one.q, one.tokens, one.confidence
            found.append((one.position, *(array.tobytes() for array in arrays)))
    return found


def test_features_that_travel_together_give_the_bits_of_single_ones(worker, engine):
    keys = {one: 5000 + one for one in range(REQUESTS)}
    assert engine.open_many(keys) == {}
    assert engine.open_many({REQUESTS + one: key for one, key in keys.items()}) == {}
    lengths = [0] * REQUESTS
    for step, sent in enumerate(steps()):
        given = {one: (lengths[one], bits) for one, bits in enumerate(sent)}
        if step == 1:
            undefined, other = sent[BAD].copy(), features_of(9, CONTEXT, SMALL.feature_width)
            undefined[-1, 2] = 0x7FC0
            given[BAD], given[FULL] = (lengths[BAD], undefined), (lengths[FULL], other)
        before = worker.status().counters
        refused = Waiting(worker, engine, given).end(signal.SIGCONT)
        assert refused == ({BAD: Code.BAD_INPUT, FULL: Code.CACHE_FULL} if step == 1 else {})
        after = worker.status().counters
        assert after["append_parts"] - before["append_parts"] == REQUESTS
        # what came first may have gone alone; all others were there when that was done
        assert 1 <= after["appends"] - before["appends"] <= 2
        for one, bits in enumerate(sent):
            if one in refused:
                continue
            lengths[one] += len(bits)
            # one at a time, and in two pieces
            engine.features(REQUESTS + one, bits[:1])
            if len(bits) > 1:
                engine.features(REQUESTS + one, bits[1:])
    found = drafts(engine, 0)
    assert found == drafts(engine, REQUESTS)
    assert [position for position, *_ in found] == [length + 1 for length in lengths]
    assert len(set(found)) == REQUESTS
    assert engine.close_many(range(2 * REQUESTS)) == {}


def test_a_rank_that_dies_with_features_waiting_is_the_same_refusal_for_each(worker, engine):
    assert engine.open_many({one: one for one in range(REQUESTS)}) == {}
    given = {one: (0, features_of(one, 2, SMALL.feature_width)) for one in range(REQUESTS)}
    with worker.client(depth=4) as other:
        other.open(1, key=1)
        refused = Waiting(worker, engine, given).end(signal.SIGKILL)
        assert refused == dict.fromkeys(range(REQUESTS), Code.RANK_DIED)
        standing = worker.until("failed")
        assert standing.refusal["code"] == Code.RANK_DIED
        assert standing.counters["refused_RANK_DIED"] == REQUESTS
        assert other.status().refusal == standing.refusal
    assert worker.end(20.0).code == 1
    assert within(lambda: worker.gone)
