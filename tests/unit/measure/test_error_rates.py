"""How often a verdict is wrong, over simulated measurements with fixed seeds.

Bounds are quantiles of the binomial distribution: more go wrong than that once in a thousand times
if the rate is the promised one, so that a test fails because the rate is wrong.
"""

from math import comb

import numpy as np
import pytest

from pp4.measure.declared import PRIMARY_ROUNDS
from tests.unit.measure.simulated import halves, intervals, verdicts

RUNS = 1000


def most(rate, runs=RUNS):
    """The most runs that go wrong at this rate, but for one time in a thousand."""
    total, count = 0.0, -1
    while total < 0.999:
        count += 1
        total += comb(runs, count) * rate**count * (1 - rate) ** (runs - count)
    return count


def fewest(rate, runs=RUNS):
    """The fewest runs that go right at this rate, but for one time in a thousand."""
    return runs - most(1 - rate, runs)


def test_the_bounds_are_those_of_the_binomial_distribution():
    # 50 are expected, with a standard deviation of 6.9: 0.999 is 3.1 of them further
    assert most(0.05) in range(70, 76)
    assert fewest(0.95) == RUNS - most(0.05)


@pytest.mark.parametrize(
    "kind",
    [
        {"drift": 0.0},
        {"drift": 0.002},
        {"drift": -0.002},
        {"rho": 0.0},
        {"rho": 0.7},
    ],
    ids=str,
)
def test_a_against_a_is_the_same(kind):
    found = verdicts(halves(1, RUNS, PRIMARY_ROUNDS, **kind))
    # Stricter than the binomial bound: 95 % of these very runs.
    assert found.count("SAME") >= 0.95 * RUNS
    assert found.count("FASTER") + found.count("SLOWER") <= most(0.001)


def test_so_many_rounds_are_needed_and_no_fewer():
    # Under a drift of 0.5 % through each HOLD the halves differ by 0.5 %.
    enough = verdicts(halves(2, 2 * RUNS, PRIMARY_ROUNDS, drift=0.005))
    fewer = verdicts(halves(2, 2 * RUNS, PRIMARY_ROUNDS - 32, drift=0.005))
    assert enough.count("SAME") >= fewest(0.95, 2 * RUNS)
    assert fewer.count("SAME") < fewest(0.95, 2 * RUNS)


@pytest.mark.parametrize("bias", [0.003, 0.006, 0.01, 0.02, 0.05, -0.01, -0.05])
@pytest.mark.parametrize("one_hold", [False, True], ids=["both HOLDs", "one HOLD"])
def test_a_bias_of_position_is_never_taken_for_an_effect(bias, one_hold):
    # "never in more than 5 %"; what the second arm has more is in the drift, whatever its size
    found = verdicts(halves(3, RUNS, PRIMARY_ROUNDS, bias=(bias, 0.0 if one_hold else bias)))
    assert found.count("FASTER") + found.count("SLOWER") <= 0.05 * RUNS


@pytest.mark.parametrize(
    ("effect", "verdict"), [(0.03, "FASTER"), (-0.03, "SLOWER")], ids=["faster", "slower"]
)
def test_an_effect_of_three_percent_is_found(effect, verdict):
    found = verdicts(halves(4, RUNS, PRIMARY_ROUNDS, effect=effect))
    assert found.count(verdict) >= 0.9 * RUNS
    # and never with the wrong sign
    assert not {"FASTER", "SLOWER"} - {verdict} & set(found)


def test_an_effect_at_the_threshold_is_not_claimed():
    # An effect of exactly the noise threshold is not beyond it: claimed at most as often as an
    # interval of 95 % is wrong on one side.
    found = verdicts(halves(5, RUNS, PRIMARY_ROUNDS, effect=0.01))
    assert found.count("FASTER") <= most(0.05)
    assert found.count("SLOWER") == 0


@pytest.mark.parametrize("effect", [0.0, 0.03])
def test_the_interval_covers_the_truth_and_one_of_single_rounds_does_not(effect):
    made = halves(6, 2 * RUNS, PRIMARY_ROUNDS, effect=effect)

    def covered(length=None):
        low, high = intervals(made, length=length)
        return np.mean((low <= effect * 1e9) & (effect * 1e9 <= high))

    assert covered() >= 0.92
    # Neighbouring rounds resemble each other: taken for independent they cover far too seldom.
    assert covered(length=1) <= 0.80


def test_on_rounds_that_are_independent_both_cover_the_truth():
    made = halves(7, 2 * RUNS, PRIMARY_ROUNDS, rho=0.0)
    for length in (None, 1):
        low, high = intervals(made, length=length)
        assert 0.93 <= np.mean((low <= 0) & (high >= 0)) <= 0.975
