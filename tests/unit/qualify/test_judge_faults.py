"""Judges of blocks that had to fail: every branch, from facts made by hand."""

import pytest

from pp4.errors import Code
from pp4.qualify import judge
from tests.unit.wire.examples import block, exchange, kept


def waiting(*ranks):
    """An exchange that was kept: how long each rank waited, and which positions timed out."""
    blocks = [
        late(rank, waited=waited, errors=errors) for rank, (waited, errors) in enumerate(ranks)
    ]
    return kept("PEER_TIMEOUT").model_copy(update={"blocks": tuple(blocks)})


def at_once(wait):
    """A rank that gave up at its first position."""
    return ((wait, 0), (0, 0)), ((3, 3), (3, 3))


def later(wait, before=0):
    """A rank that gave up at its second position."""
    return ((before, wait), (0, 0)), ((0, 3), (0, 3))


NOT_LATE = ((0, 0), (0, 0)), ((0, 0), (0, 0))


# the bound of a GPU in nanoseconds, one in polls, one so small that a tenth of it is none
BUDGETS = [20_000_000, 4000, 5]


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize(
    ("share", "more", "code"),
    [
        (0, 0, None),
        (1, 0, None),
        (-1, 0, None),
        (1, 1, Code.WAIT_NOT_BOUNDED),
        (-1, -1, Code.WAIT_NOT_BOUNDED),
    ],
)
@pytest.mark.parametrize("rank", [at_once, later])
def test_a_wait_runs_out_within_a_tenth_of_its_budget(budget, share, more, code, rank):
    wait = budget + share * (budget // 10) + more
    for ranks in ([rank(wait), NOT_LATE], [NOT_LATE, rank(wait)], [rank(0), rank(wait)]):
        assert judge.ran_out(waiting(*ranks), budget) is code


@pytest.mark.parametrize("budget", BUDGETS)
def test_no_rank_waits_for_longer_and_some_rank_for_as_long(budget):
    beyond, unbounded = 2 * budget, Code.WAIT_NOT_BOUNDED
    assert judge.ran_out(waiting(at_once(budget), at_once(beyond)), budget) is unbounded
    assert judge.ran_out(waiting(at_once(beyond), at_once(budget)), budget) is unbounded
    assert judge.ran_out(waiting(at_once(0), at_once(0)), budget) is unbounded
    # where nobody gave up, no wait ran out, however long one took
    slow = ((budget, budget), (budget, 0)), ((0, 0), (0, 0))
    assert judge.ran_out(waiting(slow, slow), budget) is unbounded
    assert judge.ran_out(waiting(), budget) is unbounded


def test_a_wait_counts_where_its_rank_gave_up():
    """The first exchange has a larger budget: it may take longer than the one that ran out."""
    assert judge.ran_out(waiting(later(100, before=5000), NOT_LATE), 100) is None
    assert judge.ran_out(waiting(later(5000, before=100), NOT_LATE), 100) is Code.WAIT_NOT_BOUNDED
    # a position after the one that failed waits for nobody
    after = ((100, 5000), (0, 0)), ((3, 3), (3, 3))
    assert judge.ran_out(waiting(after, NOT_LATE), 100) is None


def unsaid(mine=None, other=None):
    """Rank 1 found NaN at its second position and told nobody; rank 0 waited for it."""
    waits = {"waited": ((0, 100), (0, 0)), "errors": ((0, 3), (0, 3)), "own_error": 3}
    told = {"own_error": 2, "errors": ((0, 2), (0, 2))}
    blocks = block(0, **{**waits, **(other or {})}), block(1, **{**told, **(mine or {})})
    return kept("BAD_LOGITS", *blocks)


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (unsaid(), Code.WRONG_ERROR_WORD),
        # told after all
        (unsaid(other={"own_error": 2, "errors": ((0, 2), (0, 2))}), Code.INCOMPLETE),
        (unsaid(other={"own_error": 0, "errors": ((0, 0), (0, 0))}), Code.INCOMPLETE),
        # never found
        (unsaid(mine={"own_error": 0, "errors": ((0, 0), (0, 0))}), Code.INCOMPLETE),
        (unsaid(mine={"own_error": 3}), Code.INCOMPLETE),
        # the position before was not clean
        (unsaid(mine={"errors": ((2, 2), (2, 2))}), Code.INCOMPLETE),
        (unsaid(other={"errors": ((3, 3), (3, 3)), "waited": ((100, 0), (0, 0))}), Code.INCOMPLETE),
        # the other one waited for nothing
        (unsaid(other={"waited": ((0, 1), (0, 0))}), Code.INCOMPLETE),
        (kept("BAD_LOGITS", unsaid().blocks[1]), Code.RANK_DIED),
        (kept("BAD_LOGITS", *unsaid().blocks[::-1]), Code.RANK_DIED),
    ],
)
def test_a_fault_that_was_kept_to_itself_leaves_its_peer_waiting(found, code):
    assert judge.kept_to_itself(found, 1, 100) is code


def test_the_longest_wait_is_that_of_any_row_and_position():
    assert judge.longest(block(0, waited=((1, 2), (9, 3)))) == 9
    assert judge.longest(block(0, waited=((), (4,)))) == 4
    assert judge.longest(block(0, waited=())) == 0


TIMEOUT = Code.PEER_TIMEOUT


LIMIT = 1000


def late(rank, **changes):
    return block(rank, **{"own_error": 3, "errors": ((3, 3), (3, 3)), **changes})


@pytest.mark.parametrize(
    ("found", "died", "code"),
    [
        (kept(TIMEOUT, late(0), late(1)), (), None),
        (kept(TIMEOUT, late(0), late(1, own_error=0, peer_error=3)), (), None),
        (kept(TIMEOUT, late(0), order=(0,)), (), None),
        (kept(TIMEOUT, late(0), died=(1,)), (1,), None),
        (exchange(late(0), late(1)), (), Code.RELEASED_AFTER_ERROR),
        (exchange(), (), Code.RELEASED_AFTER_ERROR),
        (kept("BAD_LOGITS", late(0), late(1)), (), Code.WRONG_ERROR_WORD),
        (kept(TIMEOUT, late(0), late(1, own_error=0)), (), Code.WRONG_ERROR_WORD),
        (kept(TIMEOUT, late(0), late(1, own_error=5)), (), Code.WRONG_ERROR_WORD),
        (kept(TIMEOUT, late(0)), (), Code.RANK_DIED),
        (kept(TIMEOUT, late(0), died=(1,)), (), Code.RANK_DIED),
        (kept(TIMEOUT, late(0), late(1)), (1,), Code.RANK_DIED),
        (kept(TIMEOUT, late(0), late(0)), (), Code.RANK_DIED),
        (kept(TIMEOUT, late(1), order=(0,)), (), Code.RANK_DIED),
    ],
)
def test_failed_closed(found, died, code):
    assert judge.failed_closed(found, TIMEOUT, LIMIT, died) is code


def test_nobody_who_speaks_has_not_failed_closed():
    silent = kept(TIMEOUT).model_copy(update={"blocks": ()})
    assert judge.failed_closed(silent, TIMEOUT, LIMIT) is Code.RANK_DIED


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(("took", "code"), [(LIMIT, None), (LIMIT + 1, Code.WAIT_NOT_BOUNDED)])
def test_a_wait_without_a_bound_is_no_failing_closed(rank, took, code):
    slow = [late(one, elapsed_ns=took if one == rank else 1) for one in (0, 1)]
    assert judge.failed_closed(kept(TIMEOUT, *slow), TIMEOUT, LIMIT) is code


def flawed(*rows):
    return kept(
        "BAD_LOGITS", *(block(rank, own_error=2, errors=row) for rank, row in enumerate(rows))
    )


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (flawed(((0, 2, 2),), ((0, 2, 2),)), None),
        (flawed(((0, 2),), ((0, 2),)), None),
        (flawed(((0, 2, 2),), ((2, 2, 2),)), Code.WRONG_ERROR_WORD),
        (flawed(((0, 2, 2),), ((0, 0, 2),)), Code.WRONG_ERROR_WORD),
        (flawed(((0, 2, 2),), ((0, 3, 3),)), Code.WRONG_ERROR_WORD),
        (flawed(((0, 3, 3),), ((0, 3, 3),)), Code.WRONG_ERROR_WORD),
        (flawed(((0,),), ((0,),)), Code.WRONG_ERROR_WORD),
        (flawed((), ((0, 2, 2),)), Code.WRONG_ERROR_WORD),
        (flawed(((0, 2, 2),)), Code.WRONG_ERROR_WORD),
        (flawed(), Code.WRONG_ERROR_WORD),
    ],
)
def test_a_fault_shows_from_its_position_on_and_on_both_ranks(found, code):
    assert judge.inside(found, Code.BAD_LOGITS) is code


NOTHING, WAITED = ((0, 0), (0, 0)), ((0, 1), (0, 0))


def still(rank, **changes):
    """A rank that failed before and was launched again: it waits for nobody."""
    return late(rank, **{"waited": NOTHING, **changes})


@pytest.mark.parametrize(
    ("blocks", "ranks", "code"),
    [
        ([still(0, elapsed_ns=LIMIT), still(1)], (0, 1), None),
        ([still(0)], (0,), None),
        # waited again, which ends in the very same word
        ([still(0), still(1, waited=WAITED)], (0, 1), Code.STICKY),
        ([still(0, waited=WAITED), still(1)], (0, 1), Code.STICKY),
        ([still(0, waited=WAITED)], (0,), Code.STICKY),
        ([still(0), still(1, elapsed_ns=LIMIT + 1)], (0, 1), Code.WAIT_NOT_BOUNDED),
        ([still(0), still(1, own_error=2)], (0, 1), Code.WRONG_ERROR_WORD),
        ([still(0), still(1, errors=((3, 0), (3, 3)))], (0, 1), Code.STICKY),
        ([still(0)], (0, 1), Code.RANK_DIED),
        ([], (0,), Code.RANK_DIED),
    ],
)
def test_a_failed_rank_that_is_launched_again_waits_for_nobody(blocks, ranks, code):
    assert judge.stuck(blocks, ranks, TIMEOUT, LIMIT) is code


def test_whatever_the_fault_was_nobody_waits_for_it_again():
    again = {"own_error": 2, "errors": ((2, 2), (2, 2))}
    assert judge.stuck([still(0, **again)], (0,), Code.BAD_LOGITS, LIMIT) is None
    waiting_again = [still(0, **again, waited=WAITED)]
    assert judge.stuck(waiting_again, (0,), Code.BAD_LOGITS, LIMIT) is Code.STICKY


def answered(**changes):
    """Rank 0 has given up, rank 1 comes late with a clean answer."""
    return kept(TIMEOUT, late(0), block(1, **{"peer_error": 3, **changes}))


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (answered(), TIMEOUT),
        (answered().model_copy(update={"released": True}), Code.RELEASED_AFTER_ERROR),
        (kept("PROTOCOL", *answered().blocks), Code.PROTOCOL),
        # a late rank that failed as well shows nothing about late answers
        (answered(own_error=3), None),
        (answered(errors=((0, 0), (0, 3))), None),
        (answered(stamps=((1, 2), (3, 9))), None),
        (answered(stamps=()), None),
        (answered(elapsed_ns=LIMIT + 1), None),
        (kept(TIMEOUT, block(0), block(1, peer_error=3)), None),
        (kept(TIMEOUT, late(0)), None),
        (kept(TIMEOUT, late(0), died=(1,)), None),
        (kept(TIMEOUT), None),
    ],
)
def test_a_late_answer_is_kept_only_if_there_was_one(found, code):
    assert judge.late_answer(found, 1, LIMIT) is code


HEAD = Code.UNSUPPORTED_HEAD_MODE


@pytest.mark.parametrize(
    ("found", "code"),
    [
        ([HEAD, HEAD], None),
        ([HEAD, None], Code.NOT_ORIGINAL),
        ([HEAD, Code.UNPRIMED], Code.NOT_ORIGINAL),
        ([None, None], Code.NOT_ORIGINAL),
        ([HEAD], Code.NOT_ORIGINAL),
        ([], Code.NOT_ORIGINAL),
    ],
)
def test_a_refusal_by_another_name_is_not_called_by_the_wanted_one(found, code):
    assert judge.refused(found, HEAD) is code
