"""Length-prefixed frames: four bytes of length, big endian, then one JSON document.

A reader never allocates more than a frame's limit, an unknown version or member refuses, and what
does not parse is one error, not a traceback.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from pp4.errors import Code, Refusal, WrongError

MAX_FRAME = 8 << 20
_HEADER = 4


class Model(BaseModel):
    """Strict, frozen, closed."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", allow_inf_nan=False)


class Request(Model):
    """Asks for one verb."""

    kind: Literal["request"] = "request"
    version: Literal[1] = 1
    sequence: int = Field(ge=0)
    verb: str
    arguments: dict[str, Any] = Field(default_factory=dict)


class Event(Model):
    """Says, before the reply, how far a request has come."""

    kind: Literal["event"] = "event"
    version: Literal[1] = 1
    sequence: int = Field(ge=0)
    name: str


class Reply(Model):
    """Answers a request: facts, or the refusal that took their place."""

    kind: Literal["reply"] = "reply"
    version: Literal[1] = 1
    sequence: int = Field(ge=0)
    facts: dict[str, Any] | None = None
    refusal: dict[str, str] | None = None


Message = Request | Event | Reply
_MESSAGE: TypeAdapter[Message] = TypeAdapter(
    Annotated[Request | Event | Reply, Field(discriminator="kind")]
)


def _bad(expected: str, found: str) -> WrongError:
    return WrongError(Refusal(Code.BAD_FRAME, "frame", expected, found))


def encode(message: Message) -> bytes:
    """Return the frame of a message.

    Raises:
        WrongError: ``BAD_FRAME``, the message is over the limit.
    """
    body = message.model_dump_json().encode()
    if len(body) > MAX_FRAME:
        raise _bad(f"at most {MAX_FRAME} bytes", f"{len(body)} bytes")
    return len(body).to_bytes(_HEADER, "big") + body


class Decoder:
    """Turns a stream of bytes into messages, however the bytes are cut."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Message]:
        """Take bytes and yield every message that is complete.

        Raises:
            WrongError: ``BAD_FRAME``, a length over the limit or a body that is no message.
        """
        self._buffer += data
        while len(self._buffer) >= _HEADER:
            length = int.from_bytes(self._buffer[:_HEADER], "big")
            if length > MAX_FRAME:
                raise _bad(f"at most {MAX_FRAME} bytes", f"a length of {length}")
            if len(self._buffer) < _HEADER + length:
                return
            body = bytes(self._buffer[_HEADER : _HEADER + length])
            del self._buffer[: _HEADER + length]
            try:
                yield _MESSAGE.validate_json(body)
            except (ValidationError, RecursionError) as error:
                raise _bad("a request, an event or a reply", str(error)[:200]) from error

    @property
    def pending(self) -> int:
        """Bytes of a frame that is not complete yet."""
        return len(self._buffer)
