"""Log ratios of halves that were never measured: serially correlated noise, levels, drift, bias.

For tests alone; all runs at once, and every draw from a seed.
"""

import math
from decimal import Decimal

import numpy as np

from pp4.measure import statistics
from pp4.receipts.ratios import NOISE, UNIT, verdict_of

RESAMPLES = 999
"""Fewer than in a receipt: what is asked is how often, not which digits."""


def noise(generator, runs, rounds, deviation, rho):
    """An autoregression of order 1 with this standard deviation, ``[runs, rounds]``."""
    shocks = generator.standard_normal((rounds, runs))
    for index in range(1, rounds):
        shocks[index] = rho * shocks[index - 1] + math.sqrt(1 - rho**2) * shocks[index]
    return deviation * shocks.T


def halves(
    seed, runs, rounds, *, effect=0.0, rho=0.5, drift=0.002, bias=(0.0, 0.0), deviation=0.01
):
    """Log ratios ON over OFF in billionths, of each half ``[runs, rounds]``.

    Args:
        seed: of everything.
        runs: how many measurements.
        rounds: of each arm.
        effect: of ON.
        rho: of a round with the one before it.
        drift: what the speed changes by from the first round of a HOLD to its last.
        bias: what the arm that comes second is faster by, in each HOLD.
        deviation: of a round.
    """
    generator = np.random.default_rng(seed)
    made = []
    for on_first, extra in zip((False, True), bias, strict=True):
        level = generator.normal(0, 0.05, (runs, 1))
        through = np.linspace(0, drift, 2 * rounds)
        earlier = level + through[:rounds] + noise(generator, runs, rounds, deviation, rho)
        later = level + through[rounds:] + noise(generator, runs, rounds, deviation, rho) + extra
        on, off = (earlier, later) if on_first else (later, earlier)
        made.append(np.rint((on + effect - off) * UNIT))
    return made


def intervals(made, *, length=None):
    """Edges of every run's interval in billionths, by the very functions of the package.

    Args:
        made: as :func:`halves` makes them.
        length: of a block; 1 draws single rounds, with percentiles as they are for such.
    """
    counts = [half.shape[-1] for half in made]
    drawn = statistics.resampled(made, [1, 1], length=length, resamples=RESAMPLES)
    low, high = statistics.edges(drawn, counts)
    if length == 1:
        low, high = np.quantile(drawn, (0.025, 0.975), axis=-1)
    whole = sum(counts)
    return low / whole, high / whole


def verdicts(made):
    """The verdict of every run, by the rule of the receipts."""
    low, high = intervals(made)
    first, second = (half.mean(axis=-1) for half in made)
    effect, drift = (first + second) / 2, first - second
    scale = Decimal(UNIT)
    return [
        verdict_of(*(Decimal(round(one)) / scale for one in numbers), NOISE)
        for numbers in zip(effect, low, high, drift, strict=True)
    ]
