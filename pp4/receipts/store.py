"""Write a receipt once: whole, durable, and never over another file."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

from pp4.errors import Code, Refusal, RefusedError
from pp4.receipts.canonical import shown


def write_new(path: Path, data: bytes) -> None:
    """Create ``path`` with ``data``, or leave the directory as it was.

    The bytes go to a temporary file of the same directory and reach the disk before the name
    appears; then the directory itself is flushed.  Where that last flush fails, the name is taken
    back: a receipt that might be gone after a power cut must not be believed in before it.

    Args:
        path: the receipt's file; its directory must exist.
        data: the whole content.

    Raises:
        RefusedError: EXISTS, or UNWRITABLE with the reason of the system.
    """
    where = shown(str(path))
    temporary = path.parent / f".{path.name[:32]}.{secrets.token_hex(8)}.part"
    try:
        _write_durably(temporary, data)
        _publish(temporary, path)
        try:
            _flush_directory(path.parent)
        except BaseException:
            _take_back(path)
            raise
    except FileExistsError:
        expected = "no file of that name: receipts are never written over"
        raise RefusedError(Refusal(Code.EXISTS, where, expected, "a file")) from None
    except (OSError, ValueError) as error:
        reason = shown(getattr(error, "strerror", None) or str(error))
        expected = "a directory that takes a new file"
        raise RefusedError(Refusal(Code.UNWRITABLE, where, expected, reason)) from None
    finally:
        with contextlib.suppress(OSError, ValueError):
            temporary.unlink()


def _write_durably(path: Path, data: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    flags |= getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    with os.fdopen(os.open(path, flags, 0o644), "wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


def _publish(temporary: Path, path: Path) -> None:
    """Give the file its name; both ways fail where the name is taken, even by a dangling link."""
    if os.name == "nt":
        temporary.rename(path)
    else:
        os.link(temporary, path)


def _take_back(path: Path) -> None:
    try:
        path.unlink()
    except OSError as error:
        reason = shown(error.strerror or str(error))
        expected = "a directory that lets go of a file that could not be flushed"
        where = shown(str(path))
        raise RefusedError(
            Refusal(Code.UNWRITABLE, where, expected, reason, left=f"{where}, perhaps not durable")
        ) from None


def _flush_directory(directory: Path) -> None:
    if os.name == "nt":  # A directory has no descriptor there; the rename is journalled.
        return
    descriptor = os.open(directory, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
