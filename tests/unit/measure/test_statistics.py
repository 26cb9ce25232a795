"""The bootstrap: the same digits everywhere, blocks of a stated length, HOLDs by themselves."""

from fractions import Fraction
from statistics import NormalDist

import numpy as np
import pytest

from pp4.errors import BadInputError
from pp4.measure.declared import LEAST_ROUNDS
from pp4.measure.statistics import (
    RESAMPLES,
    SEED,
    block_length,
    bounds,
    edges,
    interval,
    resampled,
    student,
    tail,
)

WAVE = [1_000_000 * ((i * 7919) % 23 - 11) for i in range(128)]
"""Log ratios of up to 1.1 %, made without any generator."""


def test_the_digits_are_these_on_every_machine():
    assert bounds([WAVE, WAVE[::-1]]) == ("-0.000461", "0.000277")


def test_the_generator_is_the_mersenne_twister_of_the_standard():
    # ISO C++, [rand.predef]: the 10000th number of a default constructed mt19937 is 4123659995.
    drawn = np.random.RandomState(5489).randint(0, 2**32, 10_000, dtype=np.uint32)
    assert drawn[-1] == 4_123_659_995


def test_a_plain_loop_over_blocks_gives_the_same_digits():
    halves = [WAVE[:24], [one // 3 for one in WAVE[24:54]]]
    stream = np.random.RandomState(SEED)
    sums = [Fraction(0)] * RESAMPLES
    for half in halves:
        rounds, length = len(half), block_length(len(half))
        starts = stream.randint(0, rounds, (RESAMPLES, -(-rounds // length)), dtype=np.int64)
        for number, row in enumerate(starts.tolist()):
            drawn = [half[(start + i) % rounds] for start in row for i in range(length)]
            sums[number] += Fraction(sum(drawn[:rounds]), rounds)
    rank = int((RESAMPLES + 1) * tail([24, 30]))
    ordered = sorted(sums)
    expected = ordered[rank - 1] / 2, ordered[-rank] / 2
    assert bounds(halves) == tuple(f"{float(edge) / 1e9:.6f}" for edge in expected)


def test_the_state_of_other_generators_is_neither_read_nor_changed():
    np.random.seed(1)
    before = np.random.get_state()[1].tolist()
    bounds([WAVE, WAVE])
    assert np.random.get_state()[1].tolist() == before


def test_rounds_that_are_all_alike_have_an_interval_of_no_width():
    assert bounds([[5_000_000] * 128, [3_000_000] * 128]) == ("0.004000", "0.004000")


def test_an_interval_moves_and_grows_with_its_rounds():
    low, high = (float(edge) for edge in bounds([WAVE, WAVE]))
    moved = [one + 30_000_000 for one in WAVE]
    assert bounds([moved, moved]) == (f"{low + 0.03:.6f}", f"{high + 0.03:.6f}")
    wide = [10 * one for one in WAVE]
    wide_low, wide_high = (float(edge) for edge in bounds([wide, wide]))
    assert wide_high - wide_low == pytest.approx(10 * (high - low), abs=2e-5)


def test_what_a_hold_has_more_than_the_other_makes_no_interval_wider():
    # The level of a HOLD is its own: drawing rounds across both would mix them up.
    apart = [one + 500_000_000 for one in WAVE]
    low, high = (float(edge) for edge in bounds([WAVE, WAVE]))
    far_low, far_high = (float(edge) for edge in bounds([WAVE, apart]))
    assert far_high - far_low == pytest.approx(high - low, abs=2e-6)


def test_blocks_are_runs_of_the_ring_and_have_the_length_of_the_series():
    rounds, length = 30, 7
    powers = np.eye(rounds)
    # Which rounds each resample has, found by a series for each round.
    times = np.array([resampled([row], [1], length=length, resamples=200) for row in powers]).T
    assert times.shape == (200, rounds)
    assert (times.sum(axis=1) == rounds).all()
    # 30 = 4 blocks of 7 and one of 2: seen as a ring, at most 5 ends of blocks
    ends = np.diff(np.concatenate([times, times[:, :1]], axis=1), axis=1)
    assert (np.maximum(ends, 0).sum(axis=1) <= 5).all()
    assert abs(times.mean(axis=0) - 1).max() < 0.4


@pytest.mark.parametrize("rounds", [1, 2, 24, 125, 126, 128, 1000])
def test_a_block_is_twice_the_cube_root(rounds):
    length = block_length(rounds)
    assert length**3 >= 8 * rounds > (length - 1) ** 3
    assert block_length(125) == 10
    assert block_length(128) == 11


@pytest.mark.parametrize(
    ("level", "freedom", "quantile"),
    # Any table of Student's t.
    [(0.975, 3, 3.182), (0.975, 6, 2.447), (0.975, 20, 2.086), (0.95, 10, 1.812)],
)
def test_quantiles_of_student(level, freedom, quantile):
    assert student(level, freedom) == pytest.approx(quantile, rel=0.01)


def test_the_level_is_further_out_the_fewer_blocks_there_are():
    # 2 x 128 / 11 = 23.3 blocks, 21.3 degrees of freedom, t = 2.078, x sqrt(23.3 / 21.3) = 2.173
    assert tail([128, 128]) == pytest.approx(NormalDist().cdf(-2.173), rel=0.01)
    levels = [tail([count, count]) for count in (24, 48, 128, 10**6)]
    assert levels == sorted(levels)
    assert levels[-1] == pytest.approx(0.025, rel=0.01)


def test_edges_are_values_by_their_rank():
    drawn = np.arange(RESAMPLES, dtype=np.float64)[::-1]
    low, high = edges(drawn, [10**6, 10**6])
    # Rank r of n from below and from above, r = floor((n + 1) x level).
    rank = int(10_000 * tail([10**6, 10**6]))
    assert (low, high) == (rank - 1, RESAMPLES - rank)


def test_halves_of_unequal_length_count_alike():
    # A mean of means, not of rounds: the shorter half has the same weight.
    low, high = (float(edge) for edge in bounds([[10**7] * 24, [0] * 96]))
    assert (low, high) == (0.005, 0.005)


def test_too_few_rounds_have_no_interval():
    few = [0] * (LEAST_ROUNDS - 1)
    assert interval([few, [0] * 100]) is None
    assert interval([[0] * LEAST_ROUNDS] * 2) == ("0.000000", "0.000000")
    with pytest.raises(BadInputError, match="at least 24, found 23"):
        bounds([few, [0] * 100])


def test_sums_that_would_not_be_exact_are_refused():
    with pytest.raises(BadInputError, match="sums below"):
        bounds([[2**53 // 24 + 1] * 24, [0] * 24])
