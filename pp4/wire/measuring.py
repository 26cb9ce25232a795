"""What crosses between a coordinator and the step of a HOLD that measures, ``pp4.measure.far``."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Field

from pp4.receipts.envelope import Decimal
from pp4.wire.frames import Model
from pp4.wire.holds import Given, Plan

Size = Annotated[int, Field(ge=1)]
Work = Literal["budget", "A1B1", "B2A2"]
Arm = Literal["A1", "B1", "B2", "A2"]
ARMS: Final[dict[Work, tuple[Arm, ...]]] = {
    "budget": ("A1", "B1"),
    "A1B1": ("A1", "B1"),
    "B2A2": ("B2", "A2"),
}
"""In their order, which is a contract.  A budget tries one arm of each kind."""


class Pair(Model):
    """Checkpoints and prompts on the receiving host.

    Attributes:
        target: directory; here and below, a relative path begins in the HOLD's working directory,
            where what was uploaded lies.
        drafter: directory.
        prompts: file of JSON lines, each the token ids of one prompt.
    """

    target: str
    drafter: str
    prompts: str


class Schedule(Model):
    """Every number of a half that is fixed beforehand; a cell is one batch size and temperature.

    Attributes:
        batches: requests side by side.
        temperatures: in their shortest spelling.
        depth: positions of a block.
        new_tokens: of every request.
        seed: of every request's key.
        warm_up: rounds of each cell that nothing is told of.
        greedy: rounds of each batch size at temperature 0, before the baseline.
        headline: timed rounds of each cell.
        primary: timed rounds of the cell of the primary endpoint, in place of ``headline``.
        profiled: rounds of each cell in which the parts of each step are kept.
    """

    batches: Annotated[tuple[Size, ...], Field(min_length=1)]
    temperatures: Annotated[tuple[Decimal, ...], Field(min_length=1)]
    depth: Literal[5]
    new_tokens: Size
    seed: Annotated[int, Field(ge=0, lt=1 << 53)]
    warm_up: Size
    greedy: Size
    headline: Size
    primary: Size
    profiled: Size


class Measure(Model):
    """What the step is told.

    Attributes:
        work: a half, or the samples of a budget.
        command: by which it was asked for, for refusals.
        pair: what decodes.
        schedule: of the half; a budget takes it for its shapes.
        samples: of a budget: rounds of each cell and arm.
        evidence: receipts, judged again on the host.
        plan: what they are held against; None in a rehearsal.
    """

    work: Work
    command: str
    pair: Pair
    schedule: Schedule
    samples: Size = 1
    evidence: tuple[Given, ...] = ()
    plan: Plan | None = None


class Sampled(Model):
    """The worst of several measurements of one part of a window, in nanoseconds."""

    name: str
    worst_ns: Annotated[int, Field(ge=1)]
    samples: Size


class Measured(Model):
    """The answer of the step.

    Attributes:
        arms: :class:`pp4.receipts.runs.MeasuredArm` each; empty for a budget.
        sampled: of a budget; empty for a half.
        members: what else of the receipt only the host can tell: ``hold``, ``journal``,
            ``private``, ``gpus`` and ``evidence``; ``kernels`` and ``libraries`` as far as the
            arms have loaded any.
        refusal: what kept the rest from being measured; the arms then end with a partial one, or
            with one whose growth failed it, or there are none.
    """

    arms: tuple[dict[str, Any], ...]
    sampled: tuple[Sampled, ...]
    members: dict[str, Any]
    refusal: dict[str, str] | None = None


Step = Literal[
    "engine",
    "worker",
    "connection",
    "warm-up",
    "greedy",
    "headline",
    "profiled",
    "teardown",
]
"""Phases of an arm, in their order."""


class Stepped(Model):
    """What the step tells when an arm, or a phase of it, begins or ends; for timelines.

    Attributes:
        arm: which.
        phase: of it; None for the arm as a whole.
        event: which end.
        found: at its end: ``pass`` or ``failed(CODE)``, an arm's verdict.
    """

    arm: Arm
    phase: Step | None
    event: Literal["begin", "end"]
    found: str | None = None


class Rounded(Model):
    """What the step tells after each round and each snapshot, before anything else happens.

    Attributes:
        arm: which.
        round: a :class:`pp4.receipts.runs.Round`, or None.
        snapshot: a :class:`pp4.receipts.runs.Snapshot`, or None.
    """

    arm: Arm
    round: dict[str, Any] | None = None
    snapshot: dict[str, Any] | None = None
