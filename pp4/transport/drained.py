"""A running program as a stream: what both transports do alike."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from pp4.clock import Deadline
from pp4.errors import BadInputError, TimedOutError
from pp4.transport.attempt import exclusively
from pp4.transport.output import Errors, Output, lost
from pp4.transport.parts import carried


class Ends(Protocol):
    """How a transport reaches a program that it started."""

    def send(self, data: bytes, deadline: Deadline) -> None:
        """Give the program all of the data; ``TimedOutError`` or ``CONNECTION_LOST`` otherwise."""

    def end_input(self, deadline: Deadline) -> None:
        """Close its input; ``TimedOutError`` if that does not get through."""

    def exit_status(self, deadline: Deadline) -> int | None:
        """Wait for its status, None where nobody will ever say it; ``TimedOutError``."""

    def let_go(self) -> None:
        """Give up whatever leads to the program, without waiting."""


class DrainedStream:
    """A program, its input and its outputs; see :class:`pp4.transport.interface.Stream`.

    Args:
        label: names the program and its host in refusals.
        ends: the way to the program.
        output: where its standard output is drained to.
        errors: where its standard error is drained to.
        closed: called when nothing leads to the program any more; may be called twice.
    """

    def __init__(
        self,
        label: str,
        ends: Ends,
        output: Output,
        errors: Errors,
        closed: Callable[[DrainedStream], None],
    ) -> None:
        self._label, self._ends, self._output, self._errors = label, ends, output, errors
        self._on_close = closed
        self._writing = threading.Lock()
        self._closed = False
        self._half_written = False
        self._status: int | None = None

    @property
    def errors(self) -> Errors:
        """Length and digest of its standard error."""
        return self._errors

    def write(self, data: bytes, deadline: Deadline) -> None:
        """Write all of ``data``; see the interface for what is raised."""
        where = f"{self._label}: input"
        # a heartbeat of another thread must not get into the middle of a message
        with exclusively(self._writing, deadline, where):
            self._write(data, where, deadline)

    def _write(self, data: bytes, where: str, deadline: Deadline) -> None:
        self._require_open(where)
        if self._half_written:
            raise lost(where, "an earlier write that was cut by its deadline")
        if self._status is not None:
            raise lost(where, f"a program that has ended with status {self._status}")
        deadline.require(where, left="nothing: it was not tried")
        try:
            self._ends.send(data, deadline)
        except TimedOutError:
            # nobody knows how much of it arrived: nothing may follow it
            self._half_written = True
            raise

    def read(self, deadline: Deadline) -> bytes:
        """Return what came; see the interface for what is raised."""
        self._require_open(f"{self._label}: output")
        return self._output.take(deadline)

    def last_lines(self, count: int = 10) -> tuple[str, ...]:
        """The last lines of its standard error that are not blank."""
        return self._errors.last_lines(count)

    def finish(self, deadline: Deadline) -> int:
        """End its input and wait for its status; see the interface for what is raised."""
        where = f"{self._label}: end"
        self._require_open(where)
        if self._status is not None:
            return self._status
        try:
            deadline.require(where, left="the program may still run")
            self._ends.end_input(deadline)
            self._output.flow()
            self._output.await_end(deadline)
            self._errors.await_end(deadline)
            status = self._ends.exit_status(deadline)
        except TimedOutError:
            self.close()
            raise
        if status is None:
            raise lost(where, "no exit status")
        self._status = status
        self._ends.let_go()
        # what it wrote can still be read; its host has nothing left to end
        self._on_close(self)
        return status

    def close(self) -> None:
        """Let go; a wait of another thread ends with ``CONNECTION_LOST``."""
        if self._closed:
            return
        self._closed = True
        self._ends.let_go()
        self._output.break_off("closed here")
        self._on_close(self)

    def _require_open(self, where: str) -> None:
        if self._closed:
            raise lost(where, "closed here")


def checked_argv(argv: Sequence[str]) -> list[str]:
    """The arguments of a program, as a list that every transport can carry.

    Raises:
        BadInputError: there is none, one cannot be carried, or the program is no name.
    """
    words = list(argv)
    if not words or not words[0] or words[0].startswith("-"):
        raise BadInputError.of("argv", "a program and its arguments", repr(words)[:200])
    for word in words:
        if not carried(word):
            raise BadInputError.of("argv", "arguments that a host can take", repr(word)[:200])
    return words
