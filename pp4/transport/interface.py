"""What a transport can do; how it does it is its own business."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol

from pp4.clock import Deadline
from pp4.wire import Message


class Channel(Protocol):
    """One started process that speaks frames on its standard streams."""

    @property
    def pid(self) -> int:
        """Process id on the host that it runs on."""

    def send(self, message: Message, deadline: Deadline) -> None:
        """Write one frame.

        Raises:
            TimedOutError: the process did not take it in time.
            WrongError: ``RANK_DIED``, the process is gone.
        """

    def receive(self, deadline: Deadline) -> Message:
        """Read one frame.

        Raises:
            TimedOutError: none came in time; what the process does is then unknown.
            WrongError: ``RANK_DIED`` at the end of the stream, ``BAD_FRAME`` for anything else.
        """

    def last_lines(self, count: int = 10) -> tuple[str, ...]:
        """The last lines of its standard error."""

    def end_input(self) -> None:
        """End its input, which asks it to end; nobody waits for that here."""

    def stop(self, grace_s: float) -> int | None:
        """End its input, then TERM, then KILL its group.

        Args:
            grace_s: how long each of the three may take.

        Returns:
            The exit status, None while it or any of its group is left.
        """


class Transport(Protocol):
    """A way to start processes on one host."""

    name: str

    def start(
        self, argv: Sequence[str], *, environment: Mapping[str, str], directory: Path, label: str
    ) -> Channel:
        """Start a process in a group of its own.

        Args:
            argv: the program and its arguments; no shell reads them.
            environment: all of its environment.
            directory: where it runs and where its standard error is kept.
            label: names the standard-error file, unique in the directory.

        Raises:
            RefusedError: it cannot be started.
        """


class Stream(Protocol):
    """A program that runs on a host: its input, and both of its outputs, drained together.

    What its outputs hold is kept while nobody reads: the program never waits for a reader, up to
    16 MiB of standard output; its standard error is cut to the last lines and a digest.  Several
    threads may write: what one call writes stays together.
    """

    def write(self, data: bytes, deadline: Deadline) -> None:
        """Write all of ``data`` to its input.

        Over SSH the host has taken it then; whether the program did, only the program can say.

        Raises:
            TimedOutError: ``STEP_TIMEOUT``, it did not take everything in time; nothing can be
                written after it, unless the deadline had passed before.
            WrongError: ``CONNECTION_LOST``, the way to it is gone, or it has ended.
        """

    def read(self, deadline: Deadline) -> bytes:
        """Return what it wrote since, at least one byte; empty at the end of its output.

        Raises:
            TimedOutError: ``STEP_TIMEOUT``, nothing came; what it does is then unknown.
            WrongError: ``CONNECTION_LOST``, the way to it is gone; so is what it does.
                ``TOO_LARGE``, :meth:`finish` had to drop what was over the 16 MiB.
        """

    def last_lines(self, count: int = 10) -> tuple[str, ...]:
        """The last lines of its standard error that are not blank."""

    def finish(self, deadline: Deadline) -> int:
        """End its input, drain its outputs and wait for its exit status.

        What it wrote can still be read afterwards.

        Returns:
            The status; 128 and the number of the signal where one ended it.

        Raises:
            TimedOutError: ``STEP_TIMEOUT``, it did not end; it is let go and may still run.
            WrongError: ``CONNECTION_LOST``, nobody can say how it ended.
        """

    def close(self) -> None:
        """Let go.  The program may go on: its death is the business of who owns it there."""


class Host(Protocol):
    """A host that runs programs and takes files; opened by its own constructor or function.

    Attributes:
        name: the kind of transport.
        address: for messages: ``local``, or user, host and port.
        fingerprint: of the host's key, None where there is none.
    """

    name: Literal["ssh", "local"]
    address: str
    fingerprint: str | None

    def run(self, argv: Sequence[str], deadline: Deadline) -> Stream:
        """Start a program; no shell reads its arguments, and it gets no terminal.

        Raises:
            TimedOutError: ``STEP_TIMEOUT``, whether it was started is unknown.
            WrongError: ``CONNECTION_LOST``.
            RefusedError: ``UNREADABLE``, the program is not there; over SSH this is only known from
                its exit status 127.
        """

    def put(self, data: bytes, path: str, deadline: Deadline) -> None:
        """Make a file of mode 0600 with these bytes, whole or not at all.

        It goes to ``path`` with ``.part`` behind it first and is renamed when everything is there;
        what an earlier attempt left there is compared, and gone on from where it begins to differ.
        The caller checks its digest by a program on the host.

        Raises:
            TimedOutError: ``STEP_TIMEOUT``; what was sent stays for the next attempt.
            WrongError: ``CONNECTION_LOST``.
            RefusedError: ``UNWRITABLE``.
        """

    def close(self) -> None:
        """End the connection and whatever of it still waits."""
