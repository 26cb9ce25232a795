"""Walks the plan inside an open HOLD: journal, arms, verdict.  It prints and stores nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pp4.errors import (
    Code,
    Exit,
    Pp4Error,
    Refusal,
    RefusedError,
    TimedOutError,
    UncleanError,
)
from pp4.qualify.arms import Arm, Finding, found
from pp4.qualify.context import Context
from pp4.qualify.gates import Gate
from pp4.qualify.plan import Step
from pp4.qualify.progress import Progress
from pp4.receipts.canonical import shown

_WIDTH = 500
"""Longest text of an error that a receipt keeps; no error may cost the receipt that tells of it."""

VERDICT_EXIT = {
    "rehearsed": Exit.DONE,
    "qualified": Exit.DONE,
    "recorded": Exit.DONE,
    "wrong": Exit.WRONG,
    "timeout": Exit.TIMEOUT,
    "inconclusive": Exit.INCONCLUSIVE,
    "unclean": Exit.UNCLEAN,
}


@dataclass(frozen=True, slots=True)
class ArmResult:
    """One arm as it came out.

    Attributes:
        step: what was planned.
        found: ``pass``, ``caught(CODE)``, ``failed(CODE)`` or ``not_run(CODE)``.
        finding: facts of the judge.
        elapsed_ns: boot time that it took.
        limit_ns: boot time that it had.
    """

    step: Step
    found: str
    finding: Finding
    elapsed_ns: int
    limit_ns: int

    @property
    def as_expected(self) -> bool:
        """Whether it found what the plan says."""
        return self.found == self.step.expected


def plan(gates: Sequence[Gate]) -> tuple[Step, ...]:
    """Every step in the order in which :func:`pair_qualify` takes it."""
    return tuple(arm.step for gate in gates for arm in gate.arms)


def verdict(results: Sequence[ArmResult], good: str) -> str:
    """Word the outcome of all arms.

    Args:
        results: every arm of the plan.
        good: what it is called when every gating arm found what it had to.

    Raises:
        RefusedError: ``GATE_NOT_RUN``, there is no gating arm: nothing was tried.
    """
    if not any(result.step.gating for result in results):
        raise RefusedError(
            Refusal(Code.GATE_NOT_RUN, "verdict", "at least one gating arm", "none was run")
        )
    off = [result.found for result in results if result.step.gating and not result.as_expected]
    if not off:
        return good
    ran = [text for text in off if not text.startswith("not_run(")]
    if not ran:
        return "inconclusive"
    return "timeout" if all(text == f"failed({Code.STEP_TIMEOUT})" for text in ran) else "wrong"


def _attempt(arm: Arm, context: Context) -> tuple[Finding, bool]:
    """Run one arm; -> what it found, and whether it was cut short.

    An error that ended an arm is a failure, never a caught control, even where its code is the one
    that the control waits for: nobody judged it.
    """
    try:
        return arm.run(context), False
    except UncleanError:
        raise
    except Pp4Error as error:
        code = Code.STEP_TIMEOUT if isinstance(error, TimedOutError) else error.refusal.code
        facts = {"refusal": shown(str(error), _WIDTH), "left": shown(error.refusal.left, _WIDTH)}
    except Exception as error:
        # facts that lack what a judge reads, or a bug of ours: this arm did not pass, and the
        # others still have something to say
        code = Code.INTERNAL
        facts = {"refusal": shown(f"{type(error).__name__}: {error}", _WIDTH)}
    context.restart()
    return Finding(code, facts), True


def _run(arm: Arm, context: Context) -> ArmResult:
    step, clock, deadline = arm.step, context.hold.clock, context.hold.deadline
    context.hold.journal.add(step.name, "begin")
    if deadline is not None and deadline.expired():
        # what was found before is still worth a receipt
        text = f"not_run({Code.DEADLINE})"
        context.hold.journal.add(step.name, "end", found=text)
        return ArmResult(step, text, Finding(Code.DEADLINE), 0, round(arm.limit_s * 1e9))
    began = clock.boottime_ns()
    limit = round(arm.limit_s * 1e9)
    finding, cut_short = _attempt(arm, context)
    elapsed = clock.boottime_ns() - began
    if elapsed > limit:
        finding, cut_short = Finding(Code.STEP_TIMEOUT, finding.facts, finding.repetitions), True
    text = f"failed({finding.code})" if cut_short else found(step, finding)
    context.hold.journal.add(step.name, "end", found=text)
    return ArmResult(step, text, finding, elapsed, limit)


def pair_qualify(
    context: Context, gates: Sequence[Gate], progress: Progress
) -> tuple[ArmResult, ...]:
    """Run every arm of every gate in the order of the plan.

    A failing arm does not stop the later ones: each starts from a pair of its own, and a person
    wants to see all that is wrong.

    Args:
        context: session, settings and HOLD of this run.
        gates: the gates of the scope.
        progress: who watches.

    Returns:
        One result per step of :func:`plan`.

    Raises:
        UncleanError: something may still run; nothing may follow.
    """
    progress.planned(plan(gates))
    results = []
    for gate in gates:
        for arm in gate.arms:
            progress.started(arm.step)
            result = _run(arm, context)
            progress.finished(arm.step, result.found, result.elapsed_ns / 1e9)
            results.append(result)
    return tuple(results)
