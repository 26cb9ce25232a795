"""Small files that are whole or not there, and still there after a power cut.

No function here follows a symbolic link at the name that it is given.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shlex
import stat
from collections.abc import Mapping
from pathlib import Path

from pp4.errors import Code, Refusal, RefusedError
from pp4.receipts.canonical import dump, parse, shown

LIMIT = 1 << 20
"""Bytes of a file of pp4 that is read whole, where nothing else is said."""


def read(path: Path, limit: int = LIMIT) -> bytes | None:
    """Return the bytes of a regular file of at most ``limit`` bytes, None where there is none.

    Raises:
        RefusedError: ``EXCLUSION`` for a symbolic link, ``UNREADABLE`` for anything else.
    """
    try:
        # O_NONBLOCK: a pipe that somebody left there blocks nobody
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        with os.fdopen(os.open(path, flags), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise _unreadable(path, "something that is not a file")
            raw = file.read(limit + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise linked(path) from error
        raise _unreadable(path, error.strerror or str(error)) from error
    if len(raw) > limit:
        raise _unreadable(path, f"more than {limit} bytes")
    return raw


def read_object(path: Path) -> dict[str, object] | None:
    """Return the JSON object in a file, None where there is no file.

    Raises:
        RefusedError: as :func:`read`, or the text is not one JSON object.
    """
    raw = read(path)
    if raw is None:
        return None
    tree = parse(raw, shown(str(path)))
    if not isinstance(tree, dict):
        raise _unreadable(path, "JSON that is no object")
    return tree


def replace(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Put ``data`` under a name, in one step, durably.

    Args:
        path: the file; its directory must exist.
        data: the whole content.
        mode: its permissions, whatever the umask.

    Raises:
        RefusedError: ``UNWRITABLE``; the old content is there, or the new one that may not yet
            be durable.
    """
    temporary = path.parent / f".{path.name[:64]}.{secrets.token_hex(8)}.part"
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(temporary, flags, 0o600), "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, path)
        flush_directory(path.parent)
    except OSError as error:
        raise unwritable(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def replace_object(path: Path, tree: Mapping[str, object], mode: int = 0o644) -> None:
    """Put a JSON object under a name in its canonical bytes; see :func:`replace`."""
    replace(path, dump(dict(tree), shown(str(path))), mode)


def remove(path: Path) -> None:
    """Take a name away durably; none there is as good.

    Raises:
        RefusedError: ``UNWRITABLE``.
    """
    try:
        path.unlink(missing_ok=True)
        flush_directory(path.parent)
    except OSError as error:
        raise unwritable(path, error) from error


def flush_directory(directory: Path) -> None:
    """Make the names in a directory durable.

    Raises:
        OSError: what the system says.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def linked(path: Path) -> RefusedError:
    """Return the refusal of a symbolic link where pp4 keeps its own files."""
    where, again = shown(str(path)), f"ls -l {shlex.quote(str(path))}"
    return RefusedError(
        Refusal(Code.EXCLUSION, where, "no symbolic link", "a symbolic link", next=again)
    )


def unwritable(path: Path, error: OSError, expected: str = "a durable file") -> RefusedError:
    """Return the refusal of a file that could not be written."""
    return RefusedError(
        Refusal(Code.UNWRITABLE, shown(str(path)), expected, error.strerror or str(error))
    )


def _unreadable(path: Path, found: str) -> RefusedError:
    return RefusedError(
        Refusal(Code.UNREADABLE, shown(str(path)), "a readable file of pp4", shown(found))
    )
