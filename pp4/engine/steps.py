"""What a step was: plain facts for whoever measures or watches."""

from __future__ import annotations

from dataclasses import dataclass

from pp4.engine.drafting import Cause
from pp4.engine.requests import Output
from pp4.verifier.units import Mode


@dataclass(frozen=True, slots=True)
class RowFacts:
    """One sequence in a step.

    Attributes:
        request: the engine's number.
        slot: of the target.
        round: of the request, in this step.
        position: absolute, of the first token that the row emitted.
        mode: by which its proposal was verified; INACTIVE where there was none.
        cause: why there was none, None where there was one.
        proposed: tokens of the proposal.
        accepted: tokens of it that were accepted, whether or not the request had room for them.
        tokens: that went to the request.
    """

    request: int
    slot: int
    round: int
    position: int
    mode: Mode
    cause: Cause | None
    proposed: int
    accepted: int
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StepFacts:
    """One step of the target.

    Attributes:
        index: from 0.
        rows: by slot.
        begin_s: seconds for prompts of requests that began with this step.
        draft_s: seconds that the step waited for drafts, features and connections included.
        target_s: seconds of the target, until its device was done.
        verify_s: seconds for distributions and verification, until the tokens were here.
        finished: requests that ended with this step.
    """

    index: int
    rows: tuple[RowFacts, ...]
    begin_s: float
    draft_s: float
    target_s: float
    verify_s: float
    finished: tuple[Output, ...]
