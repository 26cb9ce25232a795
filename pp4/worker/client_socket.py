"""Questions to a worker and the answers that belong to them, over one socket, for one thread."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from pp4.clock import Deadline, SystemClock
from pp4.errors import (
    BadInputError,
    Code,
    Pp4Error,
    Refusal,
    RefusedError,
    TimedOutError,
    WrongError,
    reason_of,
)
from pp4.wire.draft_frames import Bytes, Decoder, Frame, head
from pp4.wire.drafts import ANSWERS, AnyAnswer, Drafted, Question, Refused, Spoken
from pp4.wire.facts import refusal_of
from pp4.worker.proposals import error_of

_READ: Final = 1 << 18
_LAST_WORD_S: Final = 1.0
_SOONEST_S: Final = 0.001
A = TypeVar("A", bound=Spoken)
Judge = Callable[[Drafted], bool]
"""Says of each block, as it comes, whether it may be used; raises where nothing can be trusted."""


class ClientSocket:
    """Sends questions, and keeps the answers that come until they are asked for.

    Without a judge the sequence alone says what a block answers: a second block under one sequence
    ends the conversation, and one that was given up is thrown away.

    Args:
        connected: a connected stream; closed with this.
        judge: looks at every block before its sequence is looked at; what it turns down is dropped
            and changes nothing, also where it is late or a copy.

    Attributes:
        over: why nothing can be asked any more, None while it can.
    """

    def __init__(self, connected: socket.socket, judge: Judge | None = None) -> None:
        self._socket, self._judge = connected, judge
        self._decoder: Decoder[AnyAnswer] = Decoder(ANSWERS)
        self._buffer = bytearray(_READ)
        self._sequence = 0
        self._waiting: set[int] = set()
        self._given_up: set[int] = set()
        self._answers: dict[int, Frame[AnyAnswer]] = {}
        self.over: Pp4Error | None = None

    def next(self) -> int:
        """The sequence of the next question."""
        self._sequence += 1
        return self._sequence

    def ask(self, questions: Sequence[Question], deadline: Deadline, body: Bytes = b"") -> None:
        """Send questions in one piece, so that the worker has them together.

        Args:
            questions: of which only the last has a body.
            deadline: until all of it has been sent.
            body: of the last one; it is not copied.

        Raises:
            TimedOutError: the worker does not read; that ends the conversation.
            Pp4Error: it is over.
        """
        self._require()
        *first, last = questions
        start = b"".join([*(head(question) for question in first), head(last, len(body))])
        self._waiting.update(question.sequence for question in questions)
        try:
            for piece in (start, body):
                if len(piece):
                    self._socket.settimeout(max(deadline.remaining_s(), _SOONEST_S))
                    self._socket.sendall(piece)
        except TimeoutError:
            # half a question may be on its way
            raise self._end(TimedOutError(self._late(deadline, "the worker to read"))) from None
        except OSError as error:
            raise self._last_word(error) from error

    def answer(self, sequence: int, kind: type[A], deadline: Deadline) -> tuple[A, bytearray]:
        """Wait for the answer to a question; -> it and its body.

        Raises:
            TimedOutError: it has not come; it can be waited for again.
            BadInputError: nothing was asked under this sequence, or it was answered already.
            Pp4Error: the worker refuses, or the conversation is over.
        """
        if sequence not in self._waiting:
            raise BadInputError.of("client", "a question that waits", f"sequence {sequence}")
        while sequence not in self._answers:
            self._require()
            last = deadline.expired()
            self._receive(deadline)
            # what is dropped comes as well, and a worker may send that without an end
            if last and sequence not in self._answers:
                raise TimedOutError(self._late(deadline, "an answer"))
        self._waiting.remove(sequence)
        message, body = self._answers.pop(sequence)
        if isinstance(message, Refused):
            raise error_of(refusal_of(message.refusal))
        if not isinstance(message, kind):
            raise self.stranger("answer", kind.__name__, type(message).__name__)
        return message, body

    def waits(self, sequence: int) -> bool:
        """Whether the answer to a question can still be asked for."""
        return sequence in self._waiting

    def answered(self, sequence: int) -> bool:
        """Whether the answer to a question that waits is there already."""
        return sequence in self._waiting and sequence in self._answers

    def look(self) -> None:
        """Take what has come; waits for no more than a moment.

        Raises:
            Pp4Error: the conversation is over.
        """
        self._require()
        with contextlib.suppress(TimedOutError):
            self._receive(Deadline.after(SystemClock(), 0.0))

    def give_up(self, sequence: int) -> None:
        """Throw the answer away when it comes."""
        if self._answers.pop(sequence, None) is None and sequence in self._waiting:
            self._given_up.add(sequence)
        self._waiting.discard(sequence)

    def stranger(self, member: str, expected: str, found: str) -> Pp4Error:
        """An answer that does not belong to what was asked ends everything; -> the error."""
        self._answers.clear()
        return self._end(WrongError(Refusal(Code.BAD_FRAME, f"worker, {member}", expected, found)))

    def close(self) -> None:
        """End it, and with it the worker's side of it."""
        self._answers.clear()
        self._end(RefusedError(_lost("it was closed here")))

    # -- the socket -------------------------------------------------------------------------

    def _require(self) -> None:
        if self.over is not None:
            raise type(self.over)(self.over.refusal)

    def _end(self, error: Pp4Error) -> Pp4Error:
        self.over = self.over or error
        self._socket.close()
        return error

    def _late(self, deadline: Deadline, what: str) -> Refusal:
        expected = f"{what} within {deadline.limit_ns / 1e9:g} s"
        found = f"nothing after {deadline.elapsed_ns() / 1e9:.3g} s"
        return Refusal(Code.STEP_TIMEOUT, "worker", expected, found)

    def _receive(self, deadline: Deadline) -> None:
        """Take what has come, or wait for it."""
        try:
            self._socket.settimeout(max(deadline.remaining_s(), _SOONEST_S))
            count = self._socket.recv_into(self._buffer)
        except TimeoutError:
            raise TimedOutError(self._late(deadline, "an answer")) from None
        except OSError as error:
            raise self._end(RefusedError(_lost(reason_of(error)))) from error
        if count == 0:
            raise self._end(RefusedError(_lost("the worker closed it")))
        try:
            frames = list(self._decoder.feed(memoryview(self._buffer)[:count]))
        except WrongError as error:
            raise self._end(error) from error
        for frame in frames:
            self._sort(frame)

    def _sort(self, frame: Frame[Any]) -> None:
        """Keep an answer for whoever asked."""
        message = frame.message
        if isinstance(message, Refused) and message.sequence is None:
            raise self._end(error_of(refusal_of(message.refusal)))
        if isinstance(message, Drafted) and not self._may_be_used(message):
            self._given_up.discard(message.sequence)
        elif message.sequence in self._given_up:
            self._given_up.remove(message.sequence)
        elif message.sequence in self._waiting and message.sequence not in self._answers:
            self._answers[message.sequence] = frame
        else:
            raise self.stranger("sequence", "one that waits", f"{message.sequence}")

    def _may_be_used(self, block: Drafted) -> bool:
        if self._judge is None:
            return True
        try:
            return self._judge(block)
        except Pp4Error as error:
            self._answers.clear()
            raise self._end(error) from error

    def _last_word(self, error: OSError) -> Pp4Error:
        """Why the worker closed, if it said so before."""
        deadline = Deadline.after(SystemClock(), _LAST_WORD_S)
        with contextlib.suppress(Pp4Error):
            while not deadline.expired():
                self._receive(deadline)
        return self._end(self.over or RefusedError(_lost(reason_of(error))))


def _lost(found: str) -> Refusal:
    return Refusal(
        Code.CONNECTION_LOST,
        "worker",
        "a connection",
        found,
        left="the worker, which closes what was open here",
        next="pp4 worker status",
    )
