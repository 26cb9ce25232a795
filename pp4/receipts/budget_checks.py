"""What a budget is held to: its sums, and that it names every part of a window."""

from __future__ import annotations

from typing import Final

from pp4.errors import Code
from pp4.receipts.cells import Planned, name_of, planned
from pp4.receipts.checks import Check, compare, require
from pp4.receipts.gate_checks import journal_checks
from pp4.receipts.hardware_checks import gpu_names
from pp4.receipts.runs import Budget, BudgetPart

ARMS: Final = 2
ONCE: Final = ("staging", "qualification", "closing")
OF_ARM: Final = ("engine-start", "worker-start", "warm-up", "greedy")
"""Parts that a window has once, and once for each arm; other parts may stand beside them."""


def budget_checks(receipt: Budget) -> list[Check]:
    """Return the checks of a budget."""
    plan = planned(receipt.shapes)
    readable = isinstance(plan, Planned)
    expected = "shapes that say what a half consists of"
    total = sum(int(part.projected_ns) for part in receipt.parts)
    verdict = "fits" if int(receipt.projected_ns) <= int(receipt.bound_ns) else "over"
    return [
        gpu_names(receipt.gpus, receipt.private),
        *journal_checks(receipt.journal, receipt.hold.journal_head),
        require(
            "shapes", Code.CROSS_CHECK, readable, expected, expected if readable else str(plan)
        ),
        *(_part(part) for part in receipt.parts),
        *([_window(receipt, plan)] if isinstance(plan, Planned) else []),
        compare("budget-sum", Code.CROSS_CHECK, str(total), receipt.projected_ns),
        compare("budget-verdict", Code.CROSS_CHECK, verdict, receipt.verdict),
    ]


def parts_of(plan: Planned) -> dict[str, int]:
    """Return how often each part comes in a half, at least."""
    return {
        **dict.fromkeys(ONCE, 1),
        **dict.fromkeys(OF_ARM, ARMS),
        **{
            f"{phase}.{name_of(cell)}": ARMS * count
            for (phase, cell), count in plan.rounds().items()
        },
    }


def _part(part: BudgetPart) -> Check:
    exact = int(part.worst_ns) * part.times * (100 + part.margin_percent)
    name = f"budget-part {part.name}"
    return compare(name, Code.CROSS_CHECK, str(-(-exact // 100)), part.projected_ns)


def _window(receipt: Budget, plan: Planned) -> Check:
    """Check that no part of a window is left out, counted too seldom or named twice."""
    names = [part.name for part in receipt.parts]
    times = {part.name: part.times for part in receipt.parts}
    odd = [
        f"{name}: {times.get(name, 0)} of {least}"
        for name, least in parts_of(plan).items()
        if times.get(name, 0) < least
    ]
    odd += sorted({f"{name}: twice" for name in names if names.count(name) > 1})
    expected = "every part of a window, as often as it comes"
    return require("budget-parts", Code.CROSS_CHECK, not odd, expected, "; ".join(odd) or expected)
