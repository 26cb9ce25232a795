"""The gates of one GPU: one launch holds both shards, so nothing is exchanged and nobody waits.

The arms are those of the pair wherever they do not need a peer.  Two rank processes run them on the
one device, each for itself, and have to agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pp4.qualify.arms import Arm
from pp4.qualify.gates import (
    gate0_preflight,
    gate1_prime,
    gate2_peer_kernels,
    gate3_graphs,
    gate4_mixed,
    gate7_settle,
)

_WITH_PEER: Mapping[int, frozenset[str]] = {
    0: frozenset({"data-pattern", "flipped-bit"}),
    2: frozenset(
        {
            "launch-order",
            "skewed-start",
            "foreign-epoch",
            "ptx-missing-barrier",
            "ptx-relaxed-signal",
            "ptx-relaxed-chain",
            "host-model",
            "host-model-bugs",
            "flag-before-data",
            "dropped-candidate",
            "unsaid-fault",
            "missing-barrier-ran",
            "relaxed-signal-ran",
        }
    ),
    3: frozenset({"padded-exchange", "reused-epoch"}),
    4: frozenset({"original-objects", "refusals"}),
}
_NAMES = {
    "devices": "device",
    "both-primed-before-launch": "primed-before-launch",
    "pair-equals-reference": "solo-equals-reference",
}


def _alone(gate: int, arms: tuple[Arm, ...]) -> tuple[Arm, ...]:
    """The arms that need no peer, under the names that they have here."""
    left_out = _WITH_PEER.get(gate, frozenset())
    return tuple(_renamed(arm) for arm in arms if arm.step.arm not in left_out)


def _renamed(arm: Arm) -> Arm:
    return replace(arm, step=replace(arm.step, arm=_NAMES.get(arm.step.arm, arm.step.arm)))


ARMS: Mapping[int, tuple[Arm, ...]] = {
    0: _alone(0, gate0_preflight.ARMS),
    1: _alone(1, gate1_prime.ARMS),
    2: _alone(2, gate2_peer_kernels.ARMS),
    3: _alone(3, gate3_graphs.ARMS),
    4: _alone(4, gate4_mixed.ARMS),
    7: _alone(7, gate7_settle.ARMS),
}
