"""Frames between a client and a worker: a model as JSON, and beside it a body as raw bytes.

    magic [4]  version u16  reserved u16, zero  meta length u32  body length u32   little-endian
    meta: one JSON object, a model of ``drafts``        body: what the model says

Every length is held against its limit before a byte is kept for it, and the meta is read before
the first byte of its body, so that a body which does not fit is never collected.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any, Final, Generic, NamedTuple, TypeVar

from pydantic import TypeAdapter, ValidationError

from pp4.errors import Code, Refusal, WrongError
from pp4.wire.drafts import VERSION, Spoken
from pp4.wire.frames import wrong_with

MAGIC: Final = b"PP4D"
MAX_META: Final = 64 << 10
MAX_BODY: Final = 16 << 20
_HEADER: Final = struct.Struct("<4sHHII")
_SHOWN: Final = 300
S = TypeVar("S", bound=Spoken)
Bytes = bytes | bytearray | memoryview


class Frame(NamedTuple, Generic[S]):
    """One whole message.

    Attributes:
        message: the model.
        body: its bytes, empty where it has none.
    """

    message: S
    body: bytearray


def _bad(expected: str, found: str) -> WrongError:
    return WrongError(Refusal(Code.BAD_FRAME, "frame", expected, found[:_SHOWN]))


def head(message: Spoken, body: int = 0) -> bytes:
    """What goes ahead of a body of as many bytes: a sender of a large one need not copy it.

    Raises:
        WrongError: ``BAD_FRAME``, over a limit, or the body is not one for the message.
    """
    meta = message.model_dump_json().encode()
    if len(meta) > MAX_META or body > MAX_BODY:
        raise _bad(f"{MAX_META} and {MAX_BODY} bytes at most", f"{len(meta)} and {body}")
    if not message.fits(body):
        raise _bad("a body that fits its message", f"{body} bytes with {type(message).__name__}")
    return _HEADER.pack(MAGIC, VERSION, 0, len(meta), body) + meta


def encode(message: Spoken, body: Bytes = b"") -> bytes:
    """The frame of a message.

    Raises:
        WrongError: ``BAD_FRAME``, see :func:`head`.
    """
    return b"".join((head(message, len(body)), body))


def _once(members: list[tuple[str, Any]]) -> None:
    """Refuse an object with two members of one name: two readers could believe two things."""
    if len({name for name, _ in members}) != len(members):
        raise ValueError("a member stands there twice")


_NO_MEMBER_TWICE: Final = json.JSONDecoder(object_pairs_hook=_once)


class Decoder(Generic[S]):
    """Turns a stream of bytes into messages, however the bytes are cut.

    Where a stream went wrong nobody knows where the next frame begins, so the first bad frame is
    the last one that is looked at.

    Args:
        messages: ``drafts.QUESTIONS`` for a worker, ``drafts.ANSWERS`` for a client.
        largest_body: bytes of the largest body that is taken.
    """

    def __init__(self, messages: TypeAdapter[S], largest_body: int = MAX_BODY) -> None:
        self._messages: TypeAdapter[S] = messages
        self._largest = largest_body
        self._broken: Refusal | None = None
        self._begin()

    def _begin(self) -> None:
        """Expect the header of a next frame."""
        self._head, self._wanted = bytearray(), _HEADER.size
        self._message: S | None = None
        self._body, self._length = bytearray(), 0

    def feed(self, data: Bytes) -> Iterator[Frame[S]]:
        """Take bytes and yield every message that is complete; has to be read to its end.

        Raises:
            WrongError: ``BAD_FRAME``; the same again for everything that follows.
        """
        if self._broken is not None:
            raise WrongError(self._broken)
        rest = memoryview(data)
        try:
            while True:
                rest = self._collect(rest)
                if self._message is None or len(self._body) < self._length:
                    return
                frame = Frame(self._message, self._body)
                self._begin()
                yield frame
        except WrongError as error:
            self._broken = error.refusal
            self._begin()
            raise

    @property
    def pending(self) -> int:
        """Bytes that are kept for a frame that is not complete yet."""
        return len(self._head) + len(self._body)

    def _collect(self, rest: memoryview) -> memoryview:
        """Move what belongs to the frame in hand; -> what is left."""
        while self._message is None:
            piece = rest[: self._wanted - len(self._head)]
            self._head += piece
            rest = rest[len(piece) :]
            if len(self._head) < self._wanted:
                return rest
            self._look()
        # it grows with what has come, and not to a length that was only claimed
        piece = rest[: self._length - len(self._body)]
        self._body += piece
        return rest[len(piece) :]

    def _look(self) -> None:
        """Read the header, or the meta once that is there too."""
        if self._wanted == _HEADER.size:
            self._wanted += self._read_header()
            return
        message = self._read_meta(bytes(memoryview(self._head)[_HEADER.size :]))
        if not message.fits(self._length):
            raise _bad(
                "a body that fits its message",
                f"{self._length} bytes with {type(message).__name__}",
            )
        self._message = message

    def _read_header(self) -> int:
        """-> the length of the meta."""
        magic, version, reserved, meta, self._length = _HEADER.unpack(self._head)
        if magic != MAGIC or version != VERSION or reserved != 0:
            raise _bad(
                f"magic {MAGIC.hex()}, version {VERSION}, reserved 0",
                f"magic {magic.hex()}, version {version}, reserved {reserved}",
            )
        if not 0 < meta <= MAX_META:
            raise _bad(f"a meta of 1 to {MAX_META} bytes", f"{meta} bytes")
        if self._length > self._largest:
            raise _bad(f"a body of at most {self._largest} bytes", f"{self._length} bytes")
        return int(meta)

    def _read_meta(self, meta: bytes) -> S:
        try:
            message: S = self._messages.validate_json(meta)
            _NO_MEMBER_TWICE.decode(meta.decode())
        except (ValidationError, ValueError, RecursionError) as error:
            raise _bad("a message of this protocol", wrong_with(error)) from error
        return message
