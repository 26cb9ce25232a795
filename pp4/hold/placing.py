"""A file that was uploaded for a HOLD gets its name: checked, durable, and over no other file.

It was written to a name that carries the id of the HOLD, beside what the steps of the HOLD see.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from pp4.errors import BadInputError, Code, Refusal, RefusedError
from pp4.hold.durable import unwritable
from pp4.hold.guard import GUARD
from pp4.receipts.canonical import shown
from pp4.wire.hops import Place, part_of

_READ = 1 << 20
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def place(work: Path, asked: Place) -> None:
    """Give an uploaded file its name.

    Args:
        work: the directory that processes of the HOLD may write.
        asked: which file, and what it has to be; its HOLD and fence are checked by who asks this.

    Raises:
        BadInputError: ``BAD_INPUT``: a name that leaves the directory, or none of a temporary
            file of this HOLD.
        RefusedError: ``EXISTS``: there is something of that name; ``DIGEST_MISMATCH``: other bytes,
            which are removed; ``UNREADABLE``: nothing was uploaded; ``UNWRITABLE``.
    """
    parts = _inside(asked.target)
    if asked.part != part_of(asked.hold, asked.sha256):
        expected = part_of(asked.hold, asked.sha256)
        raise BadInputError.of("temporary name", expected, shown(asked.part))
    with contextlib.ExitStack() as stack:
        try:
            top = stack.enter_context(_opened(work))
            _require_same(top, asked)
            directory = top
            for name in parts[:-1]:
                directory = stack.enter_context(_entered(directory, name))
            _link(top, asked.part, directory, parts[-1])
        except FileExistsError as error:
            where, expected = shown(asked.target), "a name that nothing has yet"
            raise RefusedError(Refusal(Code.EXISTS, where, expected, "something")) from error
        except OSError as error:
            raise unwritable(work / asked.target, error) from error


def _inside(target: str) -> tuple[str, ...]:
    """The members of a relative name that stays where it begins."""
    path = PurePosixPath(target)
    odd = path.is_absolute() or ".." in path.parts or not path.parts
    if odd or str(path) != target or not target.isprintable():
        expected = "a relative name below the working directory, without '..'"
        raise BadInputError.of("name of a file", expected, shown(target))
    if path.parts[0].startswith(GUARD):
        # a file of that name is the guard's word that nothing is left of its step
        raise BadInputError.of("name of a file", f"one that does not begin with {GUARD}", target)
    return path.parts


@contextlib.contextmanager
def _opened(path: str | Path, below: int | None = None) -> Iterator[int]:
    descriptor = os.open(path, _DIRECTORY, dir_fd=below)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _entered(below: int, name: str) -> Iterator[int]:
    """A directory, made where there is none; through no link."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=below)
        os.fsync(below)
    with _opened(name, below) as descriptor:
        yield descriptor


def _require_same(top: int, asked: Place) -> None:
    """Refuse other bytes than were sent, and take them away: nothing is to be gone on from."""
    try:
        descriptor = os.open(asked.part, _FILE, dir_fd=top)
    except OSError as error:
        where, found = shown(asked.part), error.strerror or str(error)
        raise RefusedError(Refusal(Code.UNREADABLE, where, "an uploaded file", found)) from error
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            where, expected = shown(asked.part), "an uploaded file"
            raise RefusedError(Refusal(Code.UNREADABLE, where, expected, "something else"))
        size, digest = status.st_size, ""
        if size == asked.size:
            digest = _digest(file.fileno())
            os.fsync(file.fileno())
    if (size, digest) != (asked.size, asked.sha256):
        os.unlink(asked.part, dir_fd=top)
        found = f"{size} bytes" + (f" with sha256 {digest}" if digest else "")
        expected = f"{asked.size} bytes with sha256 {asked.sha256}"
        where = shown(asked.target)
        raise RefusedError(Refusal(Code.DIGEST_MISMATCH, where, expected, found))


def _digest(descriptor: int) -> str:
    digest = hashlib.sha256()
    while data := os.read(descriptor, _READ):
        digest.update(data)
    return digest.hexdigest()


def _link(top: int, part: str, directory: int, name: str) -> None:
    """Rename without replacing: a second name first, which is refused where there is one."""
    os.link(part, name, src_dir_fd=top, dst_dir_fd=directory, follow_symlinks=False)
    os.fsync(directory)
    os.unlink(part, dir_fd=top)
    os.fsync(top)
