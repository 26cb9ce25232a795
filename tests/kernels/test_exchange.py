"""The exchange seen from one rank: the peer is a workspace that the test writes by hand."""

import dataclasses

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st

from pp4.kernels.device import exchange
from pp4.kernels.faults import Fault
from pp4.kernels.link import POISON, Bounds, SharedMemoryLink
from tests.kernels.cases import differences, from_patterns, normal, plain
from tests.kernels.pairs import Memory

SHORT = Bounds(first_polls=3, next_polls=3)
START = 9
VOCAB, SPLIT = 60, 35


def word(pattern, token):
    """Candidate word of a BF16 pattern and an id, as the exchange lays it out."""
    pattern = 0 if pattern == 0x8000 else pattern
    image = 0xFFFF - pattern if pattern >= 0x8000 else pattern | 0x8000
    return image << 32 | (token ^ 0xFFFFFFFF)


def message(row, first, past):
    """The 32 words that an honest peer sends for its shard."""
    patterns = (row.view(np.uint32) >> 16).tolist()
    finite = [token for token in range(first, past) if patterns[token] & 0x7FFF < 0x7F80]
    words = sorted((word(patterns[token], token) for token in finite), reverse=True)[:32]
    return words + [0] * (32 - len(words))


class OneSide:
    """Rank 0 with a peer that never launches."""

    def __init__(self, directory, case, bounds=SHORT, rank=0):
        files = [directory / str(number) for number in (0, 1)]
        self.rank = rank
        self.links = [
            SharedMemoryLink(
                files[number],
                files[1 - number],
                rank=number,
                rows=case.batch,
                start=case.start,
                bounds=bounds,
            )
            for number in (0, 1)
        ]
        for link in self.links:
            link.connect()
        self.link = self.links[rank]
        self.own, self.peer = (Memory(files[number], case.batch) for number in (rank, 1 - rank))
        self.block = case.block(self.link)

    def deliver(self, row, words, epoch):
        """What the peer would store for one row."""
        self.own.inbox[row, epoch & 1] = words
        self.own.flag[row, epoch & 1] = epoch

    def run(self):
        self.block.run()
        return self.block.outputs()

    def close(self):
        for link in self.links:
            link.close()


@pytest.fixture
def side(tmp_path):
    made = []

    def make(case, **more):
        directory = tmp_path / str(len(made))
        directory.mkdir()
        made.append(OneSide(directory, case, **more))
        return made[-1]

    yield make
    for one in made:
        one.close()


def case_of(rows=None, **more):
    rows = normal(1, 1, VOCAB) if rows is None else rows
    return plain(rows, split=SPLIT, tile=32, start=START, **more)


@pytest.mark.parametrize("start", [START, START + 1], ids=["slot 0", "slot 1"])
@pytest.mark.parametrize("rank", [0, 1])
def test_an_honest_message_completes_the_row(side, rank, start):
    case = dataclasses.replace(case_of(), start=start)
    epoch, slot = start + 1, (start + 1) & 1
    one = side(case, rank=rank)
    theirs, own = ((SPLIT, VOCAB), (0, SPLIT)) if rank == 0 else ((0, SPLIT), (SPLIT, VOCAB))
    one.deliver(0, message(case.logits[0, 0], *theirs), epoch)
    outputs = one.run()
    assert differences(outputs, case.expected()) == []
    assert outputs.stamp.tolist() == [[epoch]]
    # what crosses: 32 words, then the flag, then the acknowledgement, and nothing else
    assert one.peer.inbox[0, slot].tolist() == message(case.logits[0, 0], *own)
    assert (one.peer.inbox[0, 1 - slot] == POISON).all()
    assert one.peer.flag[0].tolist() == [epoch if place == slot else start for place in (0, 1)]
    assert one.peer.ack.tolist() == [epoch]
    assert not one.peer.error.any()
    assert one.link.words().epochs == (epoch,)


def test_a_peer_that_never_comes_is_a_timeout_on_both(side):
    one = side(case_of())
    outputs = one.run()
    assert outputs.error.tolist() == [[Fault.PEER_TIMEOUT]]
    assert outputs.stamp.tolist() == [[0]]
    assert one.link.words().own is Fault.PEER_TIMEOUT
    assert one.links[1].words().peer is Fault.PEER_TIMEOUT
    assert one.link.words().epochs == (START,)
    assert (one.peer.ack == START).all()


def with_nan():
    rows = normal(3, 1, VOCAB)
    rows[0, 4] = np.nan
    return case_of(rows)


def test_a_timeout_weighs_more_than_bad_logits(side):
    one = side(with_nan())
    assert one.run().error.tolist() == [[Fault.PEER_TIMEOUT]]
    assert one.links[1].words().peer is Fault.PEER_TIMEOUT


def test_an_exhausted_epoch_weighs_more_than_bad_logits(side):
    one = side(with_nan(), bounds=Bounds(epoch_limit=START))
    assert one.run().error.tolist() == [[Fault.EPOCH_EXHAUSTED]]


def test_a_late_message_after_the_error_changes_nothing(side):
    case = case_of()
    one = side(case)
    one.run()
    one.deliver(0, message(case.logits[0, 0], SPLIT, VOCAB), START + 1)
    sent = one.peer.inbox.copy()
    one.block.poison()
    outputs = one.run()
    assert outputs.error.tolist() == [[Fault.PEER_TIMEOUT]]
    assert outputs.token.tolist() == [[-1]]
    assert (one.peer.inbox == sent).all()


def test_a_peer_that_gave_up_is_not_waited_for(side):
    one = side(case_of(), bounds=Bounds())
    one.own.error[int(Fault.PEER_TIMEOUT)] = 1
    one.own.error[0] = int(Fault.PEER_TIMEOUT)
    outputs = one.run()
    assert outputs.error.tolist() == [[Fault.PEER_TIMEOUT]]
    assert (one.peer.inbox == POISON).all()
    assert (one.peer.flag == START).all()


def test_of_several_named_faults_the_gravest_counts(side):
    one = side(case_of(), bounds=Bounds())
    one.own.error[[int(Fault.EMPTY_ROW), int(Fault.PROTOCOL), int(Fault.BAD_LOGITS)]] = 1
    one.own.error[0] = int(Fault.EMPTY_ROW)  # the last one written
    assert one.run().error.tolist() == [[Fault.PROTOCOL]]
    assert one.link.words().peer is Fault.PROTOCOL


def test_an_exhausted_epoch_sends_nothing(side):
    one = side(case_of(), bounds=Bounds(epoch_limit=START))
    outputs = one.run()
    assert outputs.error.tolist() == [[Fault.EPOCH_EXHAUSTED]]
    assert (one.peer.inbox == POISON).all()
    assert (one.peer.flag == START).all()
    assert one.links[1].words().peer is Fault.EPOCH_EXHAUSTED


@pytest.mark.parametrize("ahead", [1, 2, 1 << 40])
def test_a_flag_from_another_epoch_is_no_answer(side, ahead):
    case = case_of()
    one = side(case)
    one.deliver(0, message(case.logits[0, 0], SPLIT, VOCAB), START + 1)
    one.own.flag[0, START + 1 & 1] = START + 1 + ahead
    outputs = one.run()
    assert outputs.error.tolist() == [[Fault.PROTOCOL]]
    assert one.links[1].words().peer is Fault.PROTOCOL


@pytest.mark.parametrize("behind", [1, START, START + 100])
def test_a_flag_from_an_earlier_epoch_is_waited_out(side, behind):
    case = case_of()
    one = side(case)
    one.deliver(0, message(case.logits[0, 0], SPLIT, VOCAB), START + 1)
    one.own.flag[0, START + 1 & 1] = START + 1 - behind
    assert one.run().error.tolist() == [[Fault.PEER_TIMEOUT]]


def test_an_acknowledgement_of_what_was_not_sent_is_a_protocol_error(side):
    one = side(case_of())
    one.own.ack[0] = START + 1
    assert one.run().error.tolist() == [[Fault.PROTOCOL]]
    assert (one.peer.inbox == POISON).all()


def test_a_slot_is_not_rewritten_before_its_message_is_acknowledged(side):
    case = case_of()
    one = side(case)
    one.own.ack[0] = START - 2
    one.deliver(0, message(case.logits[0, 0], SPLIT, VOCAB), START + 1)
    assert one.run().error.tolist() == [[Fault.PEER_TIMEOUT]]
    assert (one.peer.inbox == POISON).all()


WIDER = 80
IMPOSSIBLE = {
    "an id of the wrong shard": lambda m: [word(0x3F80, SPLIT - 1), *m[1:]],
    "an id past the end": lambda m: [word(0x7F7F, WIDER), *m[1:]],
    "a NaN": lambda m: [word(0x7FC0, SPLIT), *m[1:]],
    "+inf": lambda m: [word(0x7F80, SPLIT), *m[1:]],
    "-inf": lambda m: [*m[:-1], word(0xFF80, SPLIT)],
    "one twice": lambda m: [m[0], m[0], *m[2:]],
    "the first two swapped": lambda m: [m[1], m[0], *m[2:]],
    "the last two swapped": lambda m: [*m[:30], m[31], m[30]],
    "rising": lambda m: m[::-1],
    "a hole": lambda m: [*m[:5], 0, *m[6:]],
    "negative": lambda m: [*m[:-1], POISON],
    "poison": lambda m: [POISON] * 32,
    "one": lambda m: [1] * 32,
    "above every control word": lambda m: [0x10002 << 32, *m[1:]],
    "almost a control word": lambda m: [(0x10000 << 32) + 1, *m[1:]],
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_impossible_candidates_are_a_protocol_error(side, name):
    rows = normal(2, 1, WIDER)
    case = plain(rows, split=SPLIT, tile=64, start=START)
    one = side(case)
    honest = message(case.logits[0, 0], SPLIT, WIDER)
    assert 0 not in honest
    one.deliver(0, IMPOSSIBLE[name](honest), START + 1)
    outputs = one.run()
    assert outputs.error.tolist() == [[Fault.PROTOCOL]]
    assert outputs.token.tolist() == [[-1]]
    assert one.link.words().own is Fault.PROTOCOL
    assert one.links[1].words().peer is Fault.PROTOCOL
    # what was not consumed is not acknowledged
    assert one.peer.ack.tolist() == [START]


@given(st.integers(0, 2**32), st.integers(0, 25))
@settings(max_examples=12)
def test_every_honest_message_is_possible(tmp_path_factory, seed, finite):
    patterns = np.random.default_rng(seed).choice(
        [0, 0x8000, 0x3F80, 0xBF80, 0x0001, 0xFF7F], VOCAB
    )
    patterns[SPLIT + finite :] = 0xFF80
    case = case_of(from_patterns(patterns))
    one = OneSide(tmp_path_factory.mktemp("side"), case)
    one.deliver(0, message(case.logits[0, 0], SPLIT, VOCAB), START + 1)
    outputs = one.run()
    one.close()
    assert differences(outputs, case.expected()) == []


@pytest.mark.parametrize(
    ("top", "fault"),
    [(0x10000 << 32, Fault.BAD_LOGITS), (0x10001 << 32, Fault.PROTOCOL)],
)
def test_what_the_peer_found_in_its_shard_counts_here(side, top, fault):
    one = side(case_of())
    one.deliver(0, [top] * 32, START + 1)
    outputs = one.run()
    assert outputs.error.tolist() == [[fault]]
    # it was a message like any other: consumed and acknowledged
    assert one.peer.ack.tolist() == [START + 1]


def test_bad_logits_travel_above_the_candidates(side):
    case = with_nan()
    one = side(case)
    one.deliver(0, message(case.logits[0, 0], SPLIT, VOCAB), START + 1)
    assert one.run().error.tolist() == [[Fault.BAD_LOGITS]]
    finite = message(case.logits[0, 0], 0, SPLIT)
    assert one.peer.inbox[0, START + 1 & 1].tolist() == [0x10000 << 32, *finite[:31]]
    assert one.peer.flag[0, START + 1 & 1] == START + 1


@pytest.mark.parametrize("word", [0, 6, 7])
def test_error_words_that_name_no_fault_are_a_protocol_error(side, word):
    """The poll stops at the summary; where no fault is named, stopping must not read as ready."""
    case = case_of()
    one = side(case)
    # an honest-looking message lies in the slot, but its flag was never raised
    one.own.inbox[0, START + 1 & 1] = message(case.logits[0, 0], SPLIT, VOCAB)
    one.own.error[0] = 1
    one.own.error[word] = 1
    outputs = one.run()
    assert outputs.error.tolist() == [[Fault.PROTOCOL]]
    assert outputs.stamp.tolist() == [[0]]
    assert (one.peer.ack == START).all()


@pytest.mark.parametrize("word", [0, 6, 7])
def test_the_host_takes_words_without_a_name_for_a_protocol_error(side, word):
    one = side(case_of())
    one.own.error[word] = 1
    assert one.link.words().peer is Fault.PROTOCOL
    assert not one.link.words().clean


def test_an_exhausted_epoch_does_not_wait_for_a_dead_peer(side):
    """No acknowledgement will come any more, and none is needed to see that the range is over."""
    case = dataclasses.replace(case_of(), start=START)
    one = side(case, bounds=Bounds(epoch_limit=START))
    one.own.ack[0] = START - 5
    assert one.run().error.tolist() == [[Fault.EPOCH_EXHAUSTED]]


def test_a_row_spends_one_budget_however_often_it_waits():
    """What the first wait used up is gone for the second."""
    own_error, peer_error = (torch.zeros(8, dtype=torch.int64) for _ in range(2))
    flag = torch.zeros(1, dtype=torch.int64)
    left = torch.full((4,), -1, dtype=torch.int64)
    _two_waits[(1,)](flag, own_error, peer_error, left, 50)
    assert left.tolist() == [0, 50, 0, 0]


@triton.jit
def _two_waits(flag, own_error, peer_error, left, polls):
    _, rest, waited = exchange.wait(flag, 1, 1, own_error, peer_error, (0, polls), True)
    tl.store(left, rest)
    tl.store(left + 1, waited)
    _, rest, waited = exchange.wait(flag, 1, 1, own_error, peer_error, (0, rest), True)
    tl.store(left + 2, rest)
    tl.store(left + 3, waited)
