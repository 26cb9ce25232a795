"""The arms as a step of a HOLD: ``python -m pp4.measure.far`` runs them where the GPUs are.

It is told what to measure by the supervisor that started it, tells each round, and answers with
the arms and with what else of the receipt only the host can tell; the coordinator seals it once
the HOLD is closed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from pp4.clock import SystemClock
from pp4.errors import Code, Refusal, RefusedError
from pp4.hold.inner import InnerHold, Supervisor
from pp4.hold.open import OpenHold
from pp4.hold.program import run_step
from pp4.measure.arms import run_arms
from pp4.measure.bench import Bench, Ran
from pp4.measure.budgeting import sampled_schedule
from pp4.measure.judging import SameLoaded, SameText
from pp4.measure.members import members
from pp4.measure.programs import Limits, Places
from pp4.measure.recorder import Recorder, Teller
from pp4.measure.stopwatch import Stopwatch
from pp4.receipts.admission import Admission, Command, Refused, Subject, admit
from pp4.receipts.bindings import ClosedHold
from pp4.receipts.digests import installed_source
from pp4.run.host import look_at_gpus
from pp4.run.naming import words_for
from pp4.run.receipt import require_packages
from pp4.wire.facts import read
from pp4.wire.gpus import GpuReport, find
from pp4.wire.holds import Granted, Run
from pp4.wire.measuring import ARMS, Measure, Measured, Work

MODULE: Final = "pp4.measure.far"
COMMANDS: Final[dict[Work, Command]] = {
    "budget": Command.BUDGET,
    "A1B1": Command.A1B1,
    "B2A2": Command.B2A2,
}


def run(
    granted: Granted, asked: Measure, supervisor: Supervisor, limits: Limits | None = None
) -> dict[str, Any]:
    """Run the arms that are asked for; -> :class:`pp4.wire.measuring.Measured`.

    Args:
        granted: what the host granted; in a HOLD of names no GPU is looked at.
        asked: what is measured.
        supervisor: who passes on what is found.
        limits: of the arms; those of a run on GPUs where None.

    Raises:
        Pp4Error: what kept the first arm from being begun.
        UncleanError: something may still run, or nothing can be written down any more.
    """
    require_packages(asked.command)
    report = None if granted.rehearsal else look_at_gpus()
    admitted = _admission(granted, asked, report)
    with InnerHold(admitted, SystemClock(), granted, supervisor) as hold:
        compiled = Path(granted.compiled) if hold.gpus else hold.directory / "compiled"
        return measure(hold, asked, supervisor, report, compiled, limits or Limits())


def measure(
    hold: OpenHold,
    asked: Measure,
    teller: Teller,
    report: GpuReport | None,
    compiled: Path,
    limits: Limits,
) -> dict[str, Any]:
    """Run the arms of a half, or those of a budget, in an open HOLD; see :func:`run`.

    Args:
        hold: under which they run.
        asked: what is measured.
        teller: who is told what is found.
        report: the GPUs as they were before; None in a rehearsal.
        compiled: where compiled kernels are kept.
        limits: of the arms.
    """
    samples = asked.work == "budget"
    schedule = sampled_schedule(asked.schedule, asked.samples) if samples else asked.schedule
    watch = Stopwatch(hold.clock)
    gpus = [] if report is None else [find(report, uuid) for uuid in hold.gpus]
    with Recorder(hold, teller) as recorder:
        bench = Bench(
            hold=hold,
            recorder=recorder,
            places=Places.of(asked.pair, hold.directory),
            schedule=schedule,
            compiled=compiled,
            words={} if report is None else words_for(report, gpus),
            texts=SameText(),
            loaded=SameLoaded(hold.admission.receipts.values()),
            watch=watch,
            limits=limits,
        )
        ran = run_arms(bench, ARMS[asked.work])
    return _measured(hold, ran, report, watch if samples else None)


def _measured(
    hold: OpenHold, ran: Sequence[Ran], report: GpuReport | None, watch: Stopwatch | None
) -> dict[str, Any]:
    refusal = ran[-1].refusal
    # samples of a budget that was cut would be those of its quicker part
    samples = watch.samples() if watch is not None and refusal is None else ()
    measured = Measured(
        arms=() if watch is not None else tuple(one.tree() for one in ran if one.snapshots),
        sampled=samples,
        members=members(hold, [one.served for one in ran if one.served], report),
        refusal=None if refusal is None else refusal.as_dict(),
    )
    return measured.model_dump(mode="json")


def _admission(granted: Granted, asked: Measure, report: GpuReport | None) -> Admission:
    """Judge the evidence once more, with what this host knows of itself.

    Raises:
        RefusedError: what admission refuses.
    """
    source = installed_source().digest
    if report is None:
        judged = admit(Command.REHEARSAL, [], Subject(source_digest=source))
    else:
        evidence = [(one.role, one.raw()) for one in asked.evidence]
        judged = admit(COMMANDS[asked.work], evidence, _subject(granted, asked, report, source))
    if isinstance(judged, Refused):
        raise RefusedError(judged.refusal)
    return judged


def _subject(granted: Granted, asked: Measure, report: GpuReport, source: str) -> Subject:
    """This host; how long the window may last was judged when it was opened."""
    here = Subject(
        source_digest=source,
        gpu_models=frozenset(find(report, uuid).name for uuid in granted.gpus),
        gpu_uuids=frozenset(granted.gpus),
        drivers=frozenset({report.driver_version or "not told"}),
        now=SystemClock().wall(),
    )
    plan = asked.plan
    if plan is None:
        expected = "what was fixed before the HOLD was opened"
        raise RefusedError(Refusal(Code.BAD_INPUT, f"{MODULE}, plan", expected, "nothing"))
    first = plan.first_closed
    closed = None if first is None else ClosedHold(first.hold, first.fence, first.restored)
    return replace(
        here,
        model_sha256=plan.model_sha256,
        shapes=plan.shapes,
        settings=plan.settings,
        first_closed=closed,
    )


def work(told: Run, supervisor: Supervisor) -> dict[str, Any]:
    """Do what the step is started for; see :func:`run`."""
    return run(told.granted, read(Measure, told.arguments), supervisor)


if __name__ == "__main__":
    sys.exit(run_step(MODULE, work))
