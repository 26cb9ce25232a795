"""Rounds: every pair once, nobody twice at a time, and no fewer rounds could do."""

from collections import Counter
from itertools import combinations

import pytest

from pp4.errors import BadInputError
from pp4.fleet.rounds import MOST_GPUS, all_pairs, exhaustive, quick

SIZES = range(2, MOST_GPUS + 1)


def disjoint(pairs):
    busy = [gpu for pair in pairs for gpu in pair]
    return len(busy) == len(set(busy))


def test_every_pair_is_in_exactly_one_round():
    for gpus in SIZES:
        run = [pair for pairs in exhaustive(gpus) for pair in pairs]
        assert sorted(run) == list(combinations(range(gpus), 2))
        assert len(run) == all_pairs(gpus)


def test_no_gpu_is_in_two_pairs_of_a_round():
    for gpus in SIZES:
        assert all(map(disjoint, exhaustive(gpus)))


def test_no_fewer_rounds_hold_all_pairs():
    for gpus in SIZES:
        # so many pairs fit into a round at most
        at_once = gpus // 2
        assert len(exhaustive(gpus)) == -(-all_pairs(gpus) // at_once)


def test_eight_gpus_take_seven_rounds_of_four_and_four_take_three_of_two():
    assert [len(pairs) for pairs in exhaustive(8)] == [4] * 7
    assert [len(pairs) for pairs in exhaustive(4)] == [2] * 3
    assert [len(pairs) for pairs in exhaustive(5)] == [2] * 5
    assert exhaustive(2) == (((0, 1),),)


def test_quick_gives_every_gpu_two_partners_in_the_fewest_rounds():
    for gpus in SIZES:
        rounds = quick(gpus)
        run = [pair for pairs in rounds for pair in pairs]
        assert len(run) == len(set(run))
        assert all(map(disjoint, rounds))
        times = Counter(gpu for pair in run for gpu in pair)
        wanted = min(2, gpus - 1)
        assert min(times[gpu] for gpu in range(gpus)) >= wanted
        # a round has room for gpus // 2 pairs, and each pair is one of the wanted ones of two GPUs
        assert len(rounds) == -(-wanted * gpus // 2 // (gpus // 2))


def test_quick_is_one_ring_through_an_even_number():
    for gpus in SIZES[2::2]:
        partners = {gpu: set() for gpu in range(gpus)}
        for pairs in quick(gpus):
            for one, other in pairs:
                partners[one].add(other)
                partners[other].add(one)
        ring, here = [0], min(partners[0])
        while here != 0:
            ring.append(here)
            (here,) = partners[here] - {ring[-2]}
        assert len(ring) == gpus


@pytest.mark.parametrize("gpus", [-1, 0, 1, MOST_GPUS + 1])
@pytest.mark.parametrize("rounds", [exhaustive, quick])
def test_a_number_without_a_pair_is_refused(rounds, gpus):
    with pytest.raises(BadInputError):
        rounds(gpus)
