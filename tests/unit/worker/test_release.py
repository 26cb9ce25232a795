"""The release rule over everything that two ranks can report."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pp4.errors import Code
from pp4.kernels.faults import Fault
from pp4.worker.controls import one_word
from pp4.worker.release import Release, both_ranks, fault_of
from tests.unit.wire.examples import STAMPS, block

POISON = -0x5A5A5A5B
words = st.integers(0, 5)
row_words = st.sampled_from([0, 0, 0, 1, 2, 3, 4, 5, 6, POISON])
grids = st.tuples(st.tuples(row_words, row_words), st.tuples(row_words, row_words))
stamps = st.sampled_from([STAMPS, ((11, 12), (21, 23)), ((POISON, POISON),) * 2, ()])
blocks = st.builds(
    block,
    rank=st.integers(0, 1),
    own_error=words | st.just(0),
    peer_error=words | st.just(0),
    errors=grids | st.just(((0, 0), (0, 0))),
    stamps=stamps,
    digest=st.sampled_from(["a", "b"]),
)


def naive(reported):
    """The rule in words: two ranks, nothing but zeros, the expected stamps, the same bytes."""
    zero = all(
        one.own_error == 0 and one.peer_error == 0 and not any(sum(one.errors, ()))
        for one in reported
    )
    return (
        len(reported) == 2
        and {one.rank for one in reported} == {0, 1}
        and zero
        and all(one.stamps == STAMPS for one in reported)
        and reported[0].digest == reported[1].digest
    )


@given(st.lists(blocks, max_size=3))
def test_a_reply_leaves_exactly_if_both_ranks_vouch_for_it(reported):
    found = both_ranks(reported, STAMPS)
    assert found.released is naive(reported)
    assert (found.why is None) is found.released


@given(st.lists(blocks, max_size=2))
def test_the_order_of_the_reports_changes_nothing(reported):
    assert both_ranks(reported, STAMPS) == both_ranks(reported[::-1], STAMPS)


@pytest.mark.parametrize(("own", "peer", "row"), list(product(range(6), repeat=3)))
def test_the_gravest_word_is_the_reason(own, peer, row):
    spoilt = block(0, own_error=own, peer_error=peer, errors=((0, 0), (0, row)))
    worst = max(own, peer, row)
    assert fault_of(spoilt) == worst
    expected = Release(False, Fault(worst).code) if worst else Release(True, None)
    assert both_ranks([spoilt, block(1)], STAMPS) == expected
    assert both_ranks([block(0), spoilt.model_copy(update={"rank": 1})], STAMPS) == expected


def test_a_fault_counts_before_a_death_a_death_before_a_stamp_a_stamp_before_a_digest():
    clean, late = block(0), block(1, stamps=((0, 0), (0, 0)), digest="other")
    timed_out = block(1, own_error=3, stamps=((0, 0), (0, 0)))
    assert both_ranks([timed_out], STAMPS).why is Code.PEER_TIMEOUT
    assert both_ranks([late], STAMPS).why is Code.RANK_DIED
    assert both_ranks([], STAMPS).why is Code.RANK_DIED
    assert both_ranks([clean, late], STAMPS).why is Code.INCOMPLETE
    assert both_ranks([clean, block(1, digest="other")], STAMPS).why is Code.RANKS_DIFFER


def test_the_same_rank_twice_is_not_both_ranks():
    assert both_ranks([block(0), block(0)], STAMPS).why is Code.RANK_DIED


@pytest.mark.parametrize("word", [6, -1, POISON])
def test_a_row_whose_word_was_never_written_is_incomplete(word):
    rows = ((0, word), (0, 0))
    pair = [block(0, errors=rows), block(1, errors=rows)]
    assert both_ranks(pair, STAMPS) == Release(False, Code.INCOMPLETE)


def test_a_clean_reply_with_other_stamps_than_these_is_incomplete():
    assert both_ranks([block(0), block(1)], ((11, 12), (21, 99))).why is Code.INCOMPLETE


def test_the_careless_rule_releases_what_the_product_keeps():
    late = [block(0, own_error=3, errors=((3, 3), (3, 3))), block(1, peer_error=3)]
    assert one_word(late, STAMPS) == Release(True, None)
    assert both_ranks(late, STAMPS) == Release(False, Code.PEER_TIMEOUT)


def test_the_careless_rule_is_otherwise_the_products():
    both_failed = [block(0, own_error=3), block(1, own_error=3)]
    assert one_word(both_failed, STAMPS) == both_ranks(both_failed, STAMPS)
