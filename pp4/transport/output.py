"""What a program writes, kept by whoever drains it until somebody asks for it."""

from __future__ import annotations

import hashlib
import threading
from collections import deque
from collections.abc import Callable

from pp4.clock import Deadline
from pp4.errors import Code, Refusal, WrongError
from pp4.transport.attempt import SLICE_S

MAX_UNREAD = 16 << 20
"""Bytes of standard output that are kept while nobody reads; then the program waits."""

_TAIL = 1 << 14


def lost(where: str, found: str) -> WrongError:
    """The refusal of everything that needs a connection that is gone."""
    return WrongError(
        Refusal(
            Code.CONNECTION_LOST,
            where,
            "a connection that lasts",
            found,
            left="what ran there may still run",
        )
    )


class Output:
    """Standard output: fed by one thread, taken by another, bounded in between.

    Args:
        label: names the stream in refusals.
        cap: bytes that are kept unread.
        freed: called when there is room again, for a feeder that does not wait in :meth:`feed`.
    """

    def __init__(
        self, label: str, cap: int = MAX_UNREAD, freed: Callable[[], None] | None = None
    ) -> None:
        self._label, self._cap, self._freed = label, cap, freed
        self._changed = threading.Condition()
        self._kept = bytearray()
        self._ended = False
        self._broken: str | None = None
        self._flowing = False
        self._dropped = 0

    def feed(self, data: bytes) -> None:
        """Add what came; wait while more than the cap is unread and somebody may still read it."""
        with self._changed:
            # waits for the reader or for the end of the stream, as the program itself would
            while len(self._kept) >= self._cap and not self._flowing and self._broken is None:
                self._changed.wait(SLICE_S)
            if len(self._kept) >= self._cap or self._dropped or self._broken is not None:
                self._dropped += len(data)
            else:
                self._kept += data
            self._changed.notify_all()

    def room(self) -> bool:
        """Whether :meth:`feed` would take something at once."""
        with self._changed:
            return len(self._kept) < self._cap or self._flowing or self._broken is not None

    def end(self) -> None:
        """Nothing more comes, because the program closed it."""
        with self._changed:
            self._ended = self._broken is None
            self._changed.notify_all()

    def break_off(self, found: str) -> None:
        """Nothing more comes, and nobody knows why; the first reason counts."""
        with self._changed:
            if not self._ended and self._broken is None:
                self._broken = found
            self._changed.notify_all()

    def flow(self) -> None:
        """Nobody reads from here on: what is over the cap is dropped, and a later read says so."""
        with self._changed:
            self._flowing = True
            self._changed.notify_all()
        self._say_freed()

    def _say_freed(self) -> None:
        if self._freed is not None:
            self._freed()

    def take(self, deadline: Deadline) -> bytes:
        """All that is there; empty at the end.  See ``Stream.read`` for what is raised."""
        with self._changed:
            self._wait(deadline, ended_only=False)
            data = bytes(self._kept)
            self._kept.clear()
            self._changed.notify_all()
        self._say_freed()
        if data or not self._dropped:
            return data
        raise WrongError(
            Refusal(
                Code.TOO_LARGE,
                f"{self._label}: output",
                f"at most {self._cap} bytes that nobody reads",
                f"{self._dropped} more, which are gone",
            )
        )

    def await_end(self, deadline: Deadline) -> None:
        """Wait until the program has closed it."""
        with self._changed:
            self._wait(deadline, ended_only=True)

    def _wait(self, deadline: Deadline, *, ended_only: bool) -> None:
        while True:
            deadline.require(f"{self._label}: output", left="the program may still run")
            if self._ended or (self._kept and not ended_only):
                return
            if self._broken is not None:
                raise lost(f"{self._label}: output", self._broken)
            self._changed.wait(min(SLICE_S, deadline.remaining_s()))


class Errors:
    """Standard error: its end, its length and its digest; it never makes the program wait."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._digest = hashlib.sha256()
        self._tail: deque[bytes] = deque()
        self._kept = 0
        self._bytes = 0
        self._ended = False

    def feed(self, data: bytes) -> None:
        """Add what came."""
        with self._changed:
            self._digest.update(data)
            self._bytes += len(data)
            self._tail.append(data)
            self._kept += len(data)
            while self._kept - len(self._tail[0]) >= _TAIL:
                self._kept -= len(self._tail.popleft())

    def end(self) -> None:
        """Nothing more comes."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def await_end(self, deadline: Deadline) -> None:
        """Wait until nothing more comes."""
        with self._changed:
            while not self._ended:
                deadline.require("standard error", left="the program may still run")
                self._changed.wait(min(SLICE_S, deadline.remaining_s()))

    @property
    def count(self) -> int:
        """Bytes that were written."""
        with self._changed:
            return self._bytes

    @property
    def sha256(self) -> str:
        """Digest of all of them, lower hex."""
        with self._changed:
            return self._digest.hexdigest()

    def last_lines(self, count: int) -> tuple[str, ...]:
        """The last lines that are not blank."""
        with self._changed:
            text = b"".join(self._tail).decode(errors="replace")
        lines = tuple(line for line in text.splitlines() if line.strip())
        return lines[-count:] if count > 0 else ()
