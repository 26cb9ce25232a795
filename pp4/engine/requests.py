"""What is asked of an engine, and what comes of it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from pp4.engine.interface import Target
from pp4.errors import BadInputError


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt to go on with.

    Attributes:
        prompt: token ids, at least one; the last of them is the first anchor.
        limit: new tokens at most, 1 or more.
        temperature: 0 takes the argmax; above 0 tokens are drawn.
        key: 64 bits that all of the request's draws come from.  Requests that are to be independent
            of each other need different ones.
        stop: a token that ends it, None for none; it is among the tokens that come out.
    """

    prompt: Sequence[int]
    limit: int
    temperature: float = 0.0
    key: int = 0
    stop: int | None = None


class Ending(StrEnum):
    """Why a request ended."""

    LIMIT = "limit"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Output:
    """What came of a request.

    Attributes:
        request: the engine's number of it.
        tokens: the new ones.
        ending: why there are no more.
    """

    request: int
    tokens: tuple[int, ...]
    ending: Ending


def require_possible(request: Request, target: Target) -> None:
    """Refuse a request that a target cannot serve to its end.

    Raises:
        BadInputError: for the first member that is wrong.
    """
    prompt, vocab = tuple(request.prompt), target.vocab
    _require(len(prompt) > 0, "prompt", "at least one token", "none")
    for token in prompt:
        _require_token("prompt", token, vocab)
    _require(_whole(request.limit) and request.limit >= 1, "limit", "1 or more", request.limit)
    room = target.context - (len(prompt) - 1)
    expected = f"at most {max(room, 0)}, which a context of {target.context} has room for"
    _require(request.limit <= room, "limit", expected, request.limit)
    number = isinstance(request.temperature, int | float)
    # an int may be finite and no float
    finite = number and 0 <= request.temperature <= sys.float_info.max
    _require(finite, "temperature", "0 or above, finite", request.temperature)
    _require(_whole(request.key) and 0 <= request.key < 1 << 64, "key", "64 bits", request.key)
    if request.stop is not None:
        _require_token("stop", request.stop, vocab)


def _whole(number: object) -> bool:
    # a bool is an int, and no number of anything
    return type(number) is int


def _require_token(member: str, token: object, vocab: int) -> None:
    sound = isinstance(token, int) and _whole(token) and 0 <= token < vocab
    _require(sound, member, f"tokens from 0 below {vocab}", token)


def _require(holds: bool, member: str, expected: str, found: object) -> None:
    if not holds:
        raise BadInputError.of(f"request, {member}", expected, repr(found))
