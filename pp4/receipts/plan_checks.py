"""Whether a receipt holds the arms that the plan of its schema has: a gate is more than its number.

The table belongs to the version of the schema.  It is written out here, and not read from the
gates, so that a receipt is judged by what its version demands whatever runs today; a test holds
it equal to the gates.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from pp4.errors import Code
from pp4.receipts.checks import Check, require
from pp4.receipts.gates import GateBody

RECORDED: Final = frozenset({"missing-barrier-ran", "relaxed-signal-ran"})
"""The only arms that may be recorded without gating: races that need not show in every run."""


class PlannedGate(NamedTuple):
    """What a gate is called, and the arms, with what each has to find, that it cannot lack."""

    name: str
    arms: Mapping[str, str]


PLAN: Final[Mapping[int, PlannedGate]] = {
    0: PlannedGate(
        "preflight",
        {
            "devices": "pass",
            "wrong-device": "caught(DEVICE_MISMATCH)",
            "data-pattern": "pass",
            "flipped-bit": "caught(PATTERN_MISMATCH)",
            "libraries": "pass",
            "changed-library-byte": "caught(LIBRARY_CHANGED)",
        },
    ),
    1: PlannedGate(
        "prime",
        {
            "unprimed-capture": "caught(UNPRIMED)",
            "both-primed-before-launch": "pass",
            "one-specialisation": "pass",
            "late-compilation": "caught(COMPILED_AFTER_PRIMING)",
        },
    ),
    2: PlannedGate(
        "peer kernels",
        {
            "pair-equals-reference": "pass",
            "ties": "pass",
            "edges": "pass",
            "launch-order": "pass",
            "skewed-start": "pass",
            "bad-logits": "pass",
            "infinite-logits": "pass",
            "empty-row": "pass",
            "foreign-epoch": "pass",
            "ptx-order": "pass",
            "ptx-missing-barrier": "caught(PTX_ORDER)",
            "ptx-relaxed-signal": "caught(PTX_ORDER)",
            "ptx-relaxed-chain": "caught(PTX_ORDER)",
            "host-model": "pass",
            "host-model-bugs": "caught(MODEL_VIOLATION)",
            "flag-before-data": "caught(PROTOCOL)",
            "dropped-candidate": "caught(RANKS_DIFFER)",
            "swapped-bounds": "caught(OUTPUT_MISMATCH)",
            "tie-broken-upwards": "caught(OUTPUT_MISMATCH)",
            "skipped-test": "caught(RELEASED_AFTER_ERROR)",
            "unsaid-fault": "caught(WRONG_ERROR_WORD)",
            "missing-barrier-ran": "caught(OUTPUT_MISMATCH)",
            "relaxed-signal-ran": "caught(OUTPUT_MISMATCH)",
        },
    ),
    3: PlannedGate(
        "changed-input graphs",
        {
            "replay-equals-eager": "pass",
            "padded-rows": "pass",
            "padded-exchange": "caught(BAD_LOGITS)",
            "reused-epoch": "caught(PROTOCOL)",
            "input-by-value": "caught(OUTPUT_MISMATCH)",
            "missing-stamp": "caught(INCOMPLETE)",
        },
    ),
    4: PlannedGate(
        "mixed T0",
        {
            "mixed-batch": "pass",
            "neighbours": "pass",
            "original-objects": "pass",
            "refusals": "pass",
            "swapped-mask": "caught(OUTPUT_MISMATCH)",
            "draw-on-greedy-row": "caught(T0_DREW)",
        },
    ),
    5: PlannedGate(
        "timeout and teardown",
        {
            "healthy": "pass",
            "never-launched": "pass",
            "late-first": "pass",
            "late-next": "pass",
            "killed": "pass",
            "nan-row": "pass",
            "exhausted-epochs": "pass",
            "late-answer": "caught(PEER_TIMEOUT)",
            "one-rank-word": "caught(RELEASED_ON_ONE_WORD)",
        },
    ),
    7: PlannedGate(
        "settle",
        {
            "leak": "caught(LEAK)",
            "settled": "pass",
            "libraries-unchanged": "pass",
        },
    ),
}
"""Gate to name and arms, for the scopes ``kernels`` and ``full``; gate 6 has no arms yet."""


def plan_checks(receipt: GateBody, scope: str) -> list[Check]:
    """Return the checks of the arms against the plan of ``pp4-receipt/1``.

    Args:
        receipt: a receipt with gates.
        scope: its scope; ``solo`` has no table yet, ``full`` is ``kernels`` and gate 6.
    """
    return [_gating(receipt)] + ([] if scope == "solo" else [_arms_required(receipt)])


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


def _arms_required(receipt: GateBody) -> Check:
    odd = []
    for gate in receipt.gates:
        planned = PLAN.get(gate.gate)
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
