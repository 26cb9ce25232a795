"""The quiesce commands of a HOLD as its first step: ``python -m pp4.hold.quiesce``.

A step, so that they end with the HOLD, whatever ends it: its lease, its deadline, its supervisor.
What they leave running ends with the step.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pp4.errors import Code, Refusal, RefusedError
from pp4.hold.around import DONE, run
from pp4.hold.inner import Supervisor
from pp4.hold.program import run_step
from pp4.receipts.canonical import shown
from pp4.wire.facts import read
from pp4.wire.frames import Model
from pp4.wire.holds import HostCommand, Run

MODULE = "pp4.hold.quiesce"


class Commands(Model):
    """What the step is told to run, in order."""

    commands: tuple[HostCommand, ...]


def quiesce(told: Run, supervisor: Supervisor) -> dict[str, Any]:
    """Run the commands that make the GPUs free, until one fails.

    Raises:
        RefusedError: ``NOT_IDLE``, with what failed.
    """
    for command in read(Commands, told.arguments).commands:
        name = shown(command.argv[0])
        supervisor.tell({"note": f"quiesce: {name}"})
        found = run(command, Path(told.granted.directory))
        if found != DONE:
            where, expected = f"quiesce: {name}", "an end with status 0"
            raise RefusedError(Refusal(Code.NOT_IDLE, where, expected, found))
    return {}


if __name__ == "__main__":
    sys.exit(run_step(MODULE, quiesce))
