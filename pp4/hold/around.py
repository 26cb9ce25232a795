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
from typing import IO

from pp4.config import outside_environment
from pp4.receipts.canonical import shown
from pp4.wire.holds import HostCommand

DONE = "done"
"""How a command ended that ended with status 0."""
_OUTPUT = "around.log"
_KILLED_S = 5.0


def run_each(commands: Sequence[HostCommand], directory: Path) -> tuple[str, ...]:
    """Run every command, also after one that failed; -> one text for each: how it ended."""
    return tuple(f"{shown(one.argv[0])}: {run(one, directory)}" for one in commands)


def run(command: HostCommand, directory: Path) -> str:
    """Run one command; -> how it ended.

    Args:
        command: an argument list; no shell reads it.
        directory: where it runs and where its output is kept.
    """
    try:
        with _output(directory) as output:
            process = subprocess.Popen(
                command.argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=directory,
                env=outside_environment(),
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
    return DONE if status == 0 else f"status {status}"


def _output(directory: Path) -> IO[bytes]:
    """Where output is kept; nowhere on a disk that takes no more, since what is said matters less.

    Raises:
        OSError: there is not even that.
    """
    try:
        return (directory / _OUTPUT).open("ab")
    except OSError:
        return open(os.devnull, "wb")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a command with its session, and wait for it no longer than a kill takes."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_KILLED_S)
