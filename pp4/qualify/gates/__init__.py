"""The gates in order, one module each, controls beside what they control."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pp4.qualify.arms import Arm
from pp4.qualify.gates import (
    gate0_preflight,
    gate1_prime,
    gate2_peer_kernels,
    gate3_graphs,
    gate4_mixed,
    gate5_timeout,
    gate6_whole_worker,
    gate7_settle,
    solo,
)


@dataclass(frozen=True, slots=True)
class Gate:
    """One gate: its number, its name and its arms in order."""

    number: int
    name: str
    arms: tuple[Arm, ...]


PHYSICAL: tuple[Gate, ...] = (
    Gate(0, "preflight", gate0_preflight.ARMS),
    Gate(1, "prime", gate1_prime.ARMS),
    Gate(2, "peer kernels", gate2_peer_kernels.ARMS),
    Gate(3, "changed-input graphs", gate3_graphs.ARMS),
    Gate(4, "mixed T0", gate4_mixed.ARMS),
    Gate(5, "timeout and teardown", gate5_timeout.ARMS),
    Gate(7, "settle", gate7_settle.ARMS),
)
"""Scope ``kernels``: everything but gate 6, which needs the whole worker."""

FULL: tuple[Gate, ...] = (
    *PHYSICAL[:-1],
    Gate(6, "whole-worker identity", gate6_whole_worker.ARMS),
    PHYSICAL[-1],
)
"""Scope ``full``; nothing of a worker may be left where gate 7 looks."""


def _rehearsed(gates: tuple[Gate, ...]) -> tuple[Gate, ...]:
    return tuple(
        replace(gate, arms=tuple(arm for arm in gate.arms if not arm.hardware)) for gate in gates
    )


KERNELS: tuple[Gate, ...] = _rehearsed(PHYSICAL)
"""The same without what only a GPU can be asked."""

REHEARSED: tuple[Gate, ...] = _rehearsed(FULL)
"""What a rehearsal runs."""

SOLO: tuple[Gate, ...] = (
    Gate(0, "preflight", solo.ARMS[0]),
    Gate(1, "prime", solo.ARMS[1]),
    Gate(2, "solo kernel", solo.ARMS[2]),
    Gate(3, "changed-input graphs", solo.ARMS[3]),
    Gate(4, "mixed T0", solo.ARMS[4]),
    Gate(7, "settle", solo.ARMS[7]),
)
"""One GPU, both shards in one launch."""
