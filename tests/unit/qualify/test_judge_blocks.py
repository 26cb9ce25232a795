"""Judges of blocks that had to go well: every branch, from facts made by hand."""

import pytest

from pp4.errors import Code
from pp4.qualify import judge
from pp4.wire.facts import (
    BUCKETS,
    Case,
    Expectation,
    Selected,
    Stream,
    Streamed,
)
from tests.unit.wire.examples import STAMPS, block, exchange, kept

POISON = -77


ONE_WORD = Code.RELEASED_ON_ONE_WORD


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (exchange(), None),
        (exchange(block(1), block(0)), None),
        (kept("PEER_TIMEOUT", block(0, own_error=3)), None),
        (exchange(block(0)), ONE_WORD),
        (exchange(block(0), block(0)), ONE_WORD),
        (exchange(block(0), block(1), block(1)), ONE_WORD),
        (exchange(block(0), block(1, own_error=3)), ONE_WORD),
        (exchange(block(0, peer_error=3), block(1)), ONE_WORD),
        (exchange(block(0), block(1, errors=((0, 0), (0, 2)))), ONE_WORD),
        (exchange(block(0, errors=((POISON, 0), (0, 0))), block(1)), ONE_WORD),
    ],
)
def test_release(found, code):
    assert judge.release(found) is code


def test_a_release_without_any_report_is_on_nobodys_word():
    nothing = exchange().model_copy(update={"blocks": ()})
    assert judge.release(nothing) is ONE_WORD


HEALTHY = [
    (exchange(), None),
    (exchange(block(0)), ONE_WORD),
    (kept("PEER_TIMEOUT"), Code.PEER_TIMEOUT),
    (kept("INCOMPLETE"), Code.INCOMPLETE),
    (kept("RANKS_DIFFER"), Code.RANKS_DIFFER),
    (exchange(block(0), block(1, stamps=((1, 2), (3, 4)))), Code.INCOMPLETE),
    (exchange(block(0, stamps=()), block(1, stamps=())), Code.INCOMPLETE),
    (exchange(block(0), block(1, digest="x")), Code.RANKS_DIFFER),
]


@pytest.mark.parametrize(("found", "code"), HEALTHY)
def test_healthy(found, code):
    assert judge.healthy(found) is code


def expectation(digest="d" * 64, rows=("row-0", "row-1")):
    return Expectation(by="reference", digest=digest, rows=rows, tokens=((1, 2), (3, 4)))


@pytest.mark.parametrize(
    ("found", "expected", "code"),
    [
        *[(found, [expectation()], code) for found, code in HEALTHY],
        (exchange(), [expectation(), expectation()], None),
        (exchange(), [expectation(), expectation("x")], Code.OUTPUT_MISMATCH),
        (exchange(), [expectation("x"), expectation()], Code.OUTPUT_MISMATCH),
    ],
)
def test_equal(found, expected, code):
    assert judge.equal(found, expected) is code


def test_equal_to_nothing_is_not_equal():
    """No expectation is no evidence: an empty list must not pass for every output."""
    assert judge.equal(exchange(), []) is Code.OUTPUT_MISMATCH


CASE = Case(batch=2, n_out=2, seed=1, modes=(1, 2))


ARGMAX = Selected(rank=0, path="original", same_objects=True, tokens=((9, 9), (3, 4)), q_zero=True)


def pair_of(**changes):
    return exchange(block(0, **changes), block(1, **changes))


@pytest.mark.parametrize(
    ("found", "expected", "greedy", "code"),
    [
        (pair_of(q_zero=(0, 1)), expectation(), ARGMAX, None),
        (kept("BAD_LOGITS"), expectation(), ARGMAX, Code.BAD_LOGITS),
        (
            pair_of(q_zero=(0, 1)),
            expectation(rows=("x", "row-1")),
            ARGMAX,
            Code.OUTPUT_MISMATCH,
        ),
        (pair_of(q_zero=(0, 0)), expectation(), ARGMAX, Code.T0_DREW),
        (pair_of(q_zero=(1, 0)), expectation(), ARGMAX, Code.T0_DREW),
        (
            pair_of(q_zero=(0, 1)),
            expectation(),
            ARGMAX.model_copy(update={"tokens": ((1, 2), (3, 5))}),
            Code.T0_NOT_ARGMAX,
        ),
        # the greedy row differs from the reference in what only the digest shows
        (pair_of(q_zero=(0, 1)), expectation("x"), ARGMAX, Code.OUTPUT_MISMATCH),
    ],
)
def test_mixed(found, expected, greedy, code):
    assert judge.mixed(found, expected, greedy, CASE) is code


def sampled(rank, tokens=((1, 2), (3, 4)), **changes):
    return Selected(
        rank=rank,
        path="sampled",
        same_objects=False,
        tokens=tokens,
        q_zero=False,
        block=block(rank, **changes),
    )


GONE_WRONG = ((-1, -1), (-1, -1))


@pytest.mark.parametrize(
    ("ranks", "released", "why", "code"),
    [
        ([sampled(0), sampled(1)], True, "", None),
        ([sampled(0), sampled(1)], False, "BAD_LOGITS", Code.BAD_LOGITS),
        ([sampled(0), sampled(1)], False, "", Code.INCOMPLETE),
        ([sampled(0), sampled(1, own_error=2)], True, "", ONE_WORD),
        ([sampled(0), sampled(1, errors=((0, 0), (0, 2)))], True, "", ONE_WORD),
        ([sampled(0)], True, "", ONE_WORD),
        ([sampled(0), ARGMAX], True, "", ONE_WORD),
        ([sampled(0), sampled(0)], True, "", ONE_WORD),
        ([], True, "", ONE_WORD),
        ([sampled(0), sampled(1, stamps=((11, 12), (21, 20)))], True, "", Code.INCOMPLETE),
        ([sampled(0), sampled(1, stamps=((11, 12), ()))], True, "", Code.INCOMPLETE),
        ([sampled(0), sampled(1, epochs=(12,))], True, "", Code.INCOMPLETE),
        ([sampled(0), sampled(1, digest="x")], True, "", Code.RANKS_DIFFER),
        (
            [sampled(0, digest="x"), sampled(1, digest="x")],
            True,
            "",
            Code.OUTPUT_MISMATCH,
        ),
        ([sampled(0), sampled(1, GONE_WRONG)], True, "", Code.OUTPUT_MISMATCH),
    ],
)
def test_what_the_branch_samples_is_judged_like_any_block(ranks, released, why, code):
    assert judge.selected(ranks, released, why, expectation()) is code


ASKED = Stream(batch=2, n_out=3, cached="mixed", seed=1, blocks=4)


def stream_of(rank, **changes):
    """What a rank reports of a stream in which nothing went wrong."""
    given = {
        "rank": rank,
        "blocks": 4,
        "rows": 24,
        "mismatches": 0,
        "first_mismatch": (),
        "inputs": "i",
        "outputs": "o",
        "waits": (0,) * BUCKETS,
        "own_error": 0,
        "peer_error": 0,
        "elapsed_ns": 1,
    }
    return Streamed(**{**given, **changes})


WRONG_STREAMS = [
    ({"mismatches": 1, "first_mismatch": (3, 1, 2)}, Code.OUTPUT_MISMATCH),
    ({"blocks": 3, "rows": 18}, Code.INCOMPLETE),
    ({"blocks": 3}, Code.INCOMPLETE),
    ({"blocks": 5}, Code.INCOMPLETE),
    ({"rows": 23}, Code.INCOMPLETE),
    ({"rows": 25}, Code.INCOMPLETE),
    ({"rows": 0}, Code.INCOMPLETE),
    ({"inputs": "x"}, Code.RANKS_DIFFER),
    ({"outputs": "x"}, Code.RANKS_DIFFER),
    ({"own_error": 2}, Code.BAD_LOGITS),
    ({"peer_error": 2}, Code.BAD_LOGITS),
    # the graver of two words, and a word before what it led to
    ({"own_error": 2, "peer_error": 4}, Code.PROTOCOL),
    ({"own_error": 3, "blocks": 1, "rows": 6, "mismatches": 2, "inputs": "x"}, Code.PEER_TIMEOUT),
    ({"blocks": 3, "mismatches": 1}, Code.INCOMPLETE),
    ({"mismatches": 1, "outputs": "x"}, Code.OUTPUT_MISMATCH),
]


@pytest.mark.parametrize(
    ("changes", "code"), [({}, None), ({"elapsed_ns": 9}, None), *WRONG_STREAMS]
)
@pytest.mark.parametrize("rank", [0, 1])
def test_streamed(changes, code, rank):
    ranks = [stream_of(one, **(changes if one == rank else {})) for one in (0, 1)]
    assert judge.streamed(ranks, ASKED) is code


def test_words_of_both_ranks_count():
    ranks = [stream_of(0, own_error=3), stream_of(1, own_error=5)]
    assert judge.streamed(ranks, ASKED) is Code.EPOCH_EXHAUSTED
    assert judge.streamed(ranks[:1], ASKED, solo=True) is Code.PEER_TIMEOUT


@pytest.mark.parametrize("ranks", [(), (0,), (1,), (1, 0), (0, 0), (1, 1), (0, 1, 1)])
def test_a_stream_of_a_pair_is_told_by_both_ranks(ranks):
    assert judge.streamed([stream_of(rank) for rank in ranks], ASKED) is Code.RANK_DIED


@pytest.mark.parametrize("ranks", [(), (1,), (0, 1), (0, 0)])
def test_a_stream_of_one_gpu_is_told_by_one_rank(ranks):
    assert judge.streamed([stream_of(rank) for rank in ranks], ASKED, solo=True) is Code.RANK_DIED


@pytest.mark.parametrize(("changes", "code"), [({}, None), *WRONG_STREAMS])
def test_a_stream_of_one_gpu_is_judged_alike_but_has_nobody_to_agree_with(changes, code):
    wanted = None if code is Code.RANKS_DIFFER else code
    assert judge.streamed([stream_of(0, **changes)], ASKED, solo=True) is wanted


def by(way, digest="d"):
    return Expectation(by=way, digest=digest, rows=(), tokens=())


WAYS = ("reference", "vectorised")


@pytest.mark.parametrize(
    ("expected", "code"),
    [
        ([by("reference"), by("vectorised")], None),
        ([by("reference"), by("vectorised", "x")], Code.OUTPUT_MISMATCH),
        ([by("reference", "x"), by("vectorised")], Code.OUTPUT_MISMATCH),
        # one way that was asked twice agrees with itself
        ([by("reference"), by("reference")], Code.OUTPUT_MISMATCH),
        ([by("vectorised"), by("vectorised")], Code.OUTPUT_MISMATCH),
        ([by("vectorised"), by("reference")], Code.OUTPUT_MISMATCH),
        ([by("reference")], Code.OUTPUT_MISMATCH),
        ([by("vectorised")], Code.OUTPUT_MISMATCH),
        ([by("reference"), by("vectorised"), by("solo")], Code.OUTPUT_MISMATCH),
        ([], Code.OUTPUT_MISMATCH),
    ],
)
def test_all_ways_that_were_asked_for_agree(expected, code):
    assert judge.agree(expected, WAYS) is code


def test_nothing_agrees_with_nothing():
    assert judge.agree([], ()) is Code.OUTPUT_MISMATCH


def test_who_waited_longer_is_told_by_the_first_exchange():
    one, other = (block(0, waited=((wait, 9 - wait),)) for wait in (5, 4))
    assert judge.waited_longer(one, other)
    assert not judge.waited_longer(other, one)
    assert not judge.waited_longer(one, one)


@pytest.mark.parametrize(
    ("before", "after", "changed", "code"),
    [
        (("a", "b", "c"), ("a", "x", "c"), 1, None),
        (("a", "b", "c"), ("a", "b", "c"), 1, None),
        (("a", "b", "c"), ("x", "b", "c"), 1, Code.NEIGHBOUR_CHANGED),
        (("a", "b", "c"), ("a", "x", "x"), 1, Code.NEIGHBOUR_CHANGED),
        (("a", "b", "c"), ("a", "x", "c"), 0, Code.NEIGHBOUR_CHANGED),
    ],
)
def test_neighbours(before, after, changed, code):
    one, other = block(0, rows=before), block(0, rows=after)
    assert judge.neighbours(one, other, changed) is code


def test_neighbours_of_different_batches_do_not_compare():
    with pytest.raises(ValueError, match="argument 2 is longer"):
        judge.neighbours(block(0, rows=("a",)), block(0, rows=("a", "b")), 0)


def test_the_examples_are_healthy():
    """Every case above spoils one detail of these; that they pass is what makes the rest mean."""
    assert judge.healthy(exchange()) is None
    assert exchange().expected_stamps == STAMPS
