"""Gates of a qualification, a solo run or a rehearsal, each with its planted faults."""

from __future__ import annotations

from dataclasses import dataclass

from pp4.receipts.gates import Gate, GateBody


@dataclass(frozen=True, slots=True)
class ArmRow:
    """One arm: what it had to find and what it found."""

    arm: str
    expected: str
    found: str
    gating: bool
    repetitions: int
    elapsed_ns: int
    facts: str

    @property
    def as_expected(self) -> bool:
        """Whether it found what it had to."""
        return self.found == self.expected


@dataclass(frozen=True, slots=True)
class GateFigures:
    """One gate.

    Attributes:
        passed: gating arms that had to pass and did, of ``to_pass``.
        caught: planted faults that had to be caught and were, of ``to_catch``.
        elapsed_ns: of all arms.
    """

    gate: int
    name: str
    passed: int
    to_pass: int
    caught: int
    to_catch: int
    elapsed_ns: int
    arms: tuple[ArmRow, ...]

    @property
    def holds(self) -> bool:
        """Whether every gating arm found what it had to."""
        return (self.passed, self.caught) == (self.to_pass, self.to_catch)


def gate_figures(receipt: GateBody) -> tuple[GateFigures, ...]:
    """Return the gates in the order in which they ran."""
    return tuple(_gate(gate) for gate in receipt.gates)


def _gate(gate: Gate) -> GateFigures:
    rows = tuple(
        ArmRow(
            arm.arm,
            arm.expected,
            arm.found,
            arm.gating,
            arm.repetitions,
            int(arm.elapsed_ns),
            ", ".join(f"{name} {_shown(value)}" for name, value in arm.facts.items()),
        )
        for arm in gate.arms
    )
    sound = [row for row in rows if row.gating and row.expected == "pass"]
    planted = [row for row in rows if row.gating and row.expected != "pass"]
    return GateFigures(
        gate=gate.gate,
        name=gate.name,
        passed=sum(row.as_expected for row in sound),
        to_pass=len(sound),
        caught=sum(row.as_expected for row in planted),
        to_catch=len(planted),
        elapsed_ns=sum(row.elapsed_ns for row in rows),
        arms=rows,
    )


def _shown(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
