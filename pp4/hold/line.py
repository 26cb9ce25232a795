"""The coordinator's line to a supervisor: numbered requests, one answer each, taken up again.

A request that got no answer is asked again under the same number over a new connection, until its
deadline: the supervisor does what it was asked once and answers as often as it is asked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from pp4.clock import Deadline
from pp4.errors import (
    Code,
    Pp4Error,
    Refusal,
    RefusedError,
    TimedOutError,
    UncleanError,
    WrongError,
)
from pp4.transport.interface import Host, Stream
from pp4.wire import Decoder, Reply, Request, encode
from pp4.wire.facts import refusal_of

_ATTEMPT_S = 10.0
_PAUSE_S = 0.1
_TIMED_OUT = {Code.STEP_TIMEOUT, Code.DEADLINE, Code.LEASE_LOST}
_WRONG = {Code.CONNECTION_LOST, Code.RANK_DIED, Code.BAD_FRAME, Code.INTERNAL}


class Line:
    """One connection at a time to one supervisor; used by one thread.

    Args:
        host: where the supervisor is.
        argv: the program that is the near end there.
        numbers: gives each request its number; shared by all lines of a HOLD.
        attempt_s: how long one attempt may take before a new connection is tried.
    """

    def __init__(
        self,
        host: Host,
        argv: Sequence[str],
        numbers: Callable[[], int] | None = None,
        attempt_s: float = _ATTEMPT_S,
    ) -> None:
        self._host, self._argv, self._attempt_s = host, list(argv), attempt_s
        self._number = numbers or count(1).__next__
        self._stream: Stream | None = None
        self._decoder = Decoder()

    def ask(self, verb: str, arguments: dict[str, Any], deadline: Deadline) -> dict[str, Any]:
        """Ask for one thing, as often as it takes; -> the facts of the answer.

        Raises:
            Pp4Error: the refusal that was answered.
            TimedOutError: ``STEP_TIMEOUT``, no answer came; whether it was done is unknown.
            WrongError: ``CONNECTION_LOST``, likewise.
        """
        request = Request(sequence=self._number(), verb=verb, arguments=arguments)
        while True:
            try:
                reply = self._attempt(request, deadline.within(self._attempt_s))
                break
            except Pp4Error:
                self.drop()
                if deadline.expired():
                    raise
                time.sleep(_PAUSE_S)
        return _facts(reply)

    def once(self, verb: str, arguments: dict[str, Any], deadline: Deadline) -> dict[str, Any]:
        """As :meth:`ask`, with one attempt: for what must not be begun twice."""
        request = Request(sequence=self._number(), verb=verb, arguments=arguments)
        reply = self._attempt(request, deadline)
        return _facts(reply)

    def _attempt(self, request: Request, deadline: Deadline) -> Reply:
        if self._stream is None:
            self._stream, self._decoder = self._host.run(self._argv, deadline), Decoder()
        self._stream.write(encode(request), deadline)
        while True:
            data = self._stream.read(deadline)
            if not data:
                said = "; ".join(self._stream.last_lines(2)) or "nothing said"
                expected, found = f"an answer to {request.verb}", f"the end; {said}"
                raise WrongError(Refusal(Code.CONNECTION_LOST, "supervisor", expected, found))
            for message in self._decoder.feed(data):
                if isinstance(message, Reply) and message.sequence == request.sequence:
                    return message

    def patient(self, attempt_s: float) -> Line:
        """Give each attempt this long from now on; -> this line."""
        self._attempt_s = attempt_s
        return self

    def redirect(self, argv: Sequence[str]) -> None:
        """Use another program as the near end from the next connection on."""
        self._argv = list(argv)

    def drop(self) -> None:
        """Let go of the connection; the next request makes a new one."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None


def raised(refusal: Refusal) -> Pp4Error:
    """The error that a refusal was on the other host: what a person sees has the same exit code."""
    if refusal.code in _TIMED_OUT:
        return TimedOutError(refusal)
    if refusal.code is Code.SURVIVOR:
        return UncleanError(refusal)
    return WrongError(refusal) if refusal.code in _WRONG else RefusedError(refusal)


def _facts(reply: Reply) -> dict[str, Any]:
    if reply.facts is None:
        raise raised(refusal_of(reply.refusal))
    return reply.facts
