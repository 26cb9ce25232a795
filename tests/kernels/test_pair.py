"""Two rank processes equal each other, the solo kernel and the reference."""

import dataclasses
import signal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pp4.kernels.block import Request
from pp4.kernels.faults import Fault
from pp4.kernels.link import Bounds
from pp4.kernels.sampled_fused import GREEDY, INACTIVE, SAMPLED
from tests.kernels.cases import (
    POLLS,
    check,
    differences,
    from_patterns,
    normal,
    plain,
    random_case,
    solo,
)
from tests.kernels.pairs import PATIENT, Memory, Pair

IMPATIENT = Bounds(first_polls=20, next_polls=20)
EXHAUSTED = Bounds(first_polls=POLLS, next_polls=POLLS, epoch_limit=2)
"""With a start of 1: one good position."""


def agree(pair, case):
    """Run a case on the pair and solo; everything equals the reference."""
    (first, words), (second, other) = pair.run(case)
    for outputs in (first, second):
        check(case, outputs)
    assert first.stamp.tolist() == second.stamp.tolist()
    assert words == other
    assert words.clean
    assert differences(solo(case)[1], first) == []


def settled(pair, case, results):
    """Outputs of each rank, and its words as they are once both have ended.

    A rank that found a fault waits for nobody: it may be through before its peer has said anything.
    """
    words = [after for _, after in pair.both("launch", case.n_out, case.n_out)]
    return [(outputs, after) for (outputs, _), after in zip(results, words, strict=True)]


def run_to_the_end(pair, case, bounds=(PATIENT, PATIENT)):
    """Run every position of a case on both ranks; -> as :func:`settled`."""
    pair.prepare(case, bounds)
    results = settled(pair, case, pair.both("launch", 0, case.n_out))
    pair.both("close")
    return results


@pytest.mark.parametrize("depth", [1, 4, 5])
def test_chained_positions(pair, depth):
    # slots are reused from the third position on
    agree(pair, random_case(depth, batch=2, n_out=depth, cached=range(0, 101, 2), start=2**20 - 1))


@pytest.mark.parametrize("batch", [1, 3, 8])
def test_batches(pair, batch):
    agree(pair, random_case(batch, vocab=50, split=20, batch=batch, n_out=2))


def test_mixed_modes_with_poisoned_padding(pair):
    case = random_case(30, batch=4)
    modes = (INACTIVE, SAMPLED, GREEDY, INACTIVE)
    requests = [
        dataclasses.replace(request, mode=mode)
        for request, mode in zip(case.requests, modes, strict=True)
    ]
    logits = case.logits.copy()
    logits[0], logits[3] = np.nan, np.inf
    agree(pair, dataclasses.replace(case, requests=requests, logits=logits))


def test_a_reduced_vocabulary_with_an_uneven_split(pair):
    case = random_case(31, vocab=70, split=69, batch=2)
    geometry = dataclasses.replace(case.geometry, mapped=True)
    emitted = range(10, 150, 2)
    requests = [Request(key=2**64 - 1, anchor=159), Request(key=1, anchor=0)]
    agree(
        pair,
        dataclasses.replace(
            case, geometry=geometry, w1=normal(1, 160, 8), token_map=emitted, requests=requests
        ),
    )


@given(
    st.lists(
        st.integers(0, 0xFFFF).filter(lambda p: (p & 0x7FFF) < 0x7F80)
        | st.sampled_from([0xFF80, 0, 0x8000, 0x7F7F]),
        min_size=1,
        max_size=4,
    ),
    st.integers(33, 120),
    st.integers(1, 1000),
    st.integers(0, 2**32),
)
@settings(max_examples=10)
def test_any_row(pair, patterns, vocab, split, seed):
    row = from_patterns(np.random.default_rng(seed).choice(patterns, vocab))
    row[seed % vocab] = 0
    requests = [Request(key=seed, position=seed % 101, round=1)]
    agree(pair, plain(row, split=split % (vocab - 1) + 1, tile=32, requests=requests, start=5))


def test_changed_inputs_in_the_same_buffers(pair):
    first, second = random_case(32, batch=2), random_case(33, batch=2)
    pair.prepare(first)
    pair.both("launch", 0, first.n_out)
    results = pair.both("reload", second.requests, second.logits)
    pair.both("close")
    changed = dataclasses.replace(first, requests=second.requests, logits=second.logits)
    for outputs, words in results:
        assert differences(outputs, changed.expected()) == []
        assert outputs.stamp.tolist() == [[4, 5], [4, 5]]
        assert words.clean


@pytest.mark.parametrize("first", [0, 1])
def test_either_rank_may_be_launched_first(pair, first):
    case = random_case(34, batch=1, n_out=1)
    files = pair.prepare(case)
    early, late = pair.ranks[first], pair.ranks[1 - first]
    early.ask("launch", 0, 1)
    seen = Memory(files[1 - first], case.batch)
    wait_until(lambda: case.start + 1 in seen.flag)  # the early one has sent and now waits
    late.ask("launch", 0, 1)
    for rank in (early, late):
        check(case, rank.answer()[0])
    pair.both("close")


def wait_until(condition, rounds=20_000_000):
    """Poll shared memory; the number of rounds bounds the wait."""
    for _ in range(rounds):
        if condition():
            return
    raise AssertionError("the other process never came to this point")


def broken(seed, *, nan_in=(), masked=(), n_out=2):
    """One row whose position 0 has NaN or -inf in some shards."""
    case = random_case(seed, batch=1, n_out=n_out)
    logits = case.logits.copy()
    for shard, (first, past) in enumerate(case.geometry.bounds):
        if shard in masked:
            logits[0, 0, first:past] = -np.inf
        if shard in nan_in:
            logits[0, 0, past - 1] = np.nan
    return dataclasses.replace(case, logits=logits)


FAULTS = {
    "NaN on rank 0": (broken(40, nan_in=[0]), Fault.BAD_LOGITS),
    "NaN on rank 1": (broken(41, nan_in=[1]), Fault.BAD_LOGITS),
    "NaN on both": (broken(42, nan_in=[0, 1]), Fault.BAD_LOGITS),
    "nothing finite": (broken(43, masked=[0, 1]), Fault.EMPTY_ROW),
    "NaN beside nothing finite": (broken(44, masked=[0, 1], nan_in=[1]), Fault.BAD_LOGITS),
    "a previous token out of range on rank 1": (
        dataclasses.replace(random_case(45, batch=1), first_tokens={1: -1}),
        Fault.PROTOCOL,
    ),
    "out of range on rank 0, NaN on rank 1": (
        dataclasses.replace(broken(46, nan_in=[1]), first_tokens={0: 101}),
        Fault.PROTOCOL,
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_both_ranks_name_the_same_fault_and_keep_it(pair, name):
    case, fault = FAULTS[name]
    for outputs, words in run_to_the_end(pair, case):
        assert outputs.error.tolist() == [[fault, fault]]
        assert outputs.token.tolist() == [[-1, -1]]
        assert outputs.stamp.tolist() == [[0, 0]]
        assert not outputs.q.any()
        assert (outputs.ids == -1).all()
        assert (words.own, words.peer) == (fault, fault)


def test_one_shard_without_a_finite_value_is_legal(pair):
    agree(pair, broken(47, masked=[0]))
    agree(pair, broken(48, masked=[1]))


@pytest.mark.parametrize("bounds", [(EXHAUSTED, EXHAUSTED), (EXHAUSTED, PATIENT)])
def test_an_exhausted_epoch_reaches_both_ranks(pair, bounds):
    case = random_case(49, batch=1, n_out=3)
    pair.prepare(case, bounds)
    # apart from the rest: a rank that is exhausted waits for nobody, and its word would reach a
    # peer that has not yet looked at the message of the good position
    pair.both("launch", 0, 1)
    results = settled(pair, case, pair.both("launch", 1, case.n_out))
    pair.both("close")
    for outputs, words in results:
        assert outputs.error.tolist() == [[0] + [Fault.EPOCH_EXHAUSTED] * 2]
        assert (words.own, words.peer) == (Fault.EPOCH_EXHAUSTED, Fault.EPOCH_EXHAUSTED)
        assert words.epochs == (2,)


@pytest.mark.parametrize("first", [0, 1])
def test_an_exhausted_rank_waits_for_nobody_and_its_peer_finds_the_word(pair, first):
    case = random_case(49, batch=1, n_out=3)
    pair.prepare(case, (EXHAUSTED, EXHAUSTED))
    pair.both("launch", 0, 1)
    early, late = pair.ranks[first], pair.ranks[1 - first]
    early.ask("launch", 1, case.n_out)
    outputs, words = early.answer()
    # alone it knows what it found itself and has heard of nothing
    assert outputs.error.tolist() == [[0] + [Fault.EPOCH_EXHAUSTED] * 2]
    assert (words.own, words.peer) == (Fault.EPOCH_EXHAUSTED, Fault.NONE)
    assert words.epochs == (2,)
    late.ask("launch", 1, case.n_out)
    outputs, words = late.answer()
    assert outputs.error.tolist() == [[0] + [Fault.EPOCH_EXHAUSTED] * 2]
    assert (words.own, words.peer) == (Fault.EPOCH_EXHAUSTED, Fault.EPOCH_EXHAUSTED)
    early.ask("launch", case.n_out, case.n_out)
    assert early.answer()[1].peer is Fault.EPOCH_EXHAUSTED
    pair.both("close")


def test_a_word_that_comes_with_a_message_keeps_the_message_unread(pair):
    """The peer sent position 0 and ran out in position 1 before this rank looked."""
    case = random_case(49, batch=1, n_out=2)
    files = pair.prepare(case, (EXHAUSTED, PATIENT))
    early, late = pair.ranks
    early.ask("launch", 0, case.n_out)
    seen = Memory(files[1], 1)
    wait_until(lambda: case.start + 1 in seen.flag)
    # what the exhausted rank will have written by then
    seen.error[Fault.EPOCH_EXHAUSTED] = 1
    seen.error[0] = Fault.EPOCH_EXHAUSTED
    late.ask("launch", 0, case.n_out)
    for rank in (late, early):
        outputs, _ = rank.answer()
        assert outputs.error.tolist() == [[Fault.EPOCH_EXHAUSTED] * 2]
        assert outputs.stamp.tolist() == [[0, 0]]
    pair.both("close")


def test_a_foreign_acknowledgement_on_one_rank_reaches_the_other(pair):
    case = random_case(50, batch=1, n_out=2)
    files = pair.prepare(case)
    Memory(files[0], 1).ack[0] = case.start + 7
    results = settled(pair, case, pair.both("launch", 0, 2))
    pair.both("close")
    for outputs, words in results:
        assert outputs.error.tolist() == [[Fault.PROTOCOL, Fault.PROTOCOL]]
        assert (words.own, words.peer) == (Fault.PROTOCOL, Fault.PROTOCOL)


def test_a_peer_that_comes_too_late_finds_the_error(pair):
    case = random_case(51, batch=1, n_out=2)
    pair.prepare(case, (IMPATIENT, PATIENT))
    results = []
    for rank in pair.ranks:
        rank.ask("launch", 0, 2)
        results.append(rank.answer())
    # the next launch is refused by the words, on both
    again = pair.both("reload", case.requests, case.logits)
    pair.both("close")
    for outputs, _ in (*results, *again):
        assert outputs.error.tolist() == [[Fault.PEER_TIMEOUT] * 2]
        assert outputs.stamp.tolist() == [[0, 0]]
    for _, words in again:
        assert (words.own, words.peer) == (Fault.PEER_TIMEOUT, Fault.PEER_TIMEOUT)


def test_a_peer_that_is_late_for_a_later_position(pair):
    case = random_case(52, batch=1, n_out=3)
    # patient for the first position of the block only
    pair.prepare(case, (Bounds(first_polls=POLLS, next_polls=20), PATIENT))
    pair.both("launch", 0, 1)
    pair.ranks[0].ask("launch", 1, 3)
    outputs, _ = pair.ranks[0].answer()
    pair.ranks[1].ask("launch", 1, 3)
    late, _ = pair.ranks[1].answer()
    pair.both("close")
    for one in (outputs, late):
        assert one.error.tolist() == [[0, Fault.PEER_TIMEOUT, Fault.PEER_TIMEOUT]]
        assert one.stamp.tolist() == [[2, 0, 0]]


def test_the_survivor_of_a_killed_rank_times_out(tmp_path):
    case = random_case(53, batch=1, n_out=3)
    bounds = Bounds(first_polls=POLLS, next_polls=200)
    with Pair(tmp_path) as ranks:
        files = ranks.prepare(case, (bounds, PATIENT))
        ranks.both("launch", 0, 1)
        dying, survivor = ranks.ranks[1], ranks.ranks[0]
        dying.ask("launch", 1, 3)
        seen = Memory(files[0], 1)
        wait_until(lambda: case.start + 2 in seen.flag)
        # it has sent position 1 and spins in its kernel
        dying.process.send_signal(signal.SIGKILL)
        dying.process.wait()
        survivor.ask("launch", 1, 3)
        outputs, words = survivor.answer()
        expected = case.expected()
        assert outputs.error.tolist() == [[0, 0, Fault.PEER_TIMEOUT]]
        assert outputs.token[0, :2].tolist() == expected.token[0, :2].tolist()
        assert words.own is Fault.PEER_TIMEOUT
        # the process lives on and says so again
        survivor.ask("reload", case.requests, case.logits)
        assert survivor.answer()[0].error.tolist() == [[Fault.PEER_TIMEOUT] * 3]
