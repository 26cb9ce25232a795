"""What a HOLD's step says to the worker that it has started: frames over standard input.

The first order hands over the grant.  Afterwards the end of the input means the end of the worker,
so one that runs for a HOLD does not outlive whoever runs it.
"""

from __future__ import annotations

import os
import select
from collections import deque

from pp4.clock import Deadline, SystemClock
from pp4.errors import Code, Pp4Error, Refusal, RefusedError, WrongError
from pp4.wire import Decoder, Event, Reply, Request, encode, encode_reply
from pp4.wire.facts import read
from pp4.wire.frames import Model
from pp4.wire.holds import Granted

_READ = 1 << 16
_SERVE = "serve"
_ANSWER_S = 5.0
"""Seconds in which whoever gives orders has to read; everybody else waits meanwhile."""


class Handed(Model):
    """Arguments of the first order."""

    granted: Granted


class Orders:
    """Orders from one descriptor, answers to another.

    Args:
        source: where orders come from.
        sink: where answers go, a pipe.
    """

    def __init__(self, source: int, sink: int) -> None:
        self._source, self._sink = source, sink
        self._decoder = Decoder()
        self._ready: deque[Request] = deque()
        self._ended = False
        # half an answer may lie there: nothing that follows could be read
        self._unread = False

    @classmethod
    def take_over(cls) -> Orders:
        """Take the standard streams of this process; what is printed from now on is a log."""
        source, sink = os.dup(0), os.dup(1)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(2, 1)
        os.close(null)
        return cls(source, sink)

    def fileno(self) -> int:
        """The descriptor that orders come from, for an event loop to watch."""
        return self._source

    def first(self, limit_s: float) -> tuple[Request, Granted]:
        """Wait for the order that hands over a grant.

        Args:
            limit_s: seconds until it has to be there.

        Returns:
            the order, to be answered once the worker serves, and the grant.

        Raises:
            RefusedError: ``EVIDENCE_MISSING``, the input ends or time is up before it is whole;
                ``BAD_FRAME``, it is something else.
        """
        deadline = Deadline.after(SystemClock(), limit_s)
        while not self._ready:
            left_s = deadline.remaining_s()
            came, _, _ = select.select([self._source], [], [], left_s)
            if not came or (not self._take() and not self._ready):
                found = "the end of it" if came else f"none within {limit_s:g} s"
                raise _refused(Code.EVIDENCE_MISSING, "a HOLD's grant", found)
        order = self._ready.popleft()
        if order.verb != _SERVE:
            raise _refused(Code.BAD_FRAME, f"the order {_SERVE}", order.verb)
        try:
            return order, read(Handed, order.arguments).granted
        except WrongError as error:
            # its input is not shown: a nonce may stand in it
            raise _refused(Code.BAD_FRAME, "a HOLD's grant", "none that can be read") from error

    def arrived(self) -> tuple[list[Request], bool]:
        """Take what has come, once the descriptor can be read; never waits.

        Returns:
            whole orders, and whether the input goes on.

        Raises:
            RefusedError: ``BAD_FRAME``; nothing that follows can be read.
        """
        while not self._ended and select.select([self._source], [], [], 0)[0]:
            self._take()
        orders = list(self._ready)
        self._ready.clear()
        return orders, not self._ended

    def answer(self, order: Request, answer: dict[str, object] | Refusal) -> None:
        """Answer an order; where nobody reads any more, or for long, nobody is told.

        Args:
            order: what was asked.
            answer: facts, or why there are none.
        """
        if isinstance(answer, Refusal):
            reply = Reply(sequence=order.sequence, refusal=answer.as_dict())
        else:
            reply = Reply(sequence=order.sequence, facts=answer)
        self._write(encode_reply(reply))

    def tell(self, order: Request, name: str) -> None:
        """Say how far an order has come, before it is answered.

        Args:
            order: what was asked.
            name: what happened.
        """
        self._write(encode(Event(sequence=order.sequence, name=name)))

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        deadline = Deadline.after(SystemClock(), _ANSWER_S)
        try:
            while rest and not self._unread:
                _, free, _ = select.select([], [self._sink], [], deadline.remaining_s())
                if free:
                    # a pipe that can be written takes as much without a wait
                    rest = rest[os.write(self._sink, rest[: select.PIPE_BUF]) :]
                self._unread = not free
        except BrokenPipeError:
            self._unread = True
        self._ended |= self._unread

    def close(self) -> None:
        """Let go of both descriptors."""
        os.close(self._source)
        os.close(self._sink)

    def _take(self) -> bool:
        """Read once; -> whether the input goes on."""
        data = os.read(self._source, _READ)
        self._ended = not data
        try:
            messages = list(self._decoder.feed(data))
        except Pp4Error as error:
            self._ended = True
            raise RefusedError(error.refusal) from error
        self._ready.extend(one for one in messages if isinstance(one, Request))
        return bool(data)


def _refused(code: Code, expected: str, found: str) -> RefusedError:
    return RefusedError(Refusal(code, "standard input", expected, found))
