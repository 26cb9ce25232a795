"""Everything that a report says, as one value: the terminal, the page and ``--json`` draw it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from pp4.receipts.figures import Figures, Interval
from pp4.receipts.gates import Qualification, Rehearsal, Solo
from pp4.receipts.runs import Budget, Measurement, Summary
from pp4.report.acceptance import Acceptance, acceptance
from pp4.report.arms import ArmFigures, arm_figures
from pp4.report.assembled import Comparison, Half, assemble
from pp4.report.evidence import Link, trees
from pp4.report.gates import GateFigures, gate_figures
from pp4.report.given import Given
from pp4.report.plain import Fact, facts_of
from pp4.report.verdict import Verdict, verdict_of

Describe = Callable[[Sequence[Measurement]], Figures]
"""From halves to the figures of their cells: what :mod:`pp4.measure` does."""


@dataclass(frozen=True, slots=True)
class HalfFigures:
    """One half with its arms."""

    half: Half
    arms: tuple[ArmFigures, ...]

    @property
    def order(self) -> str:
        """Its arms in the order in which they ran: ``A1 OFF, B1 ON``."""
        return ", ".join(f"{arm.arm} {arm.switch}" for arm in self.arms)

    @property
    def title(self) -> str:
        """Which HOLD it was, and its order."""
        number = "First" if self.half.receipt.half == "A1B1" else "Second"
        return f"{number} HOLD: {self.order}"


@dataclass(frozen=True, slots=True)
class ComparisonFigures:
    """One comparison of OFF and ON."""

    verdict: Verdict
    halves: tuple[HalfFigures, ...]
    figures: Figures
    acceptance: tuple[Acceptance, ...]

    @property
    def receipts(self) -> tuple[Measurement, ...]:
        """The halves' receipts."""
        return tuple(one.half.receipt for one in self.halves)

    @property
    def arms(self) -> tuple[ArmFigures, ...]:
        """Every arm, in the order in which they ran."""
        return tuple(arm for half in self.halves for arm in half.arms)


@dataclass(frozen=True, slots=True)
class GatesFigures:
    """A receipt with gates."""

    given: Given
    receipt: Qualification | Rehearsal | Solo
    gates: tuple[GateFigures, ...]


@dataclass(frozen=True, slots=True)
class BudgetFigures:
    """A budget."""

    given: Given
    receipt: Budget


@dataclass(frozen=True, slots=True)
class PlainFigures:
    """A receipt of another kind, told in a few facts."""

    given: Given
    facts: tuple[Fact, ...]


@dataclass(frozen=True, slots=True)
class Document:
    """A report.

    Attributes:
        comparisons: halves that were given, those that belong together as one.
        gates: qualifications, solo runs and rehearsals.
        budgets: budgets.
        plain: all other receipts.
        limits: what is not established, each once, with the files that say so.
        chain: the trees of evidence.
        count: receipts.
    """

    comparisons: tuple[ComparisonFigures, ...]
    gates: tuple[GatesFigures, ...]
    budgets: tuple[BudgetFigures, ...]
    plain: tuple[PlainFigures, ...]
    limits: tuple[tuple[str, tuple[str, ...]], ...]
    chain: tuple[Link, ...]
    count: int

    def as_dict(self) -> dict[str, object]:
        """Return plain JSON-ready values."""
        return {
            "comparisons": [_comparison(one) for one in self.comparisons],
            "gates": [
                {
                    **_header(one.given),
                    "scope": one.receipt.scope,
                    "verdict": one.receipt.verdict,
                    "hold": one.receipt.hold.model_dump(mode="json"),
                    "gates": [{**asdict(gate), "holds": gate.holds} for gate in one.gates],
                }
                for one in self.gates
            ],
            "budgets": [
                {
                    **_header(one.given),
                    "verdict": one.receipt.verdict,
                    "projected_ns": one.receipt.projected_ns,
                    "bound_ns": one.receipt.bound_ns,
                    "parts": [part.model_dump(mode="json") for part in one.receipt.parts],
                }
                for one in self.budgets
            ],
            "others": [
                {**_header(one.given), "facts": [asdict(fact) for fact in one.facts]}
                for one in self.plain
            ],
            "not_established": [
                {"text": text, "files": list(files)} for text, files in self.limits
            ],
            "evidence": [asdict(link) for link in self.chain],
        }


def document(files: Sequence[Given], describe: Describe) -> Document:
    """Return everything that a report of these receipts says.

    Args:
        files: receipts that verified.
        describe: see :data:`Describe`.
    """
    assembled = assemble(files)
    beside = [one for comparison in assembled.comparisons for one in comparison.beside]
    rest = [*beside, *assembled.others]
    return Document(
        comparisons=tuple(_figures(one, describe) for one in assembled.comparisons),
        gates=tuple(
            GatesFigures(one, one.receipt, gate_figures(one.receipt))
            for one in rest
            if isinstance(one.receipt, Qualification | Rehearsal | Solo)
        ),
        budgets=tuple(
            BudgetFigures(one, one.receipt) for one in rest if isinstance(one.receipt, Budget)
        ),
        plain=tuple(
            PlainFigures(one, facts_of(one.receipt))
            for one in rest
            if not isinstance(one.receipt, Qualification | Rehearsal | Solo | Budget)
        ),
        limits=_limits(files),
        chain=trees(files),
        count=len(files),
    )


def _figures(comparison: Comparison, describe: Describe) -> ComparisonFigures:
    receipts = [half.receipt for half in comparison.halves]
    return ComparisonFigures(
        verdict=verdict_of(comparison),
        halves=tuple(
            HalfFigures(half, tuple(map(arm_figures, half.receipt.arms)))
            for half in comparison.halves
        ),
        figures=_with_summary(describe(receipts), comparison.summary),
        acceptance=acceptance(receipts),
    )


def _with_summary(figures: Figures, summary: Summary | None) -> Figures:
    """Give the primary cell the interval of the summary, where none could be computed here."""
    if summary is None:
        return figures
    stated = Interval(low=summary.interval_low, high=summary.interval_high)
    cells = (
        cell.model_copy(update={"interval": stated})
        if cell.primary and cell.log_ratio is not None and cell.interval is None
        else cell
        for cell in figures.cells
    )
    return figures.model_copy(update={"cells": tuple(cells)})


def _limits(files: Sequence[Given]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    found: dict[str, list[str]] = {}
    for one in files:
        for text in one.says:
            found.setdefault(text, []).append(one.file)
    return tuple((text, tuple(dict.fromkeys(names))) for text, names in found.items())


def _header(given: Given) -> dict[str, object]:
    return {
        "file": given.file,
        "kind": given.receipt.kind,
        "sha256": given.sha256,
        "digest": given.receipt.digest,
        "made_at": given.receipt.made_at,
    }


def _comparison(one: ComparisonFigures) -> dict[str, object]:
    return {
        "verdict": asdict(one.verdict),
        "halves": [
            {
                **_header(half.half.given),
                "half": half.half.receipt.half,
                "complete": half.half.receipt.complete,
                "hold": half.half.receipt.hold.model_dump(mode="json"),
                "timeline": [span.model_dump(mode="json") for span in half.half.receipt.timeline],
                "heartbeats_ns": list(half.half.receipt.heartbeats_ns),
                "arms": [asdict(arm) for arm in half.arms],
            }
            for half in one.halves
        ],
        "figures": one.figures.model_dump(mode="json"),
        "acceptance": [asdict(row) for row in one.acceptance],
    }
