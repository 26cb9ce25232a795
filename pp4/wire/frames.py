"""Length-prefixed frames: four bytes of length, big endian, then one JSON document.

A reader never allocates more than a frame's limit, an unknown version or member refuses, and what
does not parse is one error, not a traceback.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, from_json

from pp4.errors import Code, Refusal, WrongError

MAX_FRAME = 8 << 20
_HEADER = 4


# a literal 1 would take `true` for it
Version = Annotated[int, Field(ge=1, le=1)]


class Model(BaseModel):
    """Strict, frozen, closed."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", allow_inf_nan=False)


class Request(Model):
    """Asks for one verb."""

    kind: Literal["request"] = "request"
    version: Version = 1
    sequence: int = Field(ge=0)
    verb: str
    arguments: dict[str, Any] = Field(default_factory=dict)


class Event(Model):
    """Says, before the reply, how far a request has come."""

    kind: Literal["event"] = "event"
    version: Version = 1
    sequence: int = Field(ge=0)
    name: str


class Reply(Model):
    """Answers a request: facts, or the refusal that took their place."""

    kind: Literal["reply"] = "reply"
    version: Version = 1
    sequence: int = Field(ge=0)
    facts: dict[str, Any] | None = None
    refusal: dict[str, str] | None = None


Message = Request | Event | Reply
_MESSAGE: TypeAdapter[Message] = TypeAdapter(
    Annotated[Request | Event | Reply, Field(discriminator="kind")]
)


def _bad(expected: str, found: str) -> WrongError:
    return WrongError(Refusal(Code.BAD_FRAME, "frame", expected, found))


def wrong_with(error: Exception) -> str:
    """What is wrong with an input, which is not shown: a key or a nonce may stand in it."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_input=False, include_url=False, include_context=False)[0]
    where = ".".join(map(str, first["loc"]))
    return f"{where}: {first['msg']}" if where else first["msg"]


def encode(message: Message) -> bytes:
    """Return the frame of a message.

    Raises:
        WrongError: ``BAD_FRAME``, the message is over the limit or holds what JSON has no word for.
    """
    try:
        body = message.model_dump_json().encode()
    except (PydanticSerializationError, RecursionError, ValueError) as error:
        raise _bad("a message that JSON can hold", str(error)[:200]) from error
    if len(body) > MAX_FRAME:
        raise _bad(f"at most {MAX_FRAME} bytes", f"{len(body)} bytes")
    return len(body).to_bytes(_HEADER, "big") + body


def encode_reply(reply: Reply) -> bytes:
    """Return the frame of a reply, or of the refusal to send it: whoever asked must not wait."""
    try:
        return encode(reply)
    except WrongError as error:
        return encode(Reply(sequence=reply.sequence, refusal=error.refusal.as_dict()))


def _parse(body: bytes) -> Message:
    try:
        tree = from_json(body, allow_inf_nan=False)
        # a number such as 1e999 is read as an infinity, which no message can mean
        json.dumps(tree, allow_nan=False)
        return _MESSAGE.validate_json(body)
    except (ValidationError, ValueError, RecursionError) as error:
        raise _bad("a request, an event or a reply", wrong_with(error)[:200]) from error


class Decoder:
    """Turns a stream of bytes into messages, however the bytes are cut.

    Where a stream went wrong nobody knows where the next frame begins, so the first bad frame is
    the last one that is looked at.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._broken: Refusal | None = None

    def feed(self, data: bytes) -> Iterator[Message]:
        """Take bytes and yield every message that is complete.

        Raises:
            WrongError: ``BAD_FRAME``, a length over the limit or a body that is no message; the
                same again for everything that follows.
        """
        if self._broken is not None:
            raise WrongError(self._broken)
        self._buffer += data
        try:
            while (body := self._next()) is not None:
                yield _parse(body)
        except WrongError as error:
            self._broken = error.refusal
            self._buffer.clear()
            raise

    def _next(self) -> bytes | None:
        """Cut off the next body, None where it is not complete."""
        if len(self._buffer) < _HEADER:
            return None
        length = int.from_bytes(self._buffer[:_HEADER], "big")
        if length > MAX_FRAME:
            raise _bad(f"at most {MAX_FRAME} bytes", f"a length of {length}")
        if len(self._buffer) < _HEADER + length:
            return None
        body = bytes(self._buffer[_HEADER : _HEADER + length])
        del self._buffer[: _HEADER + length]
        return body

    @property
    def pending(self) -> int:
        """Bytes of a frame that is not complete yet."""
        return len(self._buffer)
