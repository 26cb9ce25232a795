"""What paired rounds say, in whole numbers: log ratios, effect, drift and the verdict.

Nothing here is floating point.  A ratio's natural logarithm is taken by :mod:`decimal`, which
rounds it correctly whatever the machine, and is kept in billionths; sums of whole numbers have no
order.  So everyone computes the same digits from the same rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from typing import Final, Literal

from pp4.receipts.runs import Endpoint, MeasuredArm, Round

ENDPOINT: Final = Endpoint(metric="tokens_per_second", temperature="0.7", batch=8)
"""Declared before anything was measured; all other cells are description."""
NOISE: Final = Decimal("0.01")
"""Differences up to this log ratio, about 1 %, are noise."""
UNIT: Final = 10**9
"""Log ratios are counted in billionths."""
DIGITS: Final = 6
"""Digits behind the point of what a summary states; the last one is 0.0001 %."""
_CONTEXT: Final = Context(prec=28, rounding=ROUND_HALF_EVEN)

Verdict = Literal["FASTER", "SLOWER", "SAME", "UNDECIDED"]
Pair = tuple[Round, Round]
"""A round of OFF and the round of ON that decoded the same prompts with the same keys."""


def paired(arms: Sequence[MeasuredArm], batch: int, temperature: str) -> list[Pair]:
    """Return the headline rounds of a cell that both arms of a half have, by index.

    Args:
        arms: of one half.
        batch: of the cell.
        temperature: of the cell, in any spelling.
    """
    found: dict[str, dict[int, Round]] = {"OFF": {}, "ON": {}}
    for arm in arms:
        for one in arm.rounds:
            if one.phase == "headline" and in_cell(one, batch, temperature):
                found[arm.switch][one.index] = one
    off, on = found["OFF"], found["ON"]
    return [(off[index], on[index]) for index in sorted(off.keys() & on.keys())]


def in_cell(one: Round, batch: int, temperature: str) -> bool:
    """Say whether a round is of a cell."""
    return one.batch == batch and Decimal(one.temperature) == Decimal(temperature)


def log_ratio(pair: Pair) -> int:
    """Return the natural logarithm of tokens per second, ON over OFF, in billionths.

    Raises:
        ValueError: a round without tokens or without time has no speed.
    """
    off, on = pair
    numerator = on.tokens * int(off.elapsed_ns)
    denominator = off.tokens * int(on.elapsed_ns)
    if numerator <= 0 or denominator <= 0:
        raise ValueError(f"round {off.index} has no tokens or no time")
    ratio = _CONTEXT.divide(Decimal(numerator), Decimal(denominator))
    return int(_CONTEXT.ln(ratio).scaleb(9).to_integral_value(ROUND_HALF_EVEN))


def effect_of(halves: Sequence[Sequence[int]]) -> Fraction:
    """Return the mean of the halves' means, in billionths."""
    return sum(map(mean, halves), Fraction(0)) / len(halves)


def drift_of(halves: Sequence[Sequence[int]]) -> Fraction:
    """Return the mean of the first half minus that of the second, in billionths.

    ON came second in the first half and first in the second one.  A change that goes on in one
    direction through both HOLDs adds to one mean what it takes from the other: it is gone from the
    effect, and twice in here.
    """
    first, second = halves
    return mean(first) - mean(second)


def mean(values: Sequence[int]) -> Fraction:
    """Return the exact mean."""
    return Fraction(sum(values), len(values))


def spelled(billionths: Fraction | int) -> str:
    """Return a log ratio as text with :data:`DIGITS` digits; a tie goes to the even one."""
    steps = round(Fraction(billionths) / 10 ** (9 - DIGITS))
    return str(Decimal(steps).scaleb(-DIGITS, _CONTEXT))


def verdict_of(
    effect: Decimal, low: Decimal, high: Decimal, drift: Decimal, noise: Decimal
) -> Verdict:
    """Return what follows from a summary's numbers, the first that holds.

    Args:
        effect: mean log ratio of both halves.
        low: of its interval.
        high: of its interval.
        drift: between the halves.
        noise: what is taken for no difference.
    """
    if abs(drift) >= max(abs(effect), noise):
        return "UNDECIDED"
    if -noise <= low and high <= noise:
        return "SAME"
    if low > noise:
        return "FASTER"
    if high < -noise:
        return "SLOWER"
    return "UNDECIDED"
