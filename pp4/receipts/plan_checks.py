"""Whether a receipt holds the arms that the plan of its schema has: a gate is more than its number.

The tables belong to the version of the schema, see :mod:`pp4.receipts.plan`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pp4.errors import Code
from pp4.receipts.checks import Check, require
from pp4.receipts.gates import GateBody, Qualification, Solo
from pp4.receipts.plan import HARDWARE, PLAN, RECORDED, SOLO_PLAN, PlannedGate

__all__ = [
    "FLOORS",
    "FULL_FLOORS",
    "FULL_PLAN",
    "HARDWARE",
    "PLAN",
    "RECORDED",
    "SOLO_PLAN",
    "PlannedGate",
    "floor_check",
    "floors_of",
    "plan_checks",
    "plan_of",
]

FULL_PLAN: Final[Mapping[int, PlannedGate]] = {
    6: PlannedGate(
        "whole-worker identity",
        {
            "worker-equals-archive": "pass",
            "flipped-archive-byte": "caught(OUTPUT_MISMATCH)",
            "other-gpu-model": "caught(SUBJECT_MISMATCH)",
        },
    ),
}
"""What the scope ``full`` adds to :data:`PLAN`."""

FLOORS: Final[Mapping[str, Mapping[str, int]]] = {
    "qualification": {
        "gate-0/data-pattern": 200_000,  # 100,000 epochs each way
        "gate-2/many-rows": 100_000,
        "gate-3/replay-equals-eager": 1_000,
    },
    "solo": {
        "gate-2/many-rows": 100_000,
        "gate-3/replay-equals-eager": 1_000,
    },
}
"""Kind to arm to the fewest repetitions under a good verdict.  A rehearsal has none: on a CPU a few
show that the machinery works, and nothing else is claimed."""


FULL_FLOORS: Final[Mapping[str, int]] = {"gate-6/worker-equals-archive": 54}
"""What the scope ``full`` adds: the blocks of the whole set of frozen inputs."""


def floors_of(kind: str, scope: str) -> dict[str, int]:
    """Return arm to the fewest repetitions under a good verdict; none for a rehearsal."""
    floors = dict(FLOORS.get(kind, {}))
    return {**floors, **FULL_FLOORS} if floors and scope == "full" else floors


def plan_of(kind: str, scope: str) -> dict[int, PlannedGate]:
    """Return gate to name and arms that a receipt cannot lack.

    Args:
        kind: ``rehearsal``, ``qualification`` or ``solo``.
        scope: ``solo``, ``kernels``, or ``full``, which is ``kernels`` and gate 6.
    """
    if scope == "solo":
        return dict(SOLO_PLAN)
    whole = {**PLAN, **FULL_PLAN} if scope == "full" else dict(PLAN)
    for number, more in HARDWARE.items() if kind == "qualification" else ():
        name, arms = whole[number]
        whole[number] = PlannedGate(name, {**arms, **more.arms})
    return whole


def plan_checks(receipt: GateBody, kind: str, scope: str) -> list[Check]:
    """Return the checks of the arms against the plan of ``pp4-receipt/1``.

    Args:
        receipt: a receipt with gates.
        kind: its kind.
        scope: its scope.
    """
    return [_gating(receipt), _arms_required(receipt, plan_of(kind, scope))]


def floor_check(receipt: Qualification | Solo, kind: str) -> Check:
    """Return the check that the arms which count, counted far enough.

    Args:
        receipt: a receipt with gates and a good verdict.
        kind: ``qualification`` or ``solo``.
    """
    counts = {
        f"gate-{gate.gate}/{arm.arm}": arm.repetitions
        for gate in receipt.gates
        for arm in gate.arms
    }
    floors = floors_of(kind, receipt.scope)
    short = [
        f"{name} {counts.get(name, 'none')} of {least}"
        for name, least in floors.items()
        if counts.get(name, 0) < least
    ]
    expected = ", ".join(f"{name} {least}" for name, least in floors.items())
    return require(
        "repetitions",
        Code.GATE_NOT_RUN,
        not short,
        f"at least {expected}",
        "; ".join(short) or "as many, or more",
    )


def _gating(receipt: GateBody) -> Check:
    loose = [
        f"gate-{gate.gate}/{arm.arm} expected {arm.expected}"
        for gate in receipt.gates
        for arm in gate.arms
        if not arm.gating and (arm.expected == "pass" or arm.arm not in RECORDED)
    ]
    expected = f"every arm gates, but for the controls {', '.join(sorted(RECORDED))}"
    found = "not gating: " + "; ".join(loose) if loose else expected
    return require("arms-gate", Code.CROSS_CHECK, not loose, expected, found)


def _arms_required(receipt: GateBody, table: Mapping[int, PlannedGate]) -> Check:
    odd = []
    for gate in receipt.gates:
        planned = table.get(gate.gate)
        if planned is None:
            continue
        if gate.name != planned.name:
            odd.append(f"gate {gate.gate} is called {gate.name}, not {planned.name}")
        present = {(arm.arm, arm.expected) for arm in gate.arms}
        odd += [
            f"gate-{gate.gate}/{arm} {expected}"
            for arm, expected in planned.arms.items()
            if (arm, expected) not in present
        ]
    expected = "in every gate the arms of the plan of pp4-receipt/1, by name and expectation"
    found = "missing: " + "; ".join(odd) if odd else expected
    return require("arms-required", Code.GATE_NOT_RUN, not odd, expected, found)
