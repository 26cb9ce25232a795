"""Walks the plan inside an open HOLD: journal, arms, verdict.  It prints and stores nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pp4.errors import Code, Exit, Pp4Error, TimedOutError, UncleanError
from pp4.qualify.arms import Arm, Finding, found
from pp4.qualify.context import Context
from pp4.qualify.gates import Gate
from pp4.qualify.plan import Step
from pp4.qualify.progress import Progress

VERDICT_EXIT = {
    "rehearsed": Exit.DONE,
    "qualified": Exit.DONE,
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
    """
    off = [result.found for result in results if result.step.gating and not result.as_expected]
    if not off:
        return good
    ran = [text for text in off if not text.startswith("not_run(")]
    if not ran:
        return "inconclusive"
    return "timeout" if all(text == f"failed({Code.STEP_TIMEOUT})" for text in ran) else "wrong"


def _attempt(arm: Arm, context: Context) -> Finding:
    """Run one arm; a refusal that nobody asked for is a failure, never a caught control."""
    try:
        return arm.run(context)
    except UncleanError:
        raise
    except TimedOutError as error:
        context.restart()
        return Finding(Code.STEP_TIMEOUT, {"refusal": str(error), "left": error.refusal.left})
    except Pp4Error as error:
        context.restart()
        return Finding(error.refusal.code, {"refusal": str(error)})


def _run(arm: Arm, context: Context) -> ArmResult:
    step, clock = arm.step, context.hold.clock
    context.hold.journal.add(step.name, "begin")
    began = clock.boottime_ns()
    limit = round(arm.limit_s * 1e9)
    before = context.restarts
    finding = _attempt(arm, context)
    elapsed = clock.boottime_ns() - began
    if elapsed > limit:
        finding = Finding(Code.STEP_TIMEOUT, finding.facts, finding.repetitions)
    crashed = context.restarts != before or elapsed > limit
    text = f"failed({finding.code})" if crashed else found(step, finding)
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
