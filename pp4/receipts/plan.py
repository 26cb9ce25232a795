"""The arms that a receipt of version 1 cannot lack, gate by gate.

Written by ``python -m tests.unit.receipts.write_plan`` from the gates; a test holds the two equal.
It is a text of its own, and not read from the gates, so that a receipt is judged by what its
version demands whatever runs today.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class PlannedGate(NamedTuple):
    """What a gate is called, and the arms, with what each has to find, that it cannot lack."""

    name: str
    arms: Mapping[str, str]


RECORDED: Final = frozenset(
    {
        "missing-barrier-ran",
        "relaxed-signal-ran",
    }
)
"""The only arms that may be recorded without gating: races that need not show in every run."""

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
            "vectorised-agrees": "pass",
            "many-rows": "pass",
            "many-rows-of-a-mutant": "caught(OUTPUT_MISMATCH)",
            "many-rows-unstamped": "caught(OUTPUT_MISMATCH)",
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
            "libraries-unchanged": "pass",
            "leak": "caught(LEAK)",
            "settled": "pass",
        },
    ),
}
"""Scopes ``kernels`` and ``full``, two ranks."""

HARDWARE: Final[Mapping[int, PlannedGate]] = {
    0: PlannedGate(
        "preflight",
        {
            "idle": "pass",
            "foreign-memory": "caught(NOT_IDLE)",
        },
    ),
}
"""What a run on GPUs has beyond :data:`PLAN`: a CPU cannot be asked."""

SOLO_PLAN: Final[Mapping[int, PlannedGate]] = {
    0: PlannedGate(
        "preflight",
        {
            "idle": "pass",
            "foreign-memory": "caught(NOT_IDLE)",
            "device": "pass",
            "wrong-device": "caught(DEVICE_MISMATCH)",
            "libraries": "pass",
            "changed-library-byte": "caught(LIBRARY_CHANGED)",
        },
    ),
    1: PlannedGate(
        "prime",
        {
            "unprimed-capture": "caught(UNPRIMED)",
            "primed-before-launch": "pass",
            "one-specialisation": "pass",
            "late-compilation": "caught(COMPILED_AFTER_PRIMING)",
        },
    ),
    2: PlannedGate(
        "solo kernel",
        {
            "solo-equals-reference": "pass",
            "vectorised-agrees": "pass",
            "many-rows": "pass",
            "many-rows-of-a-mutant": "caught(OUTPUT_MISMATCH)",
            "many-rows-unstamped": "caught(OUTPUT_MISMATCH)",
            "ties": "pass",
            "edges": "pass",
            "bad-logits": "pass",
            "infinite-logits": "pass",
            "empty-row": "pass",
            "ptx-order": "pass",
            "swapped-bounds": "caught(OUTPUT_MISMATCH)",
            "tie-broken-upwards": "caught(OUTPUT_MISMATCH)",
            "skipped-test": "caught(RELEASED_AFTER_ERROR)",
        },
    ),
    3: PlannedGate(
        "changed-input graphs",
        {
            "replay-equals-eager": "pass",
            "padded-rows": "pass",
            "input-by-value": "caught(OUTPUT_MISMATCH)",
            "missing-stamp": "caught(INCOMPLETE)",
        },
    ),
    4: PlannedGate(
        "mixed T0",
        {
            "mixed-batch": "pass",
            "neighbours": "pass",
            "swapped-mask": "caught(OUTPUT_MISMATCH)",
            "draw-on-greedy-row": "caught(T0_DREW)",
        },
    ),
    7: PlannedGate(
        "settle",
        {
            "libraries-unchanged": "pass",
            "leak": "caught(LEAK)",
            "settled": "pass",
        },
    ),
}
"""Scope ``solo``."""
