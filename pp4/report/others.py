"""Receipts beside or without a comparison as sections of a page: gates, budgets, other kinds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from pp4.report.document import BudgetFigures, Document, GatesFigures, PlainFigures
from pp4.report.evidence import word_of
from pp4.report.gates import ArmRow, GateFigures
from pp4.report.layout import Head, Panel, Section, Table
from pp4.report.plots import budget as budget_plot
from pp4.report.words import NONE, span

KINDS = {
    "qualification": "Qualification of the pair",
    "solo": "Solo qualification",
    "rehearsal": "Rehearsal on a CPU",
    "whole_worker": "Whole worker",
    "preparation": "Preparation of a runner tree",
    "refusal": "Refusal",
    "incident": "Incident",
    "budget": "Budget of a window",
}
"""What a kind is called above its section."""


def head_of(document: Document) -> Head:
    """Return the head of a page without a comparison."""
    receipts: list[GatesFigures | BudgetFigures | PlainFigures] = [
        *document.gates,
        *document.budgets,
        *document.plain,
    ]
    if len(receipts) != 1:
        return Head("Receipts", f"{len(receipts)} RECEIPTS", "Each verified; each for itself.")
    one = receipts[0]
    receipt = one.given.receipt
    made = receipt.made_at or "no date"
    return Head(
        KINDS[receipt.kind],
        word_of(receipt).upper(),
        _sentence(one),
        facts=(
            ("Made", made),
            ("File", PurePath(one.given.file).name),
            ("Source", f"{receipt.source.digest}, pp4 {receipt.tool.version}"),
        ),
    )


def _sentence(one: GatesFigures | BudgetFigures | PlainFigures) -> str:
    if isinstance(one, GatesFigures):
        holding = sum(gate.holds for gate in one.gates)
        caught = sum(gate.caught for gate in one.gates)
        planted = sum(gate.to_catch for gate in one.gates)
        return (
            f"{holding} of {len(one.gates)} gates hold; {caught} of {planted} planted faults were "
            "caught."
        )
    if isinstance(one, BudgetFigures):
        projected, bound = int(one.receipt.projected_ns), int(one.receipt.bound_ns)
        return f"The window is projected to take {span(projected)} of at most {span(bound)}."
    shows = one.given.shows[0].partition("; verdict:")[0]
    return f"{shows[:1].upper()}{shows[1:]}."


def gates_section(one: GatesFigures, number: int, half: str = "") -> Section:
    """Tell the gates of one receipt with their planted faults.

    Args:
        one: the receipt.
        number: tells the section from others of its kind.
        half: in whose HOLD they ran, where that half is on the page.
    """
    receipt = one.receipt
    lost = sum(not gate.holds for gate in one.gates)
    gpus = ", ".join(sorted({gpu.name for gpu in receipt.gpus})) or "no GPU"
    lead = (
        f"{receipt.verdict}, scope {receipt.scope}, {gpus}; HOLD {receipt.hold.id}, fence "
        f"{receipt.hold.fence}; {receipt.made_at or 'no date'}. In each gate what is sound has to "
        "pass, and planted faults have to be caught."
    )
    return Section(
        f"gates-{number}",
        f"Gates of the {half} HOLD" if half else KINDS[receipt.kind],
        lead,
        tables=(_gates_table(one.gates),),
        details=(_arms_table(one.gates),),
        notes=(f"{lost} gates do not hold.",) if lost else (),
        breaks=number == 0,
    )


def _gates_table(gates: Sequence[GateFigures]) -> Table:
    return Table(
        "Gates",
        ("gate", "name", "verdict", "sound arms passed", "planted faults caught", "took"),
        tuple(
            (
                str(gate.gate),
                gate.name,
                "✓ holds" if gate.holds else "✗ DOES NOT HOLD",
                f"{gate.passed} of {gate.to_pass}",
                f"{gate.caught} of {gate.to_catch}",
                span(gate.elapsed_ns),
            )
            for gate in gates
        ),
        words=3,
        marked=frozenset(place for place, gate in enumerate(gates) if not gate.holds),
    )


def _arms_table(gates: Sequence[GateFigures]) -> Table:
    every = [(gate, row) for gate in gates for row in gate.arms]
    return Table(
        "Every arm of every gate",
        ("gate", "arm", "had to", "found", "", "repetitions", "took"),
        tuple(
            (
                str(gate.gate),
                row.arm,
                row.expected,
                row.found,
                _judged(row),
                f"{row.repetitions:,}",
                span(row.elapsed_ns),
            )
            for gate, row in every
        ),
        words=5,
        marked=frozenset(
            place for place, (_, row) in enumerate(every) if row.gating and not row.as_expected
        ),
    )


def _judged(row: ArmRow) -> str:
    if not row.gating:
        return "recorded"
    return "✓ as expected" if row.as_expected else "✗ WRONG"


def budget_section(one: BudgetFigures, number: int) -> Section:
    """Tell the parts of a projected window."""
    receipt = one.receipt
    total = int(receipt.projected_ns)
    fits = "fits" if receipt.verdict == "fits" else "does not fit"
    rows = [
        (
            part.name,
            span(int(part.worst_ns)),
            str(part.times),
            f"{part.margin_percent} %",
            span(int(part.projected_ns)),
            f"{100 * int(part.projected_ns) / total:.0f} %" if total else NONE,
        )
        for part in receipt.parts
    ]
    rows.append(("all", "", "", "", span(total), "100 %"))
    table = Table(
        "Parts of the window",
        ("part", "worst measured", "times", "margin", "projected", "share"),
        tuple(rows),
        marked=frozenset({len(rows) - 1}),
    )
    return Section(
        f"budget-{number}",
        KINDS["budget"],
        f"The window {fits}: projected {span(total)} of a bound of {span(int(receipt.bound_ns))}, "
        "which is the worst measured time of each part with its margin. Expires "
        f"{receipt.expires_at}.",
        panels=(Panel(budget_plot.draw(f"parts-{number}", receipt)),),
        tables=(table,),
    )


def plain_section(one: PlainFigures, number: int) -> Section:
    """Tell a receipt of another kind."""
    kind = one.given.receipt.kind
    rows = tuple((fact.name, fact.text) for fact in one.facts)
    return Section(
        f"other-{number}",
        KINDS.get(kind, kind),
        one.given.receipt.made_at or "no date",
        tables=(Table(KINDS.get(kind, kind), ("what", "is"), rows, words=2, wraps=True),),
    )
