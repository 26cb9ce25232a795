"""Reports of receipts as lines and tables for a terminal of 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import PurePath
from typing import TYPE_CHECKING

from pp4.report.verdict import CONTROLLED
from pp4.report.words import growth, interval, percent, rate, span

if TYPE_CHECKING:
    from pp4.receipts.figures import Cell
    from pp4.report.arms import ArmFigures
    from pp4.report.document import (
        BudgetFigures,
        ComparisonFigures,
        Document,
        GatesFigures,
        PlainFigures,
    )
    from pp4.report.evidence import Link
    from pp4.report.listing import Row

WIDTH = 78
RECEIPTS = ("kind", "verdict", "made", "subject", "HOLD", "file")


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under names; ``words`` columns from the left are words, the others numbers."""

    head: tuple[str, ...]
    rows: Sequence[Sequence[object]]
    words: int = 1


Told = str | Table


def told(document: Document) -> Iterator[Told]:
    """Yield what a report says, its verdict first."""
    for comparison in document.comparisons:
        yield from _comparison(comparison)
    for gates in document.gates:
        yield from _gates(gates)
    for budget in document.budgets:
        yield from _budget(budget)
    for plain in document.plain:
        yield from _plain(plain)
    yield ""
    yield "not established:"
    for text, _ in document.limits:
        yield from _wrapped(text, "  - ")


def _wrapped(text: str, lead: str = "") -> Iterator[str]:
    yield from textwrap.wrap(
        text, WIDTH, initial_indent=lead, subsequent_indent=" " * len(lead)
    ) or [lead]


def _comparison(one: ComparisonFigures) -> Iterator[Told]:
    verdict = one.verdict
    yield from _wrapped(f"{verdict.word}: {verdict.sentence}")
    if verdict.figures:
        yield f"  {verdict.figures}"
    yield from _wrapped(f"because {verdict.because}", "  ")
    yield from _wrapped(f"endpoint: {verdict.endpoint}", "  ")
    yield from _wrapped(CONTROLLED, "  ")
    for half in one.halves:
        receipt = half.half.receipt
        state = "complete" if receipt.complete else "NOT COMPLETE"
        yield (
            f"  {receipt.half}: HOLD {receipt.hold.id}, fence {receipt.hold.fence}, "
            f"{receipt.made_at or 'no date'}, {state}"
        )
    cells = sorted(one.figures.cells, key=lambda cell: (Decimal(cell.temperature), cell.batch))
    yield from _titled("tokens per second", _speed(cells))
    yield from _titled("acceptance by position, percent of drafted rows", _acceptance(one))
    yield from _titled("draft latency of a step, milliseconds", _latency(cells))
    yield from _titled("memory over the sealed baseline, failed rounds", _arms(one.arms))
    yield from _titled("GPUs at the end of each round, least to most", _clocks(one.arms))
    for line in _slowed(one.arms):
        yield f"  slowed: {line}"


def _titled(title: str, table: Table) -> Iterator[Told]:
    if table.rows:
        yield ""
        yield title
        yield table


def _speed(cells: Sequence[Cell]) -> Table:
    return Table(
        ("T", "batch", "OFF tok/s", "ON tok/s", "change", "95 % interval", "pairs", ""),
        [
            (
                cell.temperature,
                cell.batch,
                "-" if cell.off is None else rate(float(cell.off.tokens_per_second)),
                "-" if cell.on is None else rate(float(cell.on.tokens_per_second)),
                "-" if cell.log_ratio is None else percent(float(cell.log_ratio)),
                "not computed"
                if cell.interval is None
                else interval(float(cell.interval.low), float(cell.interval.high)),
                "+".join(str(len(series.rounds)) for series in cell.series),
                "primary" if cell.primary else "",
            )
            for cell in cells
        ],
        words=0,
    )


def _acceptance(one: ComparisonFigures) -> Table:
    depth = max((len(rates) for row in one.acceptance for rates in row.rates.values()), default=0)
    rows = [
        (
            f"T = {row.temperature}",
            switch,
            *(f"{100 * value:.1f}" for value in rates),
            *("-" for _ in range(depth - len(rates))),
            "-" if not rates else f"{sum(rates):.2f}",
        )
        for row in one.acceptance
        for switch, rates in row.rates.items()
    ]
    head = ("", "switch", *(str(place + 1) for place in range(depth)), "mean tokens")
    return Table(head, rows, words=2)


def _latency(cells: Sequence[Cell]) -> Table:
    rows = []
    for cell in cells:
        row: list[object] = [cell.temperature, cell.batch]
        for side in (cell.off, cell.on):
            draft = None if side is None else side.draft
            waits = (
                () if draft is None else (draft.p50_ns, draft.p90_ns, draft.p99_ns, draft.max_ns)
            )
            row += [f"{wait / 1e6:.2f}" for wait in waits] or ["-"] * 4
        rows.append(row)
    names = ("p50", "p90", "p99", "max")
    head = ("T", "batch", *(f"OFF {name}" for name in names), *(f"ON {name}" for name in names))
    return Table(head, rows, words=0)


def _arms(arms: Sequence[ArmFigures]) -> Table:
    rows = []
    for arm in arms:
        nearest = max(arm.memory, key=lambda row: row.most / row.allowance, default=None)
        rows.append(
            (
                arm.arm,
                arm.switch,
                arm.verdict.replace("_", " "),
                "-" if nearest is None else nearest.source,
                "-" if nearest is None else growth(nearest.most),
                "-" if nearest is None else growth(nearest.allowance),
                arm.failures_grew,
            )
        )
    head = ("arm", "switch", "verdict", "most memory", "grew", "allowance", "failed more")
    return Table(head, rows, words=4)


def _clocks(arms: Sequence[ArmFigures]) -> Table:
    known = (("sm_mhz", "SM MHz", 1), ("power_mw", "W", 1000), ("temperature_c", "deg C", 1))
    rows = []
    for arm in arms:
        for rank in sorted({one.rank for one in arm.clocks}):
            values = {one.name: one.values for one in arm.clocks if one.rank == rank}
            rows.append(
                (
                    arm.arm,
                    f"GPU {rank}",
                    *(_ends(values.get(name, ()), unit) for name, _, unit in known),
                )
            )
    return Table(("arm", "GPU", *(title for _, title, _ in known)), rows, words=2)


def _ends(values: Sequence[int | None], unit: int) -> str:
    told_values = [value / unit for value in values if value is not None]
    return f"{min(told_values):.0f} to {max(told_values):.0f}" if told_values else "-"


def _slowed(arms: Sequence[ArmFigures]) -> Iterator[str]:
    for arm in arms:
        for reason, count in arm.slowed.items():
            yield f"{arm.arm}, {reason}: {count} of {arm.headline + arm.profiled} rounds"


def _gates(one: GatesFigures) -> Iterator[Told]:
    receipt = one.receipt
    yield ""
    yield from _wrapped(
        f"{receipt.verdict}: {receipt.kind}, scope {receipt.scope}, HOLD {receipt.hold.id}, "
        f"fence {receipt.hold.fence}, {receipt.made_at or 'no date'}"
    )
    yield Table(
        ("gate", "name", "verdict", "passed", "caught", "took"),
        [
            (
                gate.gate,
                gate.name,
                "holds" if gate.holds else "DOES NOT HOLD",
                f"{gate.passed} of {gate.to_pass}",
                f"{gate.caught} of {gate.to_catch}",
                span(gate.elapsed_ns),
            )
            for gate in one.gates
        ],
        words=3,
    )
    for gate in one.gates:
        for row in gate.arms:
            if row.gating and not row.as_expected:
                yield f"  gate {gate.gate}, {row.arm}: expected {row.expected}, found {row.found}"


def _budget(one: BudgetFigures) -> Iterator[Told]:
    receipt = one.receipt
    yield ""
    yield from _wrapped(
        f"{receipt.verdict}: budget, projected {span(int(receipt.projected_ns))} of a bound of "
        f"{span(int(receipt.bound_ns))}, expires {receipt.expires_at}"
    )
    yield Table(
        ("part", "worst measured", "times", "margin", "projected"),
        [
            (
                part.name,
                span(int(part.worst_ns)),
                part.times,
                f"{part.margin_percent} %",
                span(int(part.projected_ns)),
            )
            for part in receipt.parts
        ],
    )


def _plain(one: PlainFigures) -> Iterator[Told]:
    receipt = one.given.receipt
    yield ""
    yield from _wrapped(
        f"{receipt.kind}: {PurePath(one.given.file).name}, {receipt.made_at or 'no date'}"
    )
    for fact in one.facts:
        yield from _wrapped(fact.text, f"  {fact.name:<12} ")


def receipts(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Return a row for each receipt."""
    return [(row.kind, row.verdict, row.made, row.subject, row.hold, row.file) for row in rows]


def tree(chain: Sequence[Link], lead: str = "") -> Iterator[str]:
    """Yield a line for each link of a chain of evidence, with its branches."""
    for number, link in enumerate(chain):
        last = number == len(chain) - 1
        branch = "" if not lead and not link.role else "`-- " if last else "|-- "
        below = lead + ("" if not branch else "    " if last else "|   ")
        verdict = f" {link.verdict}" if link.verdict else ""
        role = f"{link.role}: " if link.role not in ("", link.kind) else ""
        yield f"{lead}{branch}{role}{link.kind}{verdict}"
        inner = below + ("|   " if link.below else "    ")
        yield f"{inner}sha256 {link.sha256}"
        yield f"{inner}{_where(link)}"
        yield from tree(link.below, below or "")


def _where(link: Link) -> str:
    if link.file is None:
        return "MISSING: no given file has this digest"
    state = "" if link.intact else ", DOES NOT VERIFY"
    again = ", told above" if link.told else ""
    return f"{link.file}{state}{again}"
