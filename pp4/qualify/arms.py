"""An arm: what must pass or be caught, and how it is tried."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pp4.errors import Code
from pp4.qualify.plan import Step

if TYPE_CHECKING:
    from pp4.qualify.context import Context

Fact = str | int | bool | tuple[str | int | bool, ...]
Facts = dict[str, Fact]


@dataclass(frozen=True, slots=True)
class Finding:
    """What a judge made of the facts of one arm.

    Attributes:
        code: what is wrong, None where nothing is.
        facts: what the receipt keeps: digests, counts, error words.
        repetitions: how often the thing was tried.
    """

    code: Code | None
    facts: Mapping[str, Fact] = field(default_factory=dict)
    repetitions: int = 1


@dataclass(frozen=True, slots=True)
class Arm:
    """One step of the plan with the way to run it.

    Attributes:
        step: what the plan and the journal say.
        run: tries it and judges.
        limit_s: after which it is a timeout.
        hardware: whether there is nothing to try where no GPU is.
    """

    step: Step
    run: Callable[[Context], Finding]
    limit_s: float = 120.0
    hardware: bool = False


def must_pass(
    gate: int,
    arm: str,
    what: str,
    run: Callable[[Context], Finding],
    limit_s: float = 120.0,
    *,
    hardware: bool = False,
) -> Arm:
    """An arm in which nothing may be wrong."""
    return Arm(Step(gate, arm, "pass", what), run, limit_s, hardware)


def must_catch(
    gate: int,
    arm: str,
    code: Code,
    what: str,
    run: Callable[[Context], Finding],
    *,
    gating: bool = True,
    hardware: bool = False,
) -> Arm:
    """An arm with a planted fault that has to be found, by this code."""
    step = Step(gate, arm, f"caught({code})", what, gating)
    return Arm(step, run, hardware=hardware)


def found(step: Step, finding: Finding) -> str:
    """Word a finding as the journal and the receipt do.

    A control that nobody noticed is a failure of the gate, not a pass.
    """
    if step.expected == "pass":
        return "pass" if finding.code is None else f"failed({finding.code})"
    if finding.code is None:
        return f"failed({Code.CONTROL_NOT_CAUGHT})"
    return f"caught({finding.code})"
