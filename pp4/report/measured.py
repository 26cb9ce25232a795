"""A comparison as parts of a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal

from pp4.receipts.figures import Cell, Latency, Paired
from pp4.report.acceptance import SWITCHES, Acceptance
from pp4.report.document import ComparisonFigures
from pp4.report.latency import Distribution, distributions
from pp4.report.layout import MOST_PANELS, Head, Panel, Part, Section, Table
from pp4.report.plots import acceptance as acceptance_plot
from pp4.report.plots import drift as drift_plot
from pp4.report.plots import latency as latency_plot
from pp4.report.plots import ratios as ratios_plot
from pp4.report.plots import verdict as verdict_plot
from pp4.report.standing import clocks_section, memory_section, timeline_section
from pp4.report.verdict import CONTROLLED
from pp4.report.words import NONE, interval, milliseconds, percent, rate


def part_of(one: ComparisonFigures, mark: str) -> Part:
    """Return everything that the page says of a comparison.

    Args:
        one: the comparison.
        mark: before every name of its sections and figures, to tell them from those of others.
    """
    tells = (
        _speed,
        _drift,
        _acceptance,
        _latency,
        memory_section,
        clocks_section,
        timeline_section,
    )
    sections = (tell(one, mark) for tell in tells)
    return Part(_head(one, mark), tuple(section for section in sections if section is not None))


def _head(one: ComparisonFigures, mark: str) -> Head:
    verdict = one.verdict
    return Head(
        eyebrow="Sampled drafting: ON against OFF",
        word=verdict.word,
        sentence=verdict.sentence,
        figures=verdict.figures,
        because=f"{verdict.because}.",
        notes=(f"Endpoint: {verdict.endpoint}.", CONTROLLED),
        drawing=verdict_plot.draw(f"{mark}verdict", verdict),
        facts=tuple(_facts(one)),
    )


def _facts(one: ComparisonFigures) -> Iterator[tuple[str, str]]:
    last = one.receipts[-1]
    names = sorted({gpu.name for gpu in last.gpus})
    drivers = sorted({gpu.driver for gpu in last.gpus})
    yield (
        "Pair",
        f"{len(last.gpus)} \N{MULTIPLICATION SIGN} {', '.join(names)}, driver {', '.join(drivers)}",
    )
    for receipt in one.receipts:
        hold = receipt.hold
        state = "complete" if receipt.complete else "not complete"
        yield (
            f"Half {receipt.half}",
            f"HOLD {hold.id}, fence {hold.fence}, over {hold.transport}; "
            f"{receipt.made_at or 'no date'}; {state}",
        )
    yield "Model", last.model_sha256
    yield "Source", f"{last.source.digest}, pp4 {last.tool.version}"
    yield (
        "Settings",
        ", ".join(
            f"{name.replace('_', ' ')} {_spelled(value)}" for name, value in last.settings.items()
        ),
    )


def _spelled(value: object) -> str:
    return " / ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _speed(one: ComparisonFigures, mark: str) -> Section | None:
    drawing = ratios_plot.draw(f"{mark}ratios", one.figures.cells, one.verdict.noise)
    cells = sorted(one.figures.cells, key=lambda cell: (Decimal(cell.temperature), cell.batch))
    if not cells:
        return None
    table = Table(
        "Tokens per second by cell",
        ("T", "batch", "change", "95 % interval", "OFF, tokens/s", "ON, tokens/s", "pairs"),
        tuple(_speed_row(cell) for cell in cells),
        words=0,
        marked=frozenset(place for place, cell in enumerate(cells) if cell.primary),
    )
    return Section(
        f"{mark}speed",
        "Tokens per second",
        "The cell in bold is the primary endpoint, declared beforehand; the others are "
        "description. A change inside the grey band is within the noise threshold.",
        panels=() if drawing is None else (Panel(drawing),),
        tables=(table,),
        breaks=True,
    )


def _speed_row(cell: Cell) -> tuple[str, ...]:
    return (
        cell.temperature,
        str(cell.batch),
        NONE if cell.log_ratio is None else percent(float(cell.log_ratio)),
        "not computed"
        if cell.interval is None
        else interval(float(cell.interval.low), float(cell.interval.high)),
        NONE if cell.off is None else rate(float(cell.off.tokens_per_second)),
        NONE if cell.on is None else rate(float(cell.on.tokens_per_second)),
        " + ".join(str(len(series.rounds)) for series in cell.series),
    )


def _drift(one: ComparisonFigures, mark: str) -> Section | None:
    primary = next((cell for cell in one.figures.cells if cell.primary), None)
    if primary is None:
        return None
    titles = {half.half.receipt.half: half.order for half in one.halves}
    holds = [
        drift_plot.Paired(
            titles[series.half], tuple(float(pair.log_ratio) for pair in series.rounds)
        )
        for series in primary.series
    ]
    drawing = drift_plot.draw(f"{mark}pairs", holds, one.verdict.noise)
    if drawing is None:
        return None
    drift = one.verdict.drift
    said = "" if drift is None else f" Here it is {percent(drift)}."
    return Section(
        f"{mark}drift",
        "Drift",
        "Each mark is a pair of rounds of the primary cell with the same prompts, ON over OFF. In "
        "the second HOLD the order of the arms is reversed: what merely changed with time moves "
        "the two means apart, what the switch does moves both alike. Drift is the distance from "
        f"the second mean to the first, the dotted line.{said}",
        panels=(Panel(drawing),),
        details=tuple(_pairs_table(cell.half, cell.rounds) for cell in primary.series),
    )


def _pairs_table(half: str, rounds: Sequence[Paired]) -> Table:
    return Table(
        f"Pairs of the primary cell, half {half}",
        ("round", "change"),
        tuple((str(pair.index), percent(float(pair.log_ratio), 2)) for pair in rounds),
        words=0,
    )


def _acceptance(one: ComparisonFigures, mark: str) -> Section | None:
    panels = tuple(
        Panel(
            acceptance_plot.draw(f"{mark}acceptance-{number}", row),
            title=f"T = {row.temperature}",
            table=_acceptance_table(row),
        )
        for number, row in enumerate(one.acceptance[:MOST_PANELS])
        if any(row.rates.values())
    )
    if not panels:
        return None
    return Section(
        f"{mark}acceptance",
        "Acceptance by position",
        "Of the drafts that were made, how many had at least so many tokens accepted; all batch "
        "sizes together. At T = 0 both switches draft alike.",
        panels=panels,
        small=True,
        breaks=True,
    )


def _acceptance_table(row: Acceptance) -> Table:
    depth = max(map(len, row.rates.values()))
    return Table(
        f"Acceptance at T = {row.temperature}, in percent, and tokens accepted on average",
        ("", *(str(place + 1) for place in range(depth)), "mean"),
        tuple(
            (
                switch,
                *(f"{100 * value:.1f}" for value in row.rates[switch]),
                *(NONE for _ in range(depth - len(row.rates[switch]))),
                NONE if (length := row.length(switch)) is None else f"{length:.2f}",
            )
            for switch in SWITCHES
        ),
    )


def _latency(one: ComparisonFigures, mark: str) -> Section | None:
    known = distributions(one.receipts)
    if not known:
        return None
    scale = latency_plot.bounds(known)
    return Section(
        f"{mark}latency",
        "Draft latency",
        "How long a step waited for its drafts, sampled rounds (T > 0) of all temperatures "
        "together: of all steps, how many waited at most so long. One scale for all batch sizes.",
        panels=tuple(
            Panel(
                latency_plot.draw(f"{mark}latency-{row.batch}", row, scale),
                title=f"batch {row.batch}",
                table=_latency_table(row),
            )
            for row in known[:MOST_PANELS]
        ),
        details=(_latency_cells(one.figures.cells),),
        small=True,
    )


def _latency_table(row: Distribution) -> Table:
    return Table(
        f"Draft latency at batch {row.batch}, milliseconds",
        ("ms", "p50", "p90", "p99", "max"),
        tuple(
            (
                switch,
                *(
                    NONE
                    if (wait := row.percentile(switch, percent)) is None
                    else f"{wait / 1e6:.2f}"
                    for percent in (50, 90, 99, 100)
                ),
            )
            for switch in SWITCHES
        ),
    )


def _latency_cells(cells: Sequence[Cell]) -> Table:
    ordered = sorted(cells, key=lambda cell: (Decimal(cell.temperature), cell.batch))
    rows = [
        (cell.temperature, str(cell.batch), switch, *_latency_row(side.draft))
        for cell in ordered
        for switch, side in (("OFF", cell.off), ("ON", cell.on))
        if side is not None and side.draft is not None
    ]
    head = ("T", "batch", "switch", "p50", "p90", "p99", "max", "steps")
    return Table("Draft latency by cell", head, tuple(rows), words=3)


def _latency_row(draft: Latency) -> tuple[str, ...]:
    waits = (draft.p50_ns, draft.p90_ns, draft.p99_ns, draft.max_ns)
    return (*map(milliseconds, waits), f"{draft.count:,}")
