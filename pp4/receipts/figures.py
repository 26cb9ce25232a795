"""What is drawn of a measurement: figures of every cell, computed from its rounds.

They are description.  Only the primary cell of both halves has a verdict, in
:class:`pp4.receipts.runs.Summary`.  All are values of JSON, as receipts have them: fractions are
text.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field

from pp4.receipts.envelope import Count, Decimal, Model


class Latency(Model):
    """Nanoseconds that steps waited for their drafts.

    A percentile is the least value that so many of all values do not exceed (nearest rank): always
    one that was measured.
    """

    count: Annotated[int, Field(ge=1)]
    p50_ns: Count
    p90_ns: Count
    p99_ns: Count
    max_ns: Count


class Side(Model):
    """Headline rounds of a cell with the switch OFF or ON, of all halves together.

    Attributes:
        rounds: how many.
        tokens: new ones.
        elapsed_ns: of all rounds together.
        tokens_per_second: the quotient of both, with 1 digit.
        drafted: rows of steps that had a proposal.
        accepted: by position, the share of these rows that accepted at least so many tokens, with
            4 digits; None where no row was drafted.
        accepted_length: tokens that a drafted row accepted on average, with 4 digits, or None.
        draft: what steps waited for their drafts; None without steps.
    """

    rounds: Annotated[int, Field(ge=1)]
    tokens: Count
    elapsed_ns: Annotated[int, Field(ge=1)]
    tokens_per_second: Decimal
    drafted: Count
    accepted: tuple[Decimal, ...] | None
    accepted_length: Decimal | None
    draft: Latency | None


class Interval(Model):
    """A 95 % interval of a log ratio."""

    low: Decimal
    high: Decimal


class Paired(Model):
    """A round's index and its log ratio, ON over OFF."""

    index: Count
    log_ratio: Decimal


class Series(Model):
    """The paired rounds of a cell in one half, in their order."""

    half: Literal["A1B1", "B2A2"]
    rounds: tuple[Paired, ...]


class Cell(Model):
    """One batch size and temperature.

    Attributes:
        batch: requests side by side.
        temperature: as the settings spell it.
        primary: whether it is the cell of the endpoint.
        off: None where no arm has a headline round of it.
        on: likewise.
        log_ratio: mean of the halves' means of ln(ON / OFF) over paired rounds, with 6 digits;
            None without pairs in each half.
        interval: of the log ratio; None with too few rounds for one, see
            :mod:`pp4.measure.statistics`, or where it was not asked for.
        drift: half A1B1 minus half B2A2; None with one half.
        series: by half.
    """

    batch: Annotated[int, Field(ge=1)]
    temperature: Decimal
    primary: bool
    off: Side | None
    on: Side | None
    log_ratio: Decimal | None
    interval: Interval | None
    drift: Decimal | None
    series: tuple[Series, ...]


class Figures(Model):
    """Every cell of a half, or of two halves.

    In a single half one arm always came first: nothing in it tells a drift from an effect.
    """

    halves: tuple[Literal["A1B1", "B2A2"], ...]
    cells: tuple[Cell, ...]


def percent(log_ratio: str) -> float:
    """Return what a log ratio is in percent: 0.03 is 3.05 % more."""
    return 100 * math.expm1(float(log_ratio))
