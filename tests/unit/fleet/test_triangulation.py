"""Planted faults are named, and what is good is never called bad."""

from fractions import Fraction
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pp4.errors import BadInputError
from pp4.fleet.rounds import exhaustive, quick
from pp4.fleet.triangulation import triangulate

SHARES = st.sampled_from([Fraction(1), Fraction(9, 10), Fraction(3, 4), Fraction(51, 100)])


def verdicts(rounds, gpus=(), links=(), unknown=()):
    """What pairs give where a pair fails if, and only if, it holds a bad GPU or is a bad link."""
    return {
        pair: None if pair in unknown else not (set(pair) & set(gpus) or pair in links)
        for pairs in rounds
        for pair in pairs
    }


def named(suspects, kind):
    return {one.gpus for one in suspects if one.kind == kind}


def test_nothing_failed():
    assert triangulate(verdicts(exhaustive(8))) == []
    assert triangulate(verdicts(exhaustive(4), unknown=[(0, 1)])) == []
    assert triangulate({}) == []


def test_every_set_of_bad_gpus_is_named_exactly():
    for size in range(2, 9):
        everyone = range(size)
        for bad in (set(b) for k in range(1, size - 1) for b in combinations(everyone, k)):
            suspects = triangulate(verdicts(exhaustive(size), bad))
            assert named(suspects, "gpu") == {(gpu,) for gpu in bad}
            assert {one.kind for one in suspects} == {"gpu"}


def test_with_no_two_good_gpus_the_node_is_named_and_no_gpu():
    for size in range(2, 9):
        for good in range(2):
            (one,) = triangulate(verdicts(exhaustive(size), range(good, size)))
            assert (one.kind, one.gpus) == ("node", ())
            assert len(one.pairs) == size * (size - 1) // 2


@given(st.data())
def test_bad_links_are_named_exactly_where_their_gpus_have_good_ones(data):
    size = data.draw(st.integers(3, 9))
    pairs = list(combinations(range(size), 2))
    bad = data.draw(st.sets(st.sampled_from(pairs), min_size=1))
    good = [pair for pair in pairs if pair not in bad]
    cleared = {gpu for pair in good for gpu in pair}
    suspects = triangulate(verdicts(exhaustive(size), links=bad))
    assert named(suspects, "pair") == {pair for pair in bad if set(pair) <= cleared}
    assert not {gpu for (gpu,) in named(suspects, "gpu")} & cleared
    if not good:
        assert [one.kind for one in suspects] == ["node"]


@given(st.data())
def test_no_good_gpu_is_called_bad_whatever_is_missing(data):
    size = data.draw(st.integers(2, 9))
    rounds = data.draw(st.sampled_from([exhaustive, quick]))(size)
    run = [pair for pairs in rounds for pair in pairs]
    bad = data.draw(st.sets(st.integers(0, size - 1)))
    unknown = data.draw(st.sets(st.sampled_from(run)))
    found = verdicts(rounds, bad, unknown=unknown)
    suspects = triangulate(found, data.draw(SHARES))
    assert {gpu for (gpu,) in named(suspects, "gpu")} <= bad
    # between cleared GPUs nothing fails here, so no link is accused
    assert not named(suspects, "pair")
    failed = {pair for pair, passed in found.items() if passed is False}
    assert {pair for one in suspects for pair in one.pairs} == failed


@given(st.data())
@settings(max_examples=60)
def test_every_failed_pair_is_explained_by_some_suspect(data):
    size = data.draw(st.integers(2, 7))
    pairs = list(combinations(range(size), 2))
    found = {pair: data.draw(st.sampled_from([True, False, None])) for pair in pairs}
    suspects = triangulate(found, data.draw(SHARES))
    failed = {pair for pair, passed in found.items() if passed is False}
    assert {pair for one in suspects for pair in one.pairs} == failed
    cleared = {gpu for pair, passed in found.items() if passed for gpu in pair}
    for one in suspects:
        assert set(one.pairs) <= failed
        if one.kind == "pair":
            assert set(one.gpus) <= cleared
        if one.kind == "undecided":
            assert one.gpus
            assert not set(one.gpus) & cleared


def test_quick_names_one_bad_gpu_or_one_bad_link():
    for size in range(3, 17):
        rounds = quick(size)
        for gpu in range(size):
            suspects = triangulate(verdicts(rounds, [gpu]))
            assert [(one.kind, one.gpus) for one in suspects] == [("gpu", (gpu,))]
        for link in (pair for pairs in rounds for pair in pairs):
            suspects = triangulate(verdicts(rounds, links=[link]))
            assert [(one.kind, one.gpus) for one in suspects] == [("pair", link)]


def test_quick_leaves_two_bad_gpus_next_to_each_other_undecided():
    ring = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (0, 5)]
    suspects = triangulate(verdicts([ring], [1, 2]))
    assert [(one.kind, one.gpus) for one in suspects] == [
        ("undecided", (1,)),
        ("undecided", (1, 2)),
        ("undecided", (2,)),
    ]


def test_one_failed_pair_among_missing_ones_accuses_nobody():
    (one,) = triangulate({(0, 1): False, (0, 2): None, (1, 2): None})
    assert (one.kind, one.gpus, one.pairs) == ("undecided", (0, 1), ((0, 1),))


def test_one_failure_with_a_cleared_gpu_is_too_little():
    (one,) = triangulate({(0, 1): False, (0, 2): None, (1, 2): True})
    assert (one.kind, one.gpus) == ("undecided", (0,))


def test_a_gpu_that_fails_often_is_a_suspect_only_by_a_share():
    found = verdicts(exhaustive(8), links=[(3, gpu) for gpu in (4, 5, 6, 7)] + [(0, 3)])
    alone = triangulate(found)
    assert [one.kind for one in alone] == ["pair"] * 5
    (one,) = triangulate(found, Fraction(7, 10))
    assert (one.kind, one.gpus, len(one.pairs)) == ("gpu", (3,), 5)
    assert "5 of 7" in one.why
    assert [one.kind for one in triangulate(found, Fraction(8, 10))] == ["pair"] * 5


def test_exactly_the_share_is_enough():
    found = verdicts(exhaustive(8), links=[(3, gpu) for gpu in (4, 5, 6, 7)] + [(0, 3)])
    assert named(triangulate(found, Fraction(5, 7)), "gpu") == {(3,)}


def test_a_share_counts_partners_only_that_passed_with_others():
    # 0 to 5 are bad; of 1 and 3 too little was run to say so, and 7 has failed with all of them
    missing = [(1, 6), (0, 5), (3, 6)]
    found = verdicts(exhaustive(8), range(6), unknown=missing)
    suspects = triangulate(found, Fraction(51, 100))
    assert named(suspects, "gpu") == {(0,), (2,), (4,), (5,)}


def test_partners_of_a_suspect_are_not_suspect_for_it():
    # 0 and 1 fail with everybody: 2 has failed with half of its partners, all of them suspect
    found = verdicts(exhaustive(5), [0, 1])
    suspects = triangulate(found, Fraction(51, 100))
    assert named(suspects, "gpu") == {(0,), (1,)}


@pytest.mark.parametrize("share", [Fraction(0), Fraction(1, 2), Fraction(11, 10), Fraction(-1)])
def test_a_share_that_means_nothing_is_refused(share):
    with pytest.raises(BadInputError):
        triangulate({}, share)
