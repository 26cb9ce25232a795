"""The coordinator's line to a supervisor: numbered requests, one answer each, taken up again.

A request that got no answer is asked again under the same number over a new connection, until its
deadline: the supervisor does what it was asked once and answers as often as it is asked.  Only a
host that shows another key ends the line at once: no attempt can make it the one that granted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
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
_LONGEST_PAUSE_S = 2.0
"""A host that counts who comes in vain is not called ten times a second."""
_TIMED_OUT = {Code.STEP_TIMEOUT, Code.DEADLINE, Code.LEASE_LOST}
_WRONG = {Code.CONNECTION_LOST, Code.RANK_DIED, Code.BAD_FRAME, Code.INTERNAL}


class _Unanswered(Exception):
    """An attempt came to nothing; the refusal of an answer is something else."""

    def __init__(self, why: Pp4Error) -> None:
        super().__init__(str(why))
        self.why = why


class Line:
    """One connection at a time to one supervisor, and one request at a time on it.

    Threads may share it: a request waits until the one before is answered, which a supervisor does
    at once for everything but a close.

    Args:
        host: where the supervisor is.
        argv: the program that is the near end there.
        attempt_s: how long one attempt may take before a new connection is tried.

    Attributes:
        ended: why it ended for good, ``HOST_KEY``; None while there is any use in asking.
    """

    def __init__(
        self,
        host: Host,
        argv: Sequence[str],
        attempt_s: float = _ATTEMPT_S,
    ) -> None:
        self._host, self._argv, self._attempt_s = host, list(argv), attempt_s
        self._numbers = count(1)
        self._lock = threading.Lock()
        self._stream: Stream | None = None
        self._decoder = Decoder()
        self.ended: Pp4Error | None = None

    def ask(self, verb: str, arguments: dict[str, Any], deadline: Deadline) -> dict[str, Any]:
        """Ask for one thing, as often as it takes; -> the facts of the answer.

        Raises:
            Pp4Error: the refusal that was answered.
            TimedOutError: ``STEP_TIMEOUT``, no answer came; whether it was done is unknown.
            WrongError: ``CONNECTION_LOST``, likewise.
            RefusedError: ``HOST_KEY``, the host has another key now; so from then on.
        """
        request = Request(sequence=next(self._numbers), verb=verb, arguments=arguments)
        pause_s = _PAUSE_S
        while True:
            try:
                return self._facts(self._exchanged(request, deadline.within(self._attempt_s)))
            except _Unanswered as unanswered:
                time.sleep(min(pause_s, deadline.remaining_s()))
                # asked after the pause: an attempt without any time would hide why the last failed
                if deadline.expired():
                    raise unanswered.why from None
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def once(self, verb: str, arguments: dict[str, Any], deadline: Deadline) -> dict[str, Any]:
        """As :meth:`ask`, with one attempt: for what must not be begun twice."""
        request = Request(sequence=next(self._numbers), verb=verb, arguments=arguments)
        try:
            return self._facts(self._exchanged(request, deadline))
        except _Unanswered as unanswered:
            raise unanswered.why from None

    def _facts(self, reply: Reply) -> dict[str, Any]:
        if reply.facts is None:
            raise raised(there(refusal_of(reply.refusal), self._host))
        return reply.facts

    def _exchanged(self, request: Request, deadline: Deadline) -> Reply:
        """Try once, alone on the line; a connection on which anything went wrong is let go."""
        if not self._lock.acquire(timeout=deadline.remaining_s()):
            where = f"{request.verb} to the supervisor"
            expected, found = "an answer to what was asked before", "none in time"
            raise _Unanswered(TimedOutError(Refusal(Code.STEP_TIMEOUT, where, expected, found)))
        try:
            if self.ended is not None:
                raise self.ended
            return self._attempt(request, deadline)
        except Pp4Error as error:
            self.drop()
            if error.refusal.code is Code.HOST_KEY:
                self.ended = error
                raise
            raise _Unanswered(error) from error
        except BaseException:
            # a signal in the middle: nobody knows how far the stream was read
            self.drop()
            raise
        finally:
            self._lock.release()

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

    def patient(self, attempt_s: float) -> None:
        """Give each attempt this long from now on."""
        self._attempt_s = attempt_s

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


def there(refusal: Refusal, host: Host) -> Refusal:
    """The refusal of another host as it is shown here: what it says to do is to be done there."""
    # one that a further host spoke keeps that host's name
    named = host.name == "local" or refusal.host != "local"
    return refusal if named else replace(refusal, host=host.address)
