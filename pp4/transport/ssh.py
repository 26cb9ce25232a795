"""A host behind SSH: programs and files, nothing of which can make us wait past a deadline."""

from __future__ import annotations

import shlex
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

import paramiko

from pp4.clock import Deadline
from pp4.errors import Code, Refusal, RefusedError, TimedOutError, reason_of
from pp4.receipts.canonical import shown
from pp4.transport.attempt import bounded
from pp4.transport.drained import DrainedStream, checked_argv
from pp4.transport.output import Errors, Output, lost
from pp4.transport.parts import part_of, unwritable
from pp4.transport.sftp import Sftp, SftpError
from pp4.transport.ssh_address import SshAddress
from pp4.transport.ssh_connection import connect
from pp4.transport.ssh_ends import LOST, ChannelEnds, abandon, drain

__all__ = ["SshAddress", "SshHost"]

_OPEN_S: Final = 3600.0
_MOMENT_S: Final = 0.2


class SshHost:
    """One connection to a host; open once the constructor returns.

    Args:
        where: the host, the account and both keys.
        deadline: for everything until the key is accepted.

    Attributes:
        name: ``ssh``.
        address: user, host and port.
        fingerprint: of the host's key, which is the pinned one.
        algorithms: what was negotiated, by purpose.

    Raises:
        TimedOutError: the deadline had passed before anything was tried.
        RefusedError: ``UNREACHABLE``, ``HOST_KEY`` or ``AUTHENTICATION``.
    """

    name: Literal["ssh", "local"] = "ssh"

    def __init__(self, where: SshAddress, deadline: Deadline) -> None:
        self.address = str(where)
        # held for as long as this object lives: a transport that is collected closes its channels
        self._connection = connect(where, deadline)
        self.fingerprint: str | None = self._connection.fingerprint
        self.algorithms = self._connection.algorithms
        self._lock = threading.Lock()
        self._closed = False
        self._streams: set[DrainedStream] = set()

    def run(self, argv: Sequence[str], deadline: Deadline) -> DrainedStream:
        """Start a program; see :class:`pp4.transport.interface.Host`.

        The login shell of the account reads the command, so it has to be one that understands the
        quotes and the ``exec`` of POSIX; ``exec`` keeps its built-ins and aliases out.
        """
        words = checked_argv(argv)
        label = f"{self.address}: {words[0]}"
        self._require_open(label)
        command = f"exec {shlex.join(words)}".encode("utf-8", "surrogateescape")
        channel = self._opened(
            lambda channel: channel.exec_command(command),
            deadline,
            label,
            refused=lambda found: Refusal(Code.UNREADABLE, label, "a program that starts", found),
        )
        output, errors = Output(label), Errors()
        drain(channel, output, errors, label)
        stream = DrainedStream(label, ChannelEnds(channel, label), output, errors, self._forget)
        with self._lock:
            self._streams.add(stream)
            closed = self._closed
        if closed:
            stream.close()
            raise lost(label, "closed here")
        return stream

    def put(self, data: bytes, path: str, deadline: Deadline) -> None:
        """Make a file through SFTP; see :class:`pp4.transport.interface.Host`."""
        where = f"{self.address}: {path}"
        part_of(path)
        self._require_open(where)
        channel = self._opened(
            lambda channel: channel.invoke_subsystem("sftp"),
            deadline,
            where,
            refused=lambda found: unwritable(where, found).refusal,
        )
        try:
            bounded(
                lambda: Sftp(channel).put(data, path, where, deadline),
                deadline,
                where,
                left="what was sent of it",
            )
        except SftpError as error:
            raise unwritable(where, str(error)) from error
        except LOST as error:
            if self._outlived():
                raise unwritable(where, "the SFTP server ended in the middle") from error
            raise lost(where, shown(reason_of(error) or repr(error))) from error
        finally:
            abandon(channel)

    def _opened(
        self,
        begin: Callable[[Any], None],
        deadline: Deadline,
        where: str,
        refused: Callable[[str], Refusal],
    ) -> Any:
        """Open a session and begin something in it, all of it within the deadline."""
        opened: list[Any] = []

        def attempt() -> Any:
            # as patient as can be: an answer that comes late is still seen here, and its session
            # closed; all of it ends with the connection
            channel = self._connection.transport.open_session(timeout=_OPEN_S)
            opened.append(channel)
            try:
                deadline.require(where)
                begin(channel)
            except Exception:
                abandon(channel)
                raise
            return channel

        try:
            return bounded(
                attempt,
                deadline,
                where,
                left="whether it was started is unknown",
                late=abandon,
            )
        except TimedOutError:
            # wakes the thread where it waits for the answer to what was begun
            for channel in opened:
                abandon(channel)
            raise
        # what ended the thread of paramiko, whatever it was, is raised in who waited for it
        except Exception as error:
            said = error.text if isinstance(error, paramiko.ChannelException) else str(error)
            found = shown(said or repr(error))
            if self._outlived():
                raise RefusedError(refused(f"the host refused: {found}")) from error
            raise lost(where, found) from error

    def _outlived(self) -> bool:
        """Whether the connection is still there after an error of one of its channels."""
        # where it ended, its channels hear of it a moment before it says so itself
        self._connection.transport.join(_MOMENT_S)
        return bool(self._connection.transport.is_active())

    def ended(self) -> bool:
        """Whether the connection has ended, here or at the other end, as far as anybody knows."""
        return not self._connection.transport.is_active()

    def close(self) -> None:
        """End the connection; programs may go on."""
        with self._lock:
            self._closed = True
            streams = list(self._streams)
        for stream in streams:
            stream.close()
        self._connection.close()

    def _forget(self, stream: DrainedStream) -> None:
        with self._lock:
            self._streams.discard(stream)

    def _require_open(self, where: str) -> None:
        if self._closed:
            raise lost(where, "closed here")
        if self.ended():
            raise lost(where, "the connection has ended")
