"""Where a worker can be reached: by its own user alone, on this machine alone."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import stat
import struct
from dataclasses import dataclass
from pathlib import Path

from pp4.errors import Code, Refusal, RefusedError, reason_of
from pp4.worker.directories import alone

_BACKLOG = 64
_PROBE_S = 2.0
_PRIVATE = 0o177
_CREDENTIALS = struct.Struct("3i")
"""``struct ucred``: process, user and group of the other end."""


def _refuse(
    code: Code, where: str, expected: str, found: str, *, next_step: str = ""
) -> RefusedError:
    return RefusedError(Refusal(code, where, expected, found, next=next_step))


@dataclass(frozen=True, slots=True)
class Listener:
    """A socket that listens.

    Attributes:
        socket: it does not block.
        path: of its file, None for TCP.
        identity: device and inode of that file.
    """

    socket: socket.socket
    path: Path | None = None
    identity: tuple[int, int] | None = None

    def close(self) -> None:
        """Stop listening and take the file away, unless it is another worker's by now."""
        self.socket.close()
        if self.path is None:
            return
        # a file that stays is one of a dead worker, which the next one replaces
        with contextlib.suppress(OSError), alone(self.path.parent):
            found = self.path.lstat()
            if (found.st_dev, found.st_ino) == self.identity:
                self.path.unlink()


def listen_unix(path: Path) -> Listener:
    """Listen on a Unix socket of mode 0600 in a directory that exists.

    The file has its mode from the moment it is there.  One that a dead worker left is replaced.

    Raises:
        RefusedError: ``EXISTS``, a live worker listens there, or it is no socket;
            ``BAD_SETTING``, no such directory, or a name that no socket can have.
    """
    try:
        with alone(path.parent):
            _clear(path)
            listening = _bind(path)
            found = path.lstat()
    except OSError as error:
        raise _refuse(
            Code.BAD_SETTING,
            f"socket {path}",
            "a short path in a directory of yours",
            reason_of(error),
        ) from error
    return Listener(listening, path, (found.st_dev, found.st_ino))


def _clear(path: Path) -> None:
    """Take away what a dead worker left, and nothing else."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    where = f"socket {path}"
    if not stat.S_ISSOCK(found.st_mode):
        raise _refuse(Code.EXISTS, where, "no file, or a socket", "a file that is no socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PROBE_S)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except (TimeoutError, BlockingIOError):
            # too busy to take one more, and so alive
            pass
    raise _refuse(
        Code.EXISTS,
        where,
        "no worker that listens there",
        "one that does",
        next_step="choose another path",
    )


def _bind(path: Path) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(_PRIVATE)
    try:
        listening.bind(str(path))
        listening.listen(_BACKLOG)
        listening.setblocking(False)
    except OSError:
        listening.close()
        raise
    finally:
        os.umask(before)
    return listening


def listen_tcp(host: str, port: int) -> Listener:
    """Listen on a loopback address; a port of 0 takes a free one.

    Every user of this machine can connect there, so it is for those who ask for it.

    Raises:
        RefusedError: ``BAD_SETTING``, not a loopback address, or one that cannot be had.
    """
    where = f"TCP {host} port {port}"
    try:
        address = ipaddress.ip_address(host)
    except ValueError as error:
        raise _refuse(Code.BAD_SETTING, where, "an address such as 127.0.0.1", host) from error
    if not address.is_loopback:
        raise _refuse(Code.BAD_SETTING, where, "a loopback address", host)
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        # a worker that ended a moment ago has left its port waiting
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(_BACKLOG)
        listening.setblocking(False)
    except (OSError, OverflowError) as error:
        listening.close()
        raise _refuse(Code.BAD_SETTING, where, "a port that is free", reason_of(error)) from error
    return Listener(listening)


def require_same_user(connected: socket.socket) -> None:
    """Refuse another user at the other end of a Unix socket; the kernel knows who it is.

    Raises:
        RefusedError: ``PEER_USER``.
    """
    if connected.family != socket.AF_UNIX:
        return
    raw = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, user, _ = _CREDENTIALS.unpack(raw)
    if user != os.geteuid():
        raise _refuse(Code.PEER_USER, "socket", f"user {os.geteuid()}", f"user {user}")
