"""The gates as a step of a HOLD: ``python -m pp4.qualify.far`` runs them where the GPUs are.

It is told what to run by the supervisor that started it, tells how far it is, and answers with the
members of the receipt; the coordinator seals them once the HOLD is closed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from pp4.clock import SystemClock
from pp4.errors import Code, Refusal, RefusedError
from pp4.hold.inner import InnerHold, Supervisor
from pp4.hold.program import run_step
from pp4.qualify import physical, rehearsal
from pp4.qualify.plan import Step
from pp4.receipts.digests import installed_source
from pp4.run.host import look_at_gpus
from pp4.run.receipt import require_packages
from pp4.wire.facts import read
from pp4.wire.frames import Model
from pp4.wire.holds import Given, Granted, Run

MODULE = "pp4.qualify.far"
Work = Literal["rehearsal", "pair", "full", "solo"]


class Gates(Model):
    """What the step is told to run, and by which command it was asked for.

    ``checkpoint`` is the directory of a drafter on this host, None for one that is made up.
    """

    work: Work
    command: str
    evidence: tuple[Given, ...] = ()
    soak_minutes: int = 0
    checkpoint: str | None = None


class Receipts(Model):
    """The answer of the step.

    Attributes:
        bodies: members of the receipts to be sealed, the one with the gates first.
        refusal: what kept a further one from being made.
    """

    bodies: Annotated[tuple[dict[str, Any], ...], Field(min_length=1)]
    refusal: dict[str, str] | None = None


class Teller:
    """A progress that tells the supervisor; see :class:`pp4.qualify.progress.Progress`.

    Args:
        supervisor: who passes it on.
    """

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    def planned(self, steps: Sequence[Step]) -> None:
        """Tell the plan."""
        self._supervisor.tell({"planned": [asdict(step) for step in steps]})

    def started(self, step: Step) -> None:
        """Tell which step begins."""
        self._supervisor.tell({"started": asdict(step)})

    def finished(self, step: Step, found: str, elapsed_s: float) -> None:
        """Tell how it ended."""
        self._supervisor.tell(
            {"finished": asdict(step), "found": found, "elapsed_s": round(elapsed_s, 3)}
        )

    def note(self, text: str) -> None:
        """Tell a line."""
        self._supervisor.tell({"note": text})

    def alive(self, lease_s: float, deadline_s: float, last_line: str) -> None:
        """Nothing: a step does not keep its own HOLD alive."""


def run(granted: Granted, asked: Gates, supervisor: Supervisor) -> dict[str, Any]:
    """Run the gates that are asked for; -> :class:`Receipts`.

    Raises:
        Pp4Error: what kept them from being run.
    """
    if granted.rehearsal is not (asked.work == "rehearsal"):
        expected = "a rehearsal in a HOLD of names, anything else in one of GPUs"
        raise RefusedError(Refusal(Code.WRONG_KIND, MODULE, expected, asked.work))
    require_packages(asked.command)
    clock, teller = SystemClock(), Teller(supervisor)
    if asked.work == "rehearsal":
        with InnerHold(rehearsal.admission(installed_source()), clock, granted, supervisor) as hold:
            return {"bodies": [rehearsal.run_gates(hold, teller, command=asked.command)]}
    kind, report = physical.KINDS[asked.work], look_at_gpus()
    evidence = [(one.role, one.raw()) for one in asked.evidence]
    source = installed_source()
    admitted = physical.admission(kind.command, source, evidence, report, granted.gpus)
    with InnerHold(admitted, clock, granted, supervisor) as hold:
        made = physical.run_gates(
            kind,
            hold,
            teller,
            report,
            Path(granted.compiled),
            asked.command,
            asked.soak_minutes,
            asked.checkpoint,
        )
    refusal = None if made.refusal is None else made.refusal.as_dict()
    return {"bodies": list(made.bodies), "refusal": refusal}


def work(told: Run, supervisor: Supervisor) -> dict[str, Any]:
    """Do what the step is started for; see :func:`run`."""
    return run(told.granted, read(Gates, told.arguments), supervisor)


if __name__ == "__main__":
    sys.exit(run_step(MODULE, work))
