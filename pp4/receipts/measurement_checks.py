"""What the receipt of a measured half is held to; its arms are in ``arm_checks``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Final

from pp4.errors import Code
from pp4.receipts.arm_checks import arm_checks
from pp4.receipts.cells import NAMES, PRIMARY, Planned, name_of, planned
from pp4.receipts.checks import Check, compare, require
from pp4.receipts.gate_checks import journal_checks
from pp4.receipts.hardware_checks import gpu_names
from pp4.receipts.measurement_journal import journal_of_arms, same_models
from pp4.receipts.ratios import ENDPOINT, NOISE, verdict_of
from pp4.receipts.runs import MeasuredArm, Measurement, Round, Summary

HALVES: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "A1B1": (("A1", "OFF"), ("B1", "ON")),
    "B2A2": (("B2", "ON"), ("A2", "OFF")),
}


RESTS_ON: Final = frozenset(
    {
        ("identity_reference", "solo"),
        ("identity_reference", "whole_worker"),
        ("budget", "budget"),
        ("qualification", "qualification"),
        ("first_half", "measurement"),
    }
)
"""Roles and kinds; the last one for the second half alone."""


def measurement_checks(receipt: Measurement) -> list[Check]:
    """Return the checks of a half."""
    plan = planned(receipt.settings)
    expected = f"the settings {', '.join(NAMES)}"
    readable = isinstance(plan, Planned) and receipt.settings.keys() >= set(NAMES)
    found = expected if readable else (plan if isinstance(plan, str) else "not all of them")
    return [
        gpu_names(receipt.gpus, receipt.private),
        compare("gpus", Code.DEVICE_MISMATCH, [0, 1], [gpu.rank for gpu in receipt.gpus]),
        *journal_checks(receipt.journal, receipt.hold.journal_head),
        journal_of_arms(receipt),
        same_models([receipt]),
        _rests_on(receipt),
        require("settings", Code.CROSS_CHECK, readable, expected, found),
        *_declared(receipt),
        *([] if isinstance(plan, str) else _planned_cells(plan)),
        *_arms(receipt),
        *(
            check
            for arm in receipt.arms
            for check in arm_checks(arm, None if isinstance(plan, str) else plan)
        ),
        *_alike(receipt.arms),
        *_first_half(receipt),
        *_summary(receipt),
        *_moments(receipt),
    ]


def _declared(receipt: Measurement) -> list[Check]:
    """The endpoint and the noise are the same in every receipt: nobody chooses them afterwards."""
    endpoint = receipt.endpoint
    found = (endpoint.metric, endpoint.batch, Decimal(endpoint.temperature))
    wanted = (ENDPOINT.metric, *PRIMARY)
    noise = Decimal(receipt.noise_threshold)
    return [
        compare("endpoint", Code.CROSS_CHECK, wanted, found),
        compare("noise-threshold", Code.CROSS_CHECK, NOISE, noise),
    ]


def _planned_cells(plan: Planned) -> list[Check]:
    names = [name_of(cell) for cell in plan.cells]
    has = PRIMARY in plan.cells
    return [
        require("endpoint-cell", Code.CROSS_CHECK, has, name_of(PRIMARY), ", ".join(names)),
        compare("depth", Code.CROSS_CHECK, 5, plan.depth),
    ]


def _arms(receipt: Measurement) -> list[Check]:
    found = tuple((arm.arm, arm.switch) for arm in receipt.arms)
    both = HALVES[receipt.half]
    wanted = both if receipt.complete else both[: len(found)]
    cut = [arm.arm for arm in receipt.arms if arm.verdict != "complete"]
    last = receipt.arms[-1].arm
    return [
        compare("arms-in-order", Code.CROSS_CHECK, wanted, found),
        require(
            "complete",
            Code.CROSS_CHECK,
            not (receipt.complete and cut),
            "complete only with every arm complete",
            f"complete: {receipt.complete}, arms that are not: {cut or 'none'}",
        ),
        require(
            "ended-there",
            Code.CROSS_CHECK,
            cut in ([], [last]),
            "no arm after one that is not complete",
            f"not complete: {', '.join(cut) or 'none'}; the last: {last}",
        ),
    ]


def _alike(arms: Sequence[MeasuredArm]) -> list[Check]:
    """Check that both arms did the same, as far as both have come."""
    if len(arms) < 2:
        return []
    pairs = list(zip(arms[0].rounds, arms[1].rounds, strict=False))
    return [
        compare("same-rounds", Code.CROSS_CHECK, [], other_rounds(pairs)),
        compare("same-greedy-outputs", Code.OUTPUT_MISMATCH, [], other_greedy_outputs(pairs)),
    ]


def other_rounds(pairs: Iterable[tuple[Round, Round]]) -> list[str]:
    """Return pairs of which the rounds are not of one phase, index and cell."""
    return [f"{one.phase} {one.index}" for one, other in pairs if _place(one) != _place(other)]


def other_greedy_outputs(pairs: Iterable[tuple[Round, Round]]) -> list[str]:
    """Return pairs at temperature 0 with different outputs.

    That is a wrong answer and no measurement: what is greedy has one right output, drafted or not.
    """
    return [
        f"{one.phase} {one.index}"
        for one, other in pairs
        if Decimal(one.temperature) == 0 and one.outputs_sha256 != other.outputs_sha256
    ]


def _place(one: Round) -> tuple[str, int, int, Decimal]:
    return one.phase, one.index, one.batch, Decimal(one.temperature)


def _rests_on(receipt: Measurement) -> Check:
    """Hold a complete half to everything that had to come before it; each of it once."""
    found = sorted((one.role, one.kind) for one in receipt.evidence)
    needed = {row for row in RESTS_ON if row[0] != "first_half" or receipt.half == "B2A2"}
    missing = [f"{kind} as {role}" for role, kind in sorted(needed) if (role, kind) not in found]
    odd = missing if receipt.complete else []
    odd += [f"two {kind} as {role}" for (role, kind), n in Counter(found).items() if n > 1]
    expected = "each receipt that a half rests on, once"
    found_text = ", ".join(odd) if odd else expected
    return require("rests-on", Code.EVIDENCE_MISSING, not odd, expected, found_text)


def _first_half(receipt: Measurement) -> list[Check]:
    rests = any(reference.role == "first_half" for reference in receipt.evidence)
    second, closed = receipt.half == "B2A2", receipt.first_half_closed
    checks = [
        compare("first-half", Code.CROSS_CHECK, (second, second), (rests, closed is not None))
    ]
    if closed is None:
        return checks
    hold = receipt.hold
    other = closed.hold_id != hold.id and int(closed.fence) < int(hold.fence)
    expected = "another HOLD than the first, with a higher fence"
    found = f"{hold.id}, fence {hold.fence}; the first: {closed.hold_id}, fence {closed.fence}"
    return [
        *checks,
        require("second-hold", Code.CROSS_CHECK, other, expected, found),
        compare("first-restored", Code.NOT_RESTORED, "done", closed.restore),
    ]


def _summary(receipt: Measurement) -> list[Check]:
    summary = receipt.summary
    allowed = summary is None or (receipt.half == "B2A2" and receipt.complete)
    expected = "a summary only where both halves are complete"
    found = "a summary" if summary else "none"
    checks = [require("summary", Code.CROSS_CHECK, allowed, expected, found)]
    if summary is None:
        return checks
    return [*checks, *summary_checks(summary, Decimal(receipt.noise_threshold))]


def summary_checks(summary: Summary, noise: Decimal) -> list[Check]:
    """Return the checks of a summary by its own numbers.

    Args:
        summary: of two halves.
        noise: the threshold.
    """
    effect, drift = Decimal(summary.effect), Decimal(summary.drift)
    low, high = Decimal(summary.interval_low), Decimal(summary.interval_high)
    found = f"{low} <= {effect} <= {high}"
    verdict = verdict_of(effect, low, high, drift, noise)
    return [
        require(
            "summary-interval",
            Code.CROSS_CHECK,
            low <= effect <= high,
            "an interval around the effect",
            found,
        ),
        compare("summary-verdict", Code.CROSS_CHECK, verdict, summary.verdict),
    ]


def _moments(receipt: Measurement) -> list[Check]:
    backwards = [
        f"{span.kind} {span.name}"
        for span in receipt.timeline
        if int(span.begin_ns) > int(span.end_ns)
    ]
    beats = [int(beat) for beat in receipt.heartbeats_ns]
    rising = all(earlier < later for earlier, later in pairwise(beats))
    return [
        compare("timeline", Code.CROSS_CHECK, [], backwards),
        require(
            "heartbeats",
            Code.CROSS_CHECK,
            rising,
            "moments that rise",
            f"{len(beats)} moments, {'rising' if rising else 'not rising'}",
        ),
    ]
