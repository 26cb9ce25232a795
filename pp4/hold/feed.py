"""From the input of one process to that of another: nothing blocks, and little waits in between."""

from __future__ import annotations

import os
import select

_INPUT = 0
_READ = 1 << 16
_WAITING = 1 << 20
"""Bytes; while more wait for the child, no more is read, so that whoever writes is held up."""


class Feed:
    """Standard input of this process, passed on to the input of a child.

    Args:
        target: descriptor of the child's input; closed here.
    """

    def __init__(self, target: int) -> None:
        os.set_blocking(target, False)
        self._target: int | None = target
        self._waiting = bytearray()
        self._at_end = False
        self.ended = False

    def interest(self) -> dict[int, int]:
        """Return descriptors with the events to poll for; errors and hang-ups come unasked."""
        wanted = {}
        if not self.ended:
            # an input that is not read still says when whoever writes to it is gone
            wanted[_INPUT] = select.POLLIN if self._room() else 0
        if self._target is not None:
            wanted[self._target] = select.POLLOUT if self._waiting else 0
        return wanted

    def move(self, events: dict[int, int]) -> None:
        """Read what came and write what the child takes; never waits.

        Args:
            events: what ``poll`` said, by descriptor.
        """
        said = events.get(_INPUT, 0)
        self.ended = self.ended or bool(said & ~select.POLLIN)
        if self._target is not None and events.get(self._target, 0) & select.POLLERR:
            # the child reads no more; the input is read on, to see its end
            self.close()
        if said & select.POLLIN and not self.ended and self._room():
            self._fill()
        self._drain()
        # after a hang-up a read returns at once, and what was written before is still there
        while self.ended and not self._at_end and self._room():
            self._fill()
            self._drain()

    def _room(self) -> bool:
        return len(self._waiting) < _WAITING

    def _fill(self) -> None:
        try:
            data = os.read(_INPUT, _READ)
        except OSError:
            data = b""
        if not data:
            self.ended = self._at_end = True
        elif self._target is not None:
            self._waiting += data

    def _drain(self) -> None:
        if self._target is None:
            return
        try:
            while self._waiting:
                del self._waiting[: os.write(self._target, bytes(self._waiting[:_READ]))]
        except BlockingIOError:
            return
        except OSError:
            self.close()
        if self._at_end:
            self.close()

    def close(self) -> None:
        """End the child's input; what it has not taken is dropped."""
        if self._target is not None:
            os.close(self._target)
            self._target = None
        self._waiting.clear()
