"""This machine as a host: the same promises as over SSH, without a network."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
import threading
from collections.abc import Sequence
from typing import Literal

from pp4.clock import Deadline
from pp4.errors import Code, Refusal, RefusedError, reason_of
from pp4.transport.drained import DrainedStream, checked_argv
from pp4.transport.local_pump import LocalPump
from pp4.transport.output import Errors, lost
from pp4.transport.parts import CHUNK, part_of, unwritable

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class LocalHost:
    """Programs and files of this machine.

    A program gets the environment and the working directory of this process, and a session of its
    own, so that a Ctrl-C meant for us does not reach it.

    Attributes:
        name: ``local``.
        address: ``local``.
        fingerprint: None, there is no key.
    """

    name: Literal["ssh", "local"] = "local"
    address = "local"
    fingerprint: str | None = None

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._closed = False
        self._streams: set[DrainedStream] = set()

    def run(self, argv: Sequence[str], deadline: Deadline) -> DrainedStream:
        """Start a program; see :class:`pp4.transport.interface.Host`."""
        words = checked_argv(argv)
        label = f"local: {words[0]}"
        self._require_open(label)
        deadline.require(label)
        try:
            process = subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise RefusedError(
                Refusal(Code.UNREADABLE, words[0], "a program that starts", reason_of(error))
            ) from error
        errors = Errors()
        pump = LocalPump(process, label, errors)
        stream = DrainedStream(label, pump, pump.output, errors, self._forget)
        with self._lock:
            self._streams.add(stream)
            closed = self._closed
        if closed:
            stream.close()
            raise lost(label, "closed here")
        return stream

    def put(self, data: bytes, path: str, deadline: Deadline) -> None:
        """Make a file; see :class:`pp4.transport.interface.Host`."""
        where, part = f"local: {path}", part_of(path)
        self._require_open(where)
        deadline.require(where)
        try:
            file = os.open(part, _FLAGS, 0o600)
            try:
                _complete(file, data, where, deadline)
            finally:
                os.close(file)
            os.replace(part, path)
            _settle_directory(path)
        except OSError as error:
            raise unwritable(where, reason_of(error)) from error

    def close(self) -> None:
        """Let go of every program; they may go on."""
        with self._lock:
            self._closed = True
            streams = list(self._streams)
        for stream in streams:
            stream.close()

    def _forget(self, stream: DrainedStream) -> None:
        with self._lock:
            self._streams.discard(stream)

    def _require_open(self, where: str) -> None:
        if self._closed:
            raise lost(where, "closed here")


def _complete(file: int, data: bytes, where: str, deadline: Deadline) -> None:
    """Make the part hold the data, beginning behind what it has of it already."""
    if not stat.S_ISREG(os.fstat(file).st_mode):
        raise OSError("what is there is no regular file")
    os.fchmod(file, 0o600)
    done = 0
    while done < len(data):
        deadline.require(where, left="what was written of it")
        piece = os.pread(file, CHUNK, done)
        if not piece or data[done : done + len(piece)] != piece:
            break
        done += len(piece)
    os.ftruncate(file, done)
    while done < len(data):
        deadline.require(where, left="what was written of it")
        done += os.pwrite(file, data[done : done + CHUNK], done)
    os.fsync(file)


def _settle_directory(path: str) -> None:
    directory = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # some file systems take no fsync of a directory; the name lasts as it can
        with contextlib.suppress(OSError):
            os.fsync(directory)
    finally:
        os.close(directory)
