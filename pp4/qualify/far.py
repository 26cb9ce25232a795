"""The gates as a step of a HOLD: ``python -m pp4.qualify.far`` runs them where the GPUs are.

It is told what to run by the supervisor that started it, tells how far it is, and answers with the
members of the receipt; the coordinator seals them once the HOLD is closed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from pp4.clock import Deadline, SystemClock
from pp4.errors import Code, Exit, Pp4Error, Refusal, RefusedError
from pp4.hold.inner import InnerHold, Supervisor
from pp4.qualify import physical, receipt, rehearsal
from pp4.qualify.host import look_at_gpus
from pp4.qualify.plan import Step
from pp4.receipts.digests import installed_source
from pp4.transport.pipes import Pipes
from pp4.wire import Reply, Request
from pp4.wire.facts import read
from pp4.wire.frames import Model
from pp4.wire.holds import Given, Granted, Run

MODULE = "pp4.qualify.far"
_TOLD_S = 60.0


class Gates(Model):
    """What the step is told to run."""

    work: Literal["rehearsal", "pair"]
    evidence: tuple[Given, ...] = ()
    soak_minutes: int = 0


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


def run(granted: Granted, asked: Gates, supervisor: Supervisor) -> dict[str, object]:
    """Run the gates that are asked for; -> members of the receipt.

    Raises:
        Pp4Error: what kept them from being run.
    """
    if granted.rehearsal is not (asked.work == "rehearsal"):
        expected = "a rehearsal in a HOLD of names, anything else in one of GPUs"
        raise RefusedError(Refusal(Code.WRONG_KIND, MODULE, expected, asked.work))
    receipt.require_packages(MODULE)
    clock, teller = SystemClock(), Teller(supervisor)
    if asked.work == "rehearsal":
        with InnerHold(rehearsal.admission(installed_source()), clock, granted, supervisor) as hold:
            return rehearsal.run_gates(hold, teller)
    report = look_at_gpus()
    evidence = [(one.role, one.raw()) for one in asked.evidence]
    command, source = physical.PAIR.command, installed_source()
    admitted = physical.admission(command, source, evidence, report, granted.gpus)
    with InnerHold(admitted, clock, granted, supervisor) as hold:
        compiled = Path(granted.compiled)
        return physical.run_gates(physical.PAIR, hold, teller, report, compiled, asked.soak_minutes)


def answer(request: Request, pipes: Pipes) -> Reply:
    """Do what a step is started for; every failure is a refusal in the reply."""
    try:
        told = read(Run, request.arguments)
        facts: dict[str, Any] = run(told.granted, read(Gates, told.arguments), Supervisor(pipes))
        return Reply(sequence=request.sequence, facts=facts)
    except Pp4Error as error:
        return Reply(sequence=request.sequence, refusal=error.refusal.as_dict())
    except Exception as error:
        # whoever asked must hear of it, or waits until the end of the HOLD
        found = f"{type(error).__name__}: {error}"[:500]
        refusal = Refusal(Code.INTERNAL, MODULE, "members of a receipt", found)
        return Reply(sequence=request.sequence, refusal=refusal.as_dict())


def main() -> int:
    """Be the step that a supervisor has started; -> exit code."""
    pipes = Pipes.take_over()
    request = pipes.receive(Deadline.after(SystemClock(), _TOLD_S))
    if not isinstance(request, Request):
        return int(Exit.USAGE)
    pipes.send(answer(request, pipes))
    return int(Exit.DONE)


if __name__ == "__main__":
    sys.exit(main())
