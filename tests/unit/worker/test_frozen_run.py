"""The frozen inputs on their way: what a worker is asked, in which order, what is kept of it."""

import hashlib
import struct
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from pp4.clock import Deadline, ManualClock, SystemClock
from pp4.errors import Code, Refusal, RefusedError, TimedOutError, WrongError
from pp4.wire.offers import Offer
from pp4.worker.frozen_inputs import Sizes, input_set_sha256, scripts
from pp4.worker.frozen_run import block_digest, run
from pp4.worker.proposals import Proposal

SIZES = Sizes(vocab=259, feature_width=8, block=5)


def offer(**changes):
    given = {
        "definition": "d",
        "definition_sha256": "d" * 64,
        "tau": "0.7",
        "candidates": 32,
        "vocab": 259,
        "draft_vocab": 259,
        "bounds": ((0, 130), (130, 259)),
        "block": 5,
        "depths": (4, 5),
        "feature_width": 8,
        "context": 32,
        "slots": 3,
        "batches": (3,),
        "sampled": True,
        "device": "double",
        "devices": ("double-0", "double-1"),
        **changes,
    }
    return Offer(**given)


@dataclass
class Double:
    """A worker in this process, whose proposals follow from its key, its features and the question.

    Attributes:
        calls: everything that it was asked, in order, by depth.
        spoil: changes a proposal on its way.
    """

    offers: list = field(default_factory=lambda: [offer(), offer()])
    calls: list = field(default_factory=list)
    spoil: object = None

    @contextmanager
    def connect(self, depth, deadline):
        """A connection."""
        connection = Connection(self, depth, self.offers.pop(0))
        yield connection
        assert connection.live == {}, "requests that were left open"
        self.calls.append(("disconnect", depth))


class Connection:
    """One connection to it."""

    def __init__(self, worker, depth, told):
        self.worker, self.depth, self.offer, self.live = worker, depth, told, {}

    def open(self, request, key):
        assert request not in self.live
        self.live[request] = [key, b""]
        self.worker.calls.append(("open", self.depth, request, key))

    def append(self, request, first, features):
        assert len(self.live[request][1]) == 2 * 8 * first
        self.live[request][1] += features
        self.worker.calls.append(("append", self.depth, request, first, len(features)))

    def draft(self, asked):
        self.worker.calls.append(("draft", self.depth, tuple(asked.items())))
        return [self._proposal(request, one) for request, one in asked.items()]

    def _proposal(self, request, asked):
        key, features = self.live[request]
        assert asked.position == len(features) // 16 + 1
        text = f"{key} {asked} {self.depth} ".encode() + features
        seed = int.from_bytes(hashlib.sha256(text).digest()[:8], "big")
        rng = np.random.default_rng(seed)
        q = np.zeros((self.depth, 32), np.float32)
        if asked.sampled:
            q[:, :4] = (0.5, 0.25, 0.125, 0.125)
        proposal = Proposal(
            request=request,
            generation=0,
            slot=0,
            round=asked.round,
            position=asked.position,
            mode="sampled" if asked.sampled else "greedy",
            ids=rng.integers(259, size=(self.depth, 32), dtype=np.int32),
            q=q,
            tokens=rng.integers(259, size=self.depth, dtype=np.int32),
            confidence=rng.random(self.depth, np.float32),
        )
        return self.worker.spoil(proposal) if self.worker.spoil else proposal

    def close(self, request):
        del self.live[request]
        self.worker.calls.append(("close", self.depth, request))


def within(seconds=60.0):
    return Deadline.after(SystemClock(), seconds)


def facts(**how):
    return run(Double(**how).connect, "small", within())


def test_everything_of_the_set_is_asked_in_its_order_and_nothing_else():
    worker = Double()
    run(worker.connect, "small", within())
    wanted = []
    for depth in (4, 5):
        for script in scripts("small", SIZES):
            if script.n_out != depth:
                continue
            wanted += [("open", depth, row, key) for row, key in enumerate(script.keys)]
            for turn in script.turns:
                wanted += [
                    ("append", depth, piece.row, piece.first, 16 * piece.tokens)
                    for piece in turn.pieces
                ]
                wanted.append(("draft", depth, tuple(enumerate(turn.rows))))
            wanted += [("close", depth, row) for row in range(script.batch)]
        wanted.append(("disconnect", depth))
    assert worker.calls == wanted


def test_the_facts_are_those_of_the_offer_the_set_and_the_replies():
    found = facts()
    assert found.input_set_sha256 == input_set_sha256("small", SIZES)
    assert (found.device, found.devices) == ("double", ("double-0", "double-1"))
    assert (found.sampled, found.batches, found.query_block) == (True, (3,), 5)
    assert [one.key for one in found.outputs] == [(1, 5, 4), (1, 5, 5), (3, 5, 4), (3, 5, 5)]
    assert [len(one.blocks) for one in found.outputs] == [2, 2, 2, 2]
    assert (found.asked_sampled, found.asked_greedy) == (6, 10)
    assert (found.with_q, found.without_q) == (6, 10)
    assert found.elapsed_ns > 0


def test_the_same_worker_gives_the_same_digests_and_another_one_others():
    again, other = facts().outputs, facts(offers=[offer(vocab=258), offer(vocab=258)]).outputs
    assert facts().outputs == again
    assert not {b for one in again for b in one.blocks} & {b for one in other for b in one.blocks}


def rows():
    """Two rows of a block of two positions."""
    return [
        Proposal(
            request=row,
            generation=0,
            slot=0,
            round=1,
            position=1,
            mode="sampled",
            ids=np.arange(64, dtype=np.int32).reshape(2, 32) + row,
            q=np.full((2, 32), 1 / 32, np.float32),
            tokens=np.array([5, 6 + row], np.int32),
            confidence=np.array([0.5, 0.25], np.float32),
        )
        for row in range(2)
    ]


def test_a_digest_is_over_little_endian_bytes_of_each_member_of_each_row():
    """Worked out by hand, so that archived digests mean the same for ever."""
    raw = b""
    for row in range(2):
        raw += struct.pack("<64i", *(value + row for value in range(64)))
        raw += struct.pack("<64f", *[1 / 32] * 64)
        raw += struct.pack("<2i", 5, 6 + row)
        raw += struct.pack("<2f", 0.5, 0.25)
    assert block_digest(rows()) == hashlib.sha256(raw).hexdigest()


@pytest.mark.parametrize("member", ["ids", "q", "tokens", "confidence"])
@pytest.mark.parametrize("row", [0, 1])
def test_one_value_of_any_member_of_any_row_changes_it(member, row):
    changed = rows()
    getattr(changed[row], member).flat[-1] += 1
    assert block_digest(changed) != block_digest(rows())
    assert block_digest(rows()[::-1]) != block_digest(rows())


def replaced(**changes):
    return lambda one: replace(one, **changes)


SPOILT = {
    "nothing is drawn": (replaced(q=np.zeros((4, 32), np.float32)), 0, 10),
    "q of a greedy row": (replaced(q=np.full((4, 32), 1 / 32, np.float32)), 6, 0),
    "q that does not add up": (replaced(q=np.full((4, 32), 1 / 31, np.float32)), 0, 0),
    "everything is greedy": (replaced(mode="greedy"), 0, 10),
    "everything is drawn": (replaced(mode="sampled"), 6, 0),
}


@pytest.mark.parametrize("name", SPOILT)
def test_rows_are_counted_by_what_came_and_not_by_what_was_asked(name):
    spoil, with_q, without_q = SPOILT[name]
    found = facts(spoil=spoil)
    assert (found.asked_sampled, found.asked_greedy) == (6, 10)
    assert (found.with_q, found.without_q) == (with_q, without_q)


def test_two_workers_on_one_socket_are_refused():
    with pytest.raises(WrongError) as caught:
        facts(offers=[offer(), offer(slots=4)])
    assert caught.value.refusal.code is Code.SUBJECT_MISMATCH


def test_a_refusal_of_the_worker_ends_the_run():
    def refuse(_):
        raise RefusedError(Refusal(Code.CACHE_FULL, "a", "b", "c"))

    with pytest.raises(RefusedError):
        facts(spoil=refuse)


def test_a_run_ends_at_its_deadline():
    clock = ManualClock()
    deadline = Deadline.after(clock, 5.0)

    def late(proposal):
        clock.advance(1.0)
        return proposal

    worker = Double(spoil=late)
    with pytest.raises(TimedOutError) as caught:
        run(worker.connect, "small", deadline)
    assert caught.value.refusal.code is Code.STEP_TIMEOUT
    assert sum(1 for name, *_ in worker.calls if name == "draft") <= 5
