"""The plan of a qualification: a pure list of steps, made before anything starts.

The same steps, in the same order, are what the journal records: plan, run and journal come from
one table of gates.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """One arm of one gate.

    Attributes:
        gate: 0 to 7, see the gates of the README.
        arm: name, unique within the gate, lower case with hyphens.
        expected: ``pass`` or ``caught(CODE)``.
        what: one sentence for a person.
        gating: whether a finding other than ``expected`` voids the run; racy mutants are recorded
            beside the gates without this weight.
    """

    gate: int
    arm: str
    expected: str
    what: str
    gating: bool = True

    @property
    def name(self) -> str:
        """``gate-2/pair-equals-reference``: the name in the journal."""
        return f"gate-{self.gate}/{self.arm}"
