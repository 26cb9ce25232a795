"""What a transport can do; how it does it is its own business."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

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
