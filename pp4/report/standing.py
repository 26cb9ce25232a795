"""How a comparison was run, as sections of a page: memory, failed rounds, clocks, its HOLDs."""

from __future__ import annotations

from collections.abc import Sequence

from pp4.receipts.runs import Measurement
from pp4.report.arms import ArmFigures
from pp4.report.document import ComparisonFigures
from pp4.report.layout import MOST_PANELS, Panel, Section, Table
from pp4.report.plots import clocks as clocks_plot
from pp4.report.plots import memory as memory_plot
from pp4.report.plots import timeline as timeline_plot
from pp4.report.words import NONE, brief, growth, size, span


def memory_section(one: ComparisonFigures, mark: str) -> Section | None:
    """Tell memory over the sealed baseline, and what failed."""
    arms = one.arms
    sources = sorted({memory.source for arm in arms for memory in arm.memory})
    if not sources:
        return None
    panels = []
    for number, source in enumerate(sources[:MOST_PANELS]):
        told = [(arm, row) for arm in arms for row in arm.memory if row.source == source]
        arm, most = max(told, key=lambda pair: pair[1].most)
        note = f"at most {growth(most.most)} ({arm.arm})" if most.most > 0 else "did not grow"
        drawing = memory_plot.draw(f"{mark}memory-{number}", source, told)
        panels.append(Panel(drawing, title=source, note=note))
    return Section(
        f"{mark}memory",
        "Memory and failed rounds",
        f"{_failed(arms)} Memory is shown as growth over the baseline that was sealed before the "
        "first timed round. The dotted line is the allowance, the larger of 1 % and 16 MiB. OFF "
        "arms are dashed, ON arms solid.",
        panels=tuple(panels),
        tables=(_arms_table(arms),),
        details=(_memory_table(arms), _counters_table(arms)),
        notes=_unsupported(arms),
        small=True,
        breaks=True,
    )


def _failed(arms: Sequence[ArmFigures]) -> str:
    worse = [f"{arm.arm} has {arm.failures_grew} more" for arm in arms if arm.failures_grew]
    if worse:
        return f"Failed rounds over the baseline: {', '.join(worse)}."
    return "No arm has more failed rounds than its baseline."


def _arms_table(arms: Sequence[ArmFigures]) -> Table:
    return Table(
        "The arms in the order in which they ran",
        (
            "arm",
            "switch",
            "verdict",
            "baseline",
            "headline rounds",
            "profiled",
            "failed over baseline",
        ),
        tuple(
            (
                arm.arm,
                arm.switch,
                arm.verdict.replace("_", " "),
                brief(arm.baseline_sha256),
                str(arm.headline),
                str(arm.profiled),
                str(arm.failures_grew),
            )
            for arm in arms
        ),
        words=4,
    )


def _memory_table(arms: Sequence[ArmFigures]) -> Table:
    return Table(
        "Memory by source",
        ("source", "arm", "baseline", "most over it", "at the end", "allowance"),
        tuple(
            (
                row.source,
                arm.arm,
                size(row.baseline),
                growth(row.most),
                NONE if not row.growth or row.growth[-1] is None else growth(row.growth[-1]),
                growth(row.allowance),
            )
            for arm in arms
            for row in arm.memory
        ),
        words=2,
    )


def _counters_table(arms: Sequence[ArmFigures]) -> Table:
    return Table(
        "Failed rounds by cause, and all other counters",
        ("arm", "what", "baseline", "last", "grew"),
        tuple(
            (arm.arm, f"{kind}{row.name}", str(row.baseline), str(row.last), f"{row.grew:+d}")
            for arm in arms
            for kind, rows in (("failed: ", arm.failed_rounds), ("", arm.counters))
            for row in rows
        ),
        words=2,
    )


def _unsupported(arms: Sequence[ArmFigures]) -> tuple[str, ...]:
    found = {
        f"{source} gave no number: {why}."
        for arm in arms
        for source, why in arm.unsupported.items()
    }
    return tuple(sorted(found))


def clocks_section(one: ComparisonFigures, mark: str) -> Section | None:
    """Tell what NVML said at the end of each round."""
    known = clocks_plot.quantities(one.arms)
    reasons = sorted({reason for arm in one.arms for reason in arm.slowed})
    slowed = [
        f"{reason}: at the end of "
        + ", ".join(
            f"{arm.slowed.get(reason, 0)} of {arm.headline + arm.profiled} rounds of {arm.arm}"
            for arm in one.arms
        )
        + "."
        for reason in reasons
    ]
    silent = sorted({f"No answer: {text}." for arm in one.arms for text in arm.unanswered})
    if not (known or slowed or silent):
        return None
    return Section(
        f"{mark}clocks",
        "Clocks, power, temperature",
        "As NVML told them at the end of each round; nothing of it was set. Solid is GPU 0, dotted "
        "GPU 1.",
        panels=tuple(
            Panel(
                clocks_plot.draw(f"{mark}clocks-{number}", row, one.arms),
                title=row.title,
                note=row.unit,
            )
            for number, row in enumerate(known)
            if row.drawn
        ),
        details=(_clocks_table(one.arms, known),) if known else (),
        notes=(*(slowed or ["No GPU gave a reason for being slowed down."]), *silent),
        small=True,
    )


def _clocks_table(arms: Sequence[ArmFigures], known: Sequence[clocks_plot.Quantity]) -> Table:
    rows = []
    for quantity in known:
        for arm in arms:
            for one in arm.clocks:
                told = sorted(value for value in one.values if value is not None)
                if one.name == quantity.name and told:
                    ends = (told[0], told[(len(told) - 1) // 2], told[-1])
                    values = (f"{value / quantity.per_unit:,g}" for value in ends)
                    unit = f"{quantity.title}, {quantity.unit}" if quantity.unit else quantity.title
                    rows.append((unit, arm.arm, f"GPU {one.rank}", *values))
    head = ("quantity", "arm", "GPU", "least", "median", "most")
    return Table("Clocks, power and temperature by arm", head, tuple(rows), words=3)


def timeline_section(one: ComparisonFigures, mark: str) -> Section | None:
    """Tell how both HOLDs went."""
    told = [half for half in one.halves if half.half.receipt.timeline]
    if not told:
        return None
    end = max(timeline_plot.longest(half.half.receipt) for half in told)
    return Section(
        f"{mark}holds",
        "The HOLDs",
        "Each half ran in a HOLD of its own, which began with the gates and was closed and "
        "restored before the next. Times are the coordinator's.",
        panels=tuple(
            Panel(
                timeline_plot.draw(f"{mark}hold-{number}", half.half.receipt, end),
                title=half.title,
                note=timeline_plot.described(half.half.receipt),
            )
            for number, half in enumerate(told)
        ),
        details=tuple(_spans_table(half.half.receipt) for half in told),
        breaks=True,
    )


def _spans_table(half: Measurement) -> Table:
    return Table(
        f"Steps, gates, arms and phases of {half.half}",
        ("what", "name", "began", "took"),
        tuple(
            (
                one.kind,
                one.name,
                span(int(one.begin_ns)),
                span(int(one.end_ns) - int(one.begin_ns)),
            )
            for one in sorted(half.timeline, key=lambda other: int(other.begin_ns))
        ),
        words=2,
    )
