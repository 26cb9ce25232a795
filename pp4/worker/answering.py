"""A program that answers requests on its standard streams: one reply each, whatever goes wrong."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from pp4.errors import Code, Pp4Error, Refusal, RefusedError
from pp4.wire import Decoder, Reply, Request, encode_reply

_READ = 1 << 16
_LONGEST = 500
Verb = Callable[[dict[str, Any]], dict[str, Any]]


def reply_to(request: Request, verbs: Mapping[str, Verb], where: str) -> Reply:
    """Answer one request; every failure is a refusal in the reply.

    Args:
        request: what is asked.
        verbs: what can be asked, by name.
        where: who answers, for refusals.
    """
    try:
        verb = verbs.get(request.verb)
        if verb is None:
            expected = f"one of {sorted(verbs)}"
            raise RefusedError(Refusal(Code.BAD_FRAME, where, expected, request.verb))
        return Reply(sequence=request.sequence, facts=verb(request.arguments))
    except Pp4Error as error:
        return Reply(sequence=request.sequence, refusal=error.refusal.as_dict())
    except Exception as error:
        # whoever asked must hear of it, or waits until its deadline
        found = f"{type(error).__name__}: {error}"[:_LONGEST]
        refusal = Refusal(Code.INTERNAL, f"{where}, {request.verb}", "facts", found)
        return Reply(sequence=request.sequence, refusal=refusal.as_dict())


def answer_requests(answer: Callable[[Request], Reply]) -> None:
    """Answer requests of standard input on standard output until the input ends."""
    decoder = Decoder()
    while data := os.read(0, _READ):
        for message in decoder.feed(data):
            if isinstance(message, Request):
                rest = memoryview(encode_reply(answer(message)))
                while rest:
                    rest = rest[os.write(1, rest) :]
