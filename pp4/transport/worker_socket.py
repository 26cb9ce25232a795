"""Asks a worker over its socket how it is; needs nothing of the side that drafts."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Final

from pp4.clock import Deadline, SystemClock
from pp4.errors import Code, Refusal, RefusedError, WrongError
from pp4.receipts.canonical import shown
from pp4.wire.draft_frames import Decoder, encode
from pp4.wire.drafts import ANSWERS, AnyAnswer, Refused, Standing, Status
from pp4.wire.facts import refusal_of

LIMIT_S: Final = 5.0
_READ: Final = 1 << 16
_LARGEST_BODY: Final = 0
"""An answer to STATUS has no body."""


def ask_status(path: Path, limit_s: float = LIMIT_S) -> Standing:
    """Ask a worker for its state; it answers in every state.

    Args:
        path: its Unix socket.
        limit_s: seconds until it has to have answered.

    Raises:
        RefusedError: ``UNREACHABLE``, nobody listens there, or no answer came; or what it refuses.
        WrongError: ``BAD_FRAME``, what came is no answer to the question.
    """
    deadline = Deadline.after(SystemClock(), limit_s)
    question = Status(sequence=1)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
            line.settimeout(deadline.remaining_s())
            line.connect(str(path))
            line.sendall(encode(question))
            answer = _answer(line, deadline)
    except TimeoutError as error:
        raise _unreachable(path, f"none within {limit_s:g} s") from error
    except OSError as error:
        # a path that is too long has no error number
        raise _unreachable(path, error.strerror or str(error)) from error
    if answer is None:
        raise _unreachable(path, "the end of the connection")
    if isinstance(answer, Refused):
        raise RefusedError(refusal_of(answer.refusal))
    if not isinstance(answer, Standing) or answer.sequence != question.sequence:
        expected, found = "the answer to STATUS", answer.verb
        raise WrongError(Refusal(Code.BAD_FRAME, shown(str(path)), expected, found))
    return answer


def _answer(line: socket.socket, deadline: Deadline) -> AnyAnswer | None:
    """The first message that comes, None where the connection ends before it is whole."""
    decoder = Decoder(ANSWERS, _LARGEST_BODY)
    while True:
        left_s = deadline.remaining_s()
        if not left_s:
            # a timeout of 0 would mean something else
            raise TimeoutError
        line.settimeout(left_s)
        data = line.recv(_READ)
        if not data:
            return None
        for frame in decoder.feed(data):
            return frame.message


def _unreachable(path: Path, found: str) -> RefusedError:
    where, again = f"socket {shown(str(path))}", "pp4 worker serve CHECKPOINT"
    expected = "an answer of a worker"
    return RefusedError(Refusal(Code.UNREACHABLE, where, expected, shown(found), next=again))
