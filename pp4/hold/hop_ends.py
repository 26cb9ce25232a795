"""The far ends of hops, proven over by programs that are sent after them.

One program for each hop, ``pp4.hold.hop close``, all at once, each under a guard and bounded.  It
may be the next HOLD that sends them, for one whose holder was killed.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from pp4.clock import Deadline, SystemClock
from pp4.config import child_environment
from pp4.errors import Pp4Error
from pp4.hold.hop_books import HopBook, read_hops
from pp4.hold.processes import COOKIE

MODULE = "pp4.hold.hop"
"""The step that a hop is, and the program that goes after its far end."""
MORE_S = 10.0
"""How long the far host is asked beyond the time at which its lease is over."""
LONGEST_S = 40.0
_GRACE_S = 2.0
_KILLED_S = 10.0
_BEGIN_S = 5.0
"""What two interpreters need to start on a busy host."""
FAR_S = LONGEST_S + _BEGIN_S + 2 * _KILLED_S
"""How long all the far ends of a HOLD together may take to be proven over, or not."""
_SOURCE = Path(__file__).resolve().parents[2]
_OUTPUT = "closers.log"


def settle_hops(directory: Path, hold: str) -> tuple[str, ...]:
    """Have every hop of a HOLD proven over, all at once; only when its near steps are dead.

    Args:
        directory: of the HOLD, its user's own.
        hold: its id.

    Returns:
        A text for each that is not proven, and why it is not.
    """
    try:
        books = [book for book in read_hops(directory) if book.unproven]
        with contextlib.ExitStack() as stack:
            sent = [stack.enter_context(_sent(book, hold)) for book in books]
            for process, deadline in sent:
                _wait(process, deadline)
        return tuple(unproven(book) for book in read_hops(directory) if book.unproven)
    except Pp4Error as error:
        return (f"hops of HOLD {hold}, whose books cannot be read: {error.refusal.found}",)
    except OSError as error:
        return (f"hops of HOLD {hold}, after which nobody can be sent: {error}",)


def unproven(book: HopBook) -> str:
    """What is to be said of a hop whose far end is not proven over."""
    return f"{book}, unproven"


def settled_since(directory: Path, texts: Sequence[str]) -> tuple[str, ...]:
    """Which of these texts are of hops that have been proven over since."""
    try:
        books = read_hops(directory)
    except Pp4Error:
        return ()
    over = {unproven(book) for book in books if not book.unproven}
    # as long as what was granted was not known, it had another text
    over |= {unproven(_without_grant(book)) for book in books if not book.unproven}
    return tuple(text for text in texts if text in over)


def _without_grant(book: HopBook) -> HopBook:
    return replace(book, granted=None)


def limit_s(book: HopBook) -> float:
    """How long the far host of a hop is asked: its lease, and then some more."""
    return min(book.recorded.asked.ttl_s + MORE_S, LONGEST_S)


@contextlib.contextmanager
def _sent(book: HopBook, hold: str) -> Iterator[tuple[subprocess.Popen[bytes], Deadline]]:
    """A program that goes to the far host of a hop, under a guard; gone when the block is left."""
    number, most_s = book.recorded.hop, limit_s(book)
    deadline = Deadline.after(SystemClock(), most_s + _BEGIN_S)
    # not the HOLD's own cookie: whoever looks for what that one left must not find who looks, too
    until_ns = deadline.start_ns + deadline.limit_ns
    closer = [MODULE, "close", str(book.directory), str(number), f"{most_s:g}"]
    guarded = [hold, f"closer-{number}", f"{_GRACE_S:g}", str(until_ns), "--", *_python(*closer)]
    with open(book.directory / _OUTPUT, "ab", opener=_private) as output:
        process = subprocess.Popen(
            _python("pp4.hold.guard", *guarded),
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            cwd=book.directory,
            env=child_environment({"PYTHONPATH": str(_SOURCE), COOKIE: f"{hold}-closer"}),
            start_new_session=True,
        )
    try:
        yield process, deadline
    finally:
        _end(process)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def _python(module: str, *arguments: str) -> list[str]:
    return [sys.executable, "-P", "-m", module, *arguments]


def _wait(process: subprocess.Popen[bytes], deadline: Deadline) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(deadline.remaining_s())


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the guard and what it guards: by the end of its input, and else by a kill."""
    if process.stdin is not None:
        process.stdin.close()
    for last in (False, True):
        _wait(process, Deadline.after(SystemClock(), _KILLED_S))
        if process.returncode is not None or last:
            return
        # what it guarded sees the end of its own input
        process.kill()
