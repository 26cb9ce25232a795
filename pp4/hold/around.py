"""Programs of the receiving host that are run around the work: quiesce before it, restore after.

They are the host's own (stop the service that uses the GPUs, start it again), so nothing is taken
from them but their exit status.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from pp4.config import child_environment
from pp4.errors import Code, Refusal, RefusedError
from pp4.receipts.canonical import shown
from pp4.wire.holds import HostCommand

_OUTPUT = "around.log"
_KILLED_S = 5.0


def run_each(commands: Sequence[HostCommand], directory: Path) -> tuple[str, ...]:
    """Run every command, also after one that failed; -> one text for each: how it ended.

    Args:
        commands: argument lists; no shell reads them.
        directory: where they run and where their output is kept.
    """
    return tuple(f"{shown(command.argv[0])}: {_ended(command, directory)}" for command in commands)


def _ended(command: HostCommand, directory: Path) -> str:
    try:
        with (directory / _OUTPUT).open("ab") as output:
            process = subprocess.Popen(
                command.argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=directory,
                env=child_environment({}),
                start_new_session=True,
            )
    except (OSError, ValueError) as error:
        return str(error)
    try:
        status = process.wait(command.limit_s)
    except subprocess.TimeoutExpired:
        _end(process)
        return f"no end within {command.limit_s:g} s"
    except BaseException:
        _end(process)
        raise
    return "done" if status == 0 else f"status {status}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a command with its session, and wait for it no longer than a kill takes."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_KILLED_S)


def require_quiet(commands: Sequence[HostCommand], directory: Path) -> None:
    """Run the commands that make the GPUs free; one that fails refuses the HOLD.

    Raises:
        RefusedError: ``NOT_IDLE``, with what failed.
    """
    found = run_each(commands, directory)
    failed = [text for text in found if not text.endswith(": done")]
    if failed:
        expected = "every quiesce command of the HOLD file to end with status 0"
        raise RefusedError(Refusal(Code.NOT_IDLE, "quiesce", expected, "; ".join(failed)))
