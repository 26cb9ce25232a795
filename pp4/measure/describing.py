"""Figures of every cell, from the stored rounds; what is about chance is handed in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Final

from pp4.receipts.figures import Cell, Figures, Interval, Latency, Paired, Series, Side
from pp4.receipts.ratios import drift_of, effect_of, in_cell, log_ratio, paired, spelled
from pp4.receipts.runs import Measurement, Round

Bounds = Callable[[Sequence[Sequence[int]]], tuple[str, str] | None]
"""From the log ratios of each half, in billionths, to the bounds of an interval, or None."""
NS_PER_S: Final = 10**9


def describe(halves: Sequence[Measurement], bounds: Bounds | None = None) -> Figures:
    """Return the figures of one half, or of both.

    Args:
        halves: receipts, complete or not; two of them are compared as if they belonged together,
            so hold them against each other first (:mod:`pp4.receipts.halves`).
        bounds: :func:`pp4.measure.statistics.interval`; None leaves intervals out, and needs no
            numpy.
    """
    return Figures(
        halves=tuple(half.half for half in halves),
        cells=tuple(
            _cell(halves, batch, temperature, bounds) for batch, temperature in cells_of(halves)
        ),
    )


def cells_of(halves: Sequence[Measurement]) -> list[tuple[int, str]]:
    """Return batch size and temperature of every cell that has rounds, sorted."""
    found = {
        (one.batch, Decimal(one.temperature)): one.temperature
        for half in halves
        for arm in half.arms
        for one in arm.rounds
    }
    return [(batch, found[batch, value]) for batch, value in sorted(found)]


def _cell(
    halves: Sequence[Measurement], batch: int, temperature: str, bounds: Bounds | None
) -> Cell:
    rounds = {switch: list(_headline(halves, batch, temperature, switch)) for switch in _SWITCHES}
    series = [
        [(off.index, log_ratio((off, on))) for off, on in paired(half.arms, batch, temperature)]
        for half in halves
    ]
    ratios = [[ratio for _, ratio in one] for one in series]
    whole = all(ratios)
    found = bounds(ratios) if whole and bounds is not None else None
    endpoint = halves[0].endpoint
    return Cell(
        batch=batch,
        temperature=temperature,
        primary=(batch, Decimal(temperature)) == (endpoint.batch, Decimal(endpoint.temperature)),
        off=_side(rounds["OFF"]),
        on=_side(rounds["ON"]),
        log_ratio=spelled(effect_of(ratios)) if whole else None,
        interval=None if found is None else Interval(low=found[0], high=found[1]),
        drift=spelled(drift_of(ratios)) if whole and len(ratios) == 2 else None,
        series=tuple(
            Series(
                half=half.half,
                rounds=tuple(Paired(index=i, log_ratio=spelled(ratio)) for i, ratio in one),
            )
            for half, one in zip(halves, series, strict=True)
        ),
    )


_SWITCHES: Final = ("OFF", "ON")


def _headline(
    halves: Sequence[Measurement], batch: int, temperature: str, switch: str
) -> Iterator[Round]:
    for half in halves:
        for arm in half.arms:
            if arm.switch == switch:
                for one in arm.rounds:
                    if one.phase == "headline" and in_cell(one, batch, temperature):
                        yield one


def _side(rounds: Sequence[Round]) -> Side | None:
    if not rounds:
        return None
    tokens, elapsed = sum(one.tokens for one in rounds), sum(int(one.elapsed_ns) for one in rounds)
    drafted = sum(one.drafted for one in rounds)
    accepted = [sum(row) for row in zip(*(one.accepted_by_position for one in rounds), strict=True)]
    return Side(
        rounds=len(rounds),
        tokens=tokens,
        elapsed_ns=elapsed,
        tokens_per_second=_quotient(tokens * NS_PER_S, elapsed, 1),
        drafted=drafted,
        accepted=tuple(_quotient(rows, drafted, 4) for rows in accepted) if drafted else None,
        accepted_length=_quotient(sum(accepted), drafted, 4) if drafted else None,
        draft=_latency([ns for one in rounds for ns in one.draft_ns]),
    )


def _latency(values: Sequence[int]) -> Latency | None:
    if not values:
        return None
    ordered = sorted(values)
    return Latency(
        count=len(ordered),
        p50_ns=nearest_rank(ordered, 50),
        p90_ns=nearest_rank(ordered, 90),
        p99_ns=nearest_rank(ordered, 99),
        max_ns=ordered[-1],
    )


def nearest_rank(ordered: Sequence[int], percent: int) -> int:
    """Return the least value that ``percent`` of the sorted values do not exceed."""
    return ordered[-(-percent * len(ordered) // 100) - 1]


def _quotient(numerator: int, denominator: int, digits: int) -> str:
    exact = Decimal(numerator) / Decimal(denominator)
    return str(exact.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_EVEN))
