"""Frames over the standard streams of a process that somebody else has started."""

from __future__ import annotations

import os
import select
from collections import deque

from pp4.clock import Deadline
from pp4.errors import Code, Refusal, WrongError
from pp4.wire import Decoder, Message, Reply, encode, encode_reply

_READ = 1 << 16


class Pipes:
    """Reads from one descriptor and writes to another.

    Args:
        source: where messages come from.
        sink: where they go; written without a deadline, since whoever started this process reads.
    """

    def __init__(self, source: int, sink: int) -> None:
        self._source, self._sink = source, sink
        self._decoder = Decoder()
        self._ready: deque[Message] = deque()

    @classmethod
    def take_over(cls) -> Pipes:
        """Take the standard streams of this process; what is printed from now on is a log."""
        source, sink = os.dup(0), os.dup(1)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(2, 1)
        os.close(null)
        return cls(source, sink)

    def send(self, message: Message) -> None:
        """Write one frame whole.

        Raises:
            WrongError: ``CONNECTION_LOST``, nobody reads.
        """
        whole = encode_reply(message) if isinstance(message, Reply) else encode(message)
        rest = memoryview(whole)
        try:
            while rest:
                rest = rest[os.write(self._sink, rest) :]
        except BrokenPipeError as error:
            raise self._gone() from error

    def receive(self, deadline: Deadline) -> Message:
        """Read one frame.

        Raises:
            TimedOutError: ``STEP_TIMEOUT``.
            WrongError: ``CONNECTION_LOST`` at the end, ``BAD_FRAME``.
        """
        while not self._ready:
            ready, _, _ = select.select([self._source], [], [], deadline.remaining_s())
            if not ready:
                deadline.require("a message")
            data = os.read(self._source, _READ)
            if not data:
                raise self._gone()
            self._ready.extend(self._decoder.feed(data))
        return self._ready.popleft()

    def _gone(self) -> WrongError:
        return WrongError(
            Refusal(Code.CONNECTION_LOST, "standard streams", "whoever started this", "nobody")
        )
