"""Every way in which a call can end badly, as one refusal and one exit code."""

from __future__ import annotations

import errno
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import typer

from pp4.errors import Code, Exit, Pp4Error, Refusal

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


class Stopped(BaseException):
    """A signal asks the run to end; no ``except Exception`` on the way out may swallow it.

    Args:
        number: the signal.
        again: whether it came while the first one was still being obeyed.
    """

    def __init__(self, number: int, *, again: bool) -> None:
        super().__init__(number)
        self.number = number
        self.again = again


@contextmanager
def signals() -> Iterator[None]:
    """Turn the first two signals that ask for an end into :class:`Stopped` while the block runs."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    seen: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        seen.append(number)
        if len(seen) > 2:
            # the second has cut the clean-up short; what is still written down then takes a moment
            return
        raise Stopped(number, again=len(seen) > 1)

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    # Who started us with a signal ignored (nohup) wants it ignored.
    taken = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    before = [(number, signal.signal(number, stop)) for number in taken]
    try:
        yield
    finally:
        for number, old in before:
            signal.signal(number, old)


def answer(error: BaseException, where: str, *, running: bool = False) -> tuple[Refusal, Exit]:
    """Return what to say about an error, and the exit code.

    Args:
        error: anything that ended a call.
        where: the command.
        running: whether something that the command started may still run.
    """
    if isinstance(error, Pp4Error):
        return error.refusal, error.exit
    if isinstance(error, Stopped):
        return _stopped(error, where)
    if isinstance(error, typer.TyperException):
        context = getattr(error, "ctx", None)
        path = context.command_path if context is not None else "pp4"
        refusal = Refusal(
            code=Code.USAGE,
            where=path,
            expected=f"a command line as in {path} --help",
            found=" ".join(error.format_message().split()).rstrip("."),
            next=f"{path} --help",
        )
        return refusal, Exit.USAGE
    if isinstance(error, ModuleNotFoundError) and not (error.name or "pp4").startswith("pp4"):
        return _missing(error.name or "", where), Exit.REFUSED
    if isinstance(error, OSError) and error.errno in _NO_ROOM and error.filename is None:
        refusal = Refusal(
            code=Code.UNWRITABLE,
            where=where,
            expected="room for the output",
            found=error.strerror or type(error).__name__,
        )
        return refusal, Exit.REFUSED
    # Nobody foresaw it, so nobody says what it left: nothing only where nothing was started.
    left, code = ("not known", Exit.UNCLEAN) if running else ("nothing", Exit.WRONG)
    return _internal(error, left), code


def _stopped(error: Stopped, where: str) -> tuple[Refusal, Exit]:
    name = signal.Signals(error.number).name
    refusal = Refusal(
        code=Code.INTERRUPTED,
        where=where,
        expected="to run to the end",
        found=f"a second {name} during the clean-up" if error.again else name,
        left="processes of this run may still be there" if error.again else "nothing",
        next="pp4 explain INTERRUPTED",
    )
    if error.again:
        return refusal, Exit.UNCLEAN
    interrupted = error.number == signal.SIGINT
    return refusal, Exit.INTERRUPTED if interrupted else Exit.TERMINATED


def _missing(module: str, where: str) -> Refusal:
    return Refusal(
        code=Code.MISSING_PACKAGE,
        where=where,
        expected=f"the Python package {module.partition('.')[0]}",
        found="not installed",
        next="pip install 'pp4[gpu]'",
    )


def _internal(error: BaseException, left: str) -> Refusal:
    place, trace = "pp4", error.__traceback__
    while trace is not None:
        name = str(trace.tb_frame.f_globals.get("__name__", ""))
        if name.split(".")[0] == "pp4":
            place = f"{name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return Refusal(
        code=Code.INTERNAL,
        where=place,
        expected="no error that pp4 does not know",
        found=" ".join(f"{type(error).__name__}: {error}".split()),
        left=left,
    )
