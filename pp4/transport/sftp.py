"""The little of SFTP (version 3) that puts a file in place, with the answer to every request read.

Written out because paramiko's own client drops the answers to pipelined writes, makes a file
readable before it can be told not to, and starts threads that nobody can end.
"""

from __future__ import annotations

import stat
from collections import deque
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from pp4.clock import Deadline
from pp4.receipts.canonical import shown
from pp4.transport.parts import CHUNK, part_of

_INIT, _VERSION, _OPEN, _CLOSE, _READ, _WRITE, _LSTAT = 1, 2, 3, 4, 5, 6, 7
_FSTAT, _FSETSTAT, _EXTENDED = 8, 10, 200
_STATUS, _HANDLE, _DATA, _ATTRS = 101, 102, 103, 105
_OK, _NO_SUCH_FILE = 0, 2
_READ_WRITE_CREATE: Final = 0x01 | 0x02 | 0x08
_HAS_SIZE, _HAS_OWNER, _HAS_MODE = 0x01, 0x02, 0x04
_MODE: Final = 0o600
_MAX_PACKET: Final = 1 << 18
_IN_FLIGHT: Final = 32
_RENAME, _FSYNC = b"posix-rename@openssh.com", b"fsync@openssh.com"


class SftpError(Exception):
    """What an SFTP server refused, or that it is none."""

    def __init__(self, text: str, status: int = -1) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class _Found:
    """What is known of a file: None where the server does not say."""

    size: int
    mode: int | None


class Sftp:
    """A conversation with an SFTP server; every call may block, so it runs on its own thread.

    Args:
        channel: a channel of paramiko on which the subsystem was started.
    """

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self._number = 0
        self._asked: set[int] = set()
        self._answers: dict[int, tuple[int, bytes]] = {}
        self._send(_u8(_INIT) + _u32(3))
        kind, body = self._packet()
        if kind != _VERSION:
            raise SftpError("what answered is no SFTP server")
        self._extensions = _Reader(body[4:]).strings()[::2]

    def put(self, data: bytes, path: str, where: str, deadline: Deadline) -> None:
        """Make a file whole; see :class:`pp4.transport.interface.Host`.

        What an earlier attempt left is read back and compared byte by byte: everything up to the
        first difference stays, the rest is cut off and sent.

        Raises:
            SftpError: the server refused a step.
            TimedOutError: the deadline passed between two steps.
        """
        if _RENAME not in self._extensions:
            raise SftpError("a server that cannot rename over a file")
        name, part = _path(path), _path(part_of(path))
        self._require_plain(part)
        handle = self._handle(_OPEN, _string(part) + _u32(_READ_WRITE_CREATE) + _mode(_MODE))
        found = self._attributes(_FSTAT, _string(handle))
        # it may be an earlier one, made under another mode
        self._done(_FSETSTAT, _string(handle) + _mode(_MODE))
        kept = self._equal(handle, data[: found.size], where, deadline)
        if kept < found.size:
            self._done(_FSETSTAT, _string(handle) + _u32(_HAS_SIZE) + _u64(kept))
        self._write(handle, data, kept, where, deadline)
        if _FSYNC in self._extensions:
            self._done(_EXTENDED, _string(_FSYNC) + _string(handle))
        self._done(_CLOSE, _string(handle))
        deadline.require(where, left="the part, which is whole")
        self._done(_EXTENDED, _string(_RENAME) + _string(part) + _string(name))

    def _require_plain(self, part: bytes) -> None:
        """Refuse a part that is a link or a pipe: opening it would follow it, or never return."""
        try:
            found = self._attributes(_LSTAT, _string(part))
        except SftpError as error:
            if error.status == _NO_SUCH_FILE:
                return
            raise
        if found.mode is None or not stat.S_ISREG(found.mode):
            raise SftpError("what is there is no regular file")

    def _equal(self, handle: bytes, data: bytes, where: str, deadline: Deadline) -> int:
        """How many bytes of a file are a beginning of the data."""
        asked: deque[tuple[int, int]] = deque()
        at = equal = 0
        while asked or at < len(data):
            while at < len(data) and len(asked) < _IN_FLIGHT:
                length = min(CHUNK, len(data) - at)
                body = _string(handle) + _u64(at) + _u32(length)
                asked.append((self._ask(_READ, body), at))
                at += length
            deadline.require(where, left="the part of an earlier attempt")
            number, begin = asked.popleft()
            kind, body = self._answer(number)
            if kind == _STATUS:
                _raise(body)
            piece = _Reader(body).string() if kind == _DATA else b""
            # once something differs, what comes behind it is only taken off the line
            if begin == equal and piece and data[begin : begin + len(piece)] == piece:
                equal += len(piece)
        return equal

    def _write(self, handle: bytes, data: bytes, at: int, where: str, deadline: Deadline) -> None:
        asked: deque[int] = deque()
        while asked or at < len(data):
            while at < len(data) and len(asked) < _IN_FLIGHT:
                piece = data[at : at + CHUNK]
                asked.append(self._ask(_WRITE, _string(handle) + _u64(at) + _string(piece)))
                at += len(piece)
            deadline.require(where, left="what was sent of it")
            self._settle(asked.popleft())

    def _handle(self, kind: int, body: bytes) -> bytes:
        found, answer = self._answer(self._ask(kind, body))
        if found != _HANDLE:
            _raise(answer)
        return _Reader(answer).string()

    def _attributes(self, kind: int, body: bytes) -> _Found:
        found, answer = self._answer(self._ask(kind, body))
        if found != _ATTRS:
            _raise(answer)
        reader = _Reader(answer)
        flags = reader.u32()
        size = reader.u64() if flags & _HAS_SIZE else 0
        if flags & _HAS_OWNER:
            reader.u64()
        return _Found(size, reader.u32() if flags & _HAS_MODE else None)

    def _done(self, kind: int, body: bytes) -> None:
        self._settle(self._ask(kind, body))

    def _settle(self, number: int) -> None:
        """Require that a request went well."""
        kind, body = self._answer(number)
        if kind != _STATUS or _Reader(body).u32() != _OK:
            _raise(body)

    def _ask(self, kind: int, body: bytes) -> int:
        self._number += 1
        self._asked.add(self._number)
        self._send(_u8(kind) + _u32(self._number) + body)
        return self._number

    def _answer(self, number: int) -> tuple[int, bytes]:
        while number not in self._answers:
            kind, body = self._packet()
            reader = _Reader(body)
            found = reader.u32()
            if found not in self._asked:
                raise SftpError("an answer to something that was not asked")
            self._asked.discard(found)
            self._answers[found] = kind, reader.rest()
        return self._answers.pop(number)

    def _send(self, body: bytes) -> None:
        data = _u32(len(body)) + body
        while data:
            sent = self._channel.send(data)
            if sent == 0:
                raise EOFError("the channel was closed")
            data = data[sent:]

    def _packet(self) -> tuple[int, bytes]:
        length = int.from_bytes(self._exactly(4), "big")
        if not 0 < length <= _MAX_PACKET:
            raise SftpError("what answered is no SFTP server")
        body = self._exactly(length)
        return body[0], body[1:]

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = self._channel.recv(count - len(data))
            if not piece:
                raise EOFError("the channel was closed")
            data += piece
        return data


class _Reader:
    """Reads the members of a packet from its front."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def _take(self, count: int) -> bytes:
        if count > len(self._body):
            raise SftpError("an answer that is cut off")
        taken, self._body = self._body[:count], self._body[count:]
        return taken

    def u32(self) -> int:
        return int.from_bytes(self._take(4), "big")

    def u64(self) -> int:
        return int.from_bytes(self._take(8), "big")

    def string(self) -> bytes:
        return self._take(self.u32())

    def strings(self) -> list[bytes]:
        found = []
        while self._body:
            found.append(self.string())
        return found

    def rest(self) -> bytes:
        return self._body


def _raise(body: bytes) -> NoReturn:
    """Say what a status says."""
    reader = _Reader(body)
    status = reader.u32()
    text = shown(reader.string().decode(errors="replace"))
    raise SftpError(f"{text or 'no reason'} (status {status} of SFTP)", status)


def _u8(number: int) -> bytes:
    return number.to_bytes(1, "big")


def _u32(number: int) -> bytes:
    return number.to_bytes(4, "big")


def _u64(number: int) -> bytes:
    return number.to_bytes(8, "big")


def _string(data: bytes) -> bytes:
    return _u32(len(data)) + data


def _mode(mode: int) -> bytes:
    """Attributes that hold a mode and nothing else."""
    return _u32(_HAS_MODE) + _u32(mode)


def _path(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")
