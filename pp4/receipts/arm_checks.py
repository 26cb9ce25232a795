"""What an arm of a measurement is held to: its own numbers, its settings, its verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Final

from pp4.errors import Code
from pp4.receipts.cells import Planned, name_of
from pp4.receipts.checks import Check, compare, require
from pp4.receipts.digests import tree_digest
from pp4.receipts.growth import arm_verdict, heavier, more_failures, sloping
from pp4.receipts.runs import MeasuredArm, Round, Snapshot

LABELS: Final = ("baseline", "headline", "profiled", "final")
"""Of an arm's snapshots, in their order."""


def arm_checks(arm: MeasuredArm, plan: Planned | None) -> list[Check]:
    """Return the checks of one arm.

    Args:
        arm: of a measurement.
        plan: its settings, or None where they cannot be read.
    """
    name, complete = arm.arm, arm.verdict == "complete"
    labels = tuple(one.label for one in arm.snapshots)
    wanted = LABELS if complete else LABELS[: len(labels)]
    sealed = tree_digest(arm.snapshots[0].model_dump(mode="json"))
    checks = [
        compare(f"baseline {name}", Code.CROSS_CHECK, sealed, arm.baseline_sha256),
        compare(f"snapshots {name}", Code.CROSS_CHECK, wanted, labels),
        compare(f"failed-rounds {name}", Code.CROSS_CHECK, [], _fallen(arm.snapshots)),
        _growth(arm),
        _order(arm),
        _consistent(arm, plan),
    ]
    return checks if plan is None else [*checks, _cells(arm, plan)]


def _fallen(snapshots: Sequence[Snapshot]) -> list[str]:
    """Return causes that counted less later on: whatever counts does not run backwards."""
    return [
        f"{cause} in {later.label}"
        for earlier, later in pairwise(snapshots)
        for cause, count in earlier.failed_rounds.items()
        if int(later.failed_rounds.get(cause, "0")) < int(count)
    ]


def _growth(arm: MeasuredArm) -> Check:
    """Hold the verdict to what grew; an arm that was cut for another reason may have grown too."""
    first, *later = arm.snapshots
    # The slope is that of the last quarter of all rounds: they are over at the profiled snapshot.
    whole = arm.rounds if any(one.label == LABELS[2] for one in later) else ()
    judged = arm_verdict(arm.snapshots, whole)
    grown = [f"{name} in {one.label}" for one in later for name in more_failures(first, one)]
    grown += [f"{name} in {one.label}" for one in later for name in heavier(first, one)]
    grown += [f"{name} by round" for name in sloping(first, whole)]
    expected = "a verdict that follows from snapshots and rounds"
    found = f"{arm.verdict}; grew: {', '.join(grown) or 'nothing'}"
    agrees = arm.verdict in (judged, "partial")
    return require(f"growth {arm.arm}", Code.CROSS_CHECK, agrees, expected, found)


def _order(arm: MeasuredArm) -> Check:
    order = [(one.phase, one.index) for one in arm.rounds]
    headline = sum(phase == "headline" for phase, _ in order)
    wanted = [("headline", index) for index in range(headline)]
    wanted += [("profiled", index) for index in range(len(order) - headline)]
    same = order == wanted
    return require(
        f"rounds {arm.arm}",
        Code.CROSS_CHECK,
        same and (bool(order) or arm.verdict != "complete"),
        "headline rounds, then profiled rounds, each counted from 0",
        f"{len(order)} rounds, {'in' if same else 'out of'} order",
    )


def _cells(arm: MeasuredArm, plan: Planned) -> Check:
    """Hold the rounds to the settings: all of them, or for an arm that was cut no others."""
    wanted = plan.rounds()
    found = Counter((one.phase, (one.batch, Decimal(one.temperature))) for one in arm.rounds)
    odd = [
        f"{phase} {name_of(cell)}: {found[phase, cell]} of {wanted[phase, cell]}"
        for phase, cell in [*wanted, *(found.keys() - wanted.keys())]
        if found[phase, cell] > wanted[phase, cell]
        or (found[phase, cell] < wanted[phase, cell] and arm.verdict == "complete")
    ]
    expected = "as many rounds of each cell as the settings say"
    return require(
        f"cells {arm.arm}", Code.CROSS_CHECK, not odd, expected, "; ".join(odd) or expected
    )


def _consistent(arm: MeasuredArm, plan: Planned | None) -> Check:
    """Return the first thing in which a round contradicts itself or the settings."""
    rules = [*_OF_ROUND, *(() if plan is None else _of_settings(plan))]
    odd = next(
        (
            f"{one.phase} {one.index}: {what}"
            for one in arm.rounds
            for rule, what in rules
            if not rule(one)
        ),
        "",
    )
    expected = "rounds whose numbers fit each other"
    return require(f"numbers {arm.arm}", Code.CROSS_CHECK, not odd, expected, odd or expected)


Rule = tuple[Callable[[Round], bool], str]


def _parts(one: Round) -> bool:
    steps = len(one.draft_ns) if one.phase == "profiled" else 0
    return len(one.target_ns) == len(one.verify_ns) == steps


def _within(one: Round) -> bool:
    parts = (*one.draft_ns, *one.target_ns, *one.verify_ns)
    # Each part was rounded to a nanosecond for itself.
    return sum(parts) <= int(one.elapsed_ns) + len(parts)


_OF_ROUND: Final[tuple[Rule, ...]] = (
    (lambda one: one.batch > 0 and one.tokens > 0, "no requests or no tokens"),
    (lambda one: int(one.elapsed_ns) > 0, "no time"),
    (lambda one: len(one.draft_ns) > 0, "no steps"),
    (
        lambda one: all(earlier >= later for earlier, later in pairwise(one.accepted_by_position)),
        "acceptance rises by position",
    ),
    (
        lambda one: all(rows <= one.drafted for rows in one.accepted_by_position[:1]),
        "more accepted than drafted",
    ),
    (lambda one: one.drafted <= one.batch * len(one.draft_ns), "more drafted than rows of steps"),
    (_parts, "target_ns and verify_ns of each step in profiled rounds, and in no others"),
    (_within, "parts that are longer than the round"),
)


def _of_settings(plan: Planned) -> tuple[Rule, ...]:
    return (
        (
            lambda one: one.tokens == one.batch * plan.new_tokens,
            f"tokens other than {plan.new_tokens} for each request",
        ),
        (
            lambda one: len(one.accepted_by_position) == plan.depth,
            f"acceptance of other than {plan.depth} positions",
        ),
    )
