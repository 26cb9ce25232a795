"""What a receiving host checks before it believes staged code, and how it writes: no pp4 needed.

The text of this file is sent along with that of :mod:`pp4.hold.unpack`, which builds on it; so it
imports the standard library alone.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import stat
import tarfile
import zlib
from collections.abc import Callable, Iterator, Sequence

NAME = re.compile(r"pp4/(?:[A-Za-z0-9_]+/)*[A-Za-z0-9_]+\.py", re.ASCII)
"""What a file of a bundle may be called: no way leads out, and nothing but source comes in."""
HOLD = re.compile(r"[0-9a-f]{16}", re.ASCII)
"""What the id of a HOLD looks like."""
LARGEST = 64 << 20
"""Bytes of an unpacked bundle."""

_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class StagingError(Exception):
    """The answer is no.

    Args:
        code: of pp4's refusals, ``NOT_STAGED`` or ``UNWRITABLE``.
        where: the path that was looked at.
        expected: what was needed.
        found: what was there.
        again: whether another upload may help.
    """

    def __init__(
        self, code: str, where: str, expected: str, found: str, *, again: bool = False
    ) -> None:
        super().__init__(f"{code}: {where}: expected {expected}, found {found}")
        self.refusal: dict[str, object] = {
            "code": code,
            "where": where,
            "expected": expected,
            "found": found,
            "again": again,
        }


class DamagedError(Exception):
    """Something is not what its name says."""


def source_digest(files: Sequence[tuple[str, str]]) -> str:
    """Return what :func:`pp4.receipts.digests.source_list_digest` returns, without its packages.

    Args:
        files: (path below the package, sha256), sorted by path.
    """
    pairs = [[path, digest] for path, digest in files]
    # for lists of strings this is the form of RFC 8785
    text = json.dumps(pairs, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def damage(tree: str, digest: str) -> str | None:
    """Look at every file of a staged tree.

    Args:
        tree: the directory that holds ``pp4``.
        digest: of the source that should be there.

    Returns:
        What is wrong with it, None where it is exactly that source and nobody else can change it.
    """
    try:
        found = source_digest([(name[len("pp4/") :], sha) for name, sha in sorted(_files(tree))])
    except DamagedError as error:
        return str(error)
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    return None if found == digest else f"source with digest {found}"


def _files(tree: str) -> Iterator[tuple[str, str]]:
    """Yield (name, sha256) of every file, an end at the first thing that does not belong there.

    What lies beside ``pp4`` does not belong there either: Python looks in this directory before
    it looks into its own library.
    """
    require_own(tree, stat.S_ISDIR)
    waiting = [tree]
    while waiting:
        directory = waiting.pop()
        names = os.listdir(directory)
        if not names:
            raise DamagedError(f"{directory}: an empty directory")
        for name in names:
            path = os.path.join(directory, name)
            if stat.S_ISDIR(os.lstat(path).st_mode):
                require_own(path, stat.S_ISDIR)
                waiting.append(path)
                continue
            require_own(path, stat.S_ISREG)
            below = os.path.relpath(path, tree)
            if not NAME.fullmatch(below):
                raise DamagedError(f"{path}: no source file of pp4")
            yield below, hashlib.sha256(read(path)).hexdigest()


def require_own(path: str, kind: Callable[[int], bool]) -> None:
    """Refuse what is of another kind, another owner's, or what others may write.

    Args:
        path: no link at its end is followed.
        kind: ``stat.S_ISDIR`` or ``stat.S_ISREG``.

    Raises:
        DamagedError: with the path and what it is.
        OSError: it is not there.
    """
    status = os.lstat(path)
    if not kind(status.st_mode):
        raise DamagedError(f"{path}: a link or something else that does not belong there")
    if status.st_uid != os.geteuid():
        raise DamagedError(f"{path}: owner {status.st_uid}")
    if status.st_mode & _OTHERS:
        raise DamagedError(f"{path}: mode {stat.S_IMODE(status.st_mode):04o}")


def read(path: str) -> bytes:
    """Return the bytes of a file.

    Raises:
        DamagedError: there are more than :data:`LARGEST`.
        OSError: it cannot be read, or is a link.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        raw = file.read(LARGEST + 1)
    if len(raw) > LARGEST:
        raise DamagedError(f"{path}: more than {LARGEST} bytes")
    return raw


def members(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Read a bundle.

    Nothing of it is left to ``tarfile`` to write: its filters are not in every Python 3.11, and
    a name that is no name of a source file has no business here anyway.

    Args:
        data: a tar behind gzip.

    Yields:
        name and content of each file.

    Raises:
        DamagedError: it holds anything but plain files of source, each once, or is no bundle.
    """
    seen = set()
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as packed:
            raw = packed.read(LARGEST + 1)
        if len(raw) > LARGEST:
            raise DamagedError(f"a bundle of more than {LARGEST} bytes")
        with tarfile.open(fileobj=io.BytesIO(raw), mode="r:") as archive:
            for member in archive:
                content = archive.extractfile(member) if member.type == tarfile.REGTYPE else None
                if content is None or not NAME.fullmatch(member.name) or member.name in seen:
                    raise DamagedError(f"a member {member.name[:120]!r} that is no source file")
                seen.add(member.name)
                yield member.name, content.read()
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DamagedError(f"no bundle: {error}") from error


def make_tree(tree: str, files: Iterator[tuple[str, bytes]]) -> None:
    """Write files below a new directory, durably, readable by all and writable by the owner.

    Args:
        tree: not there yet.
        files: as :func:`members` yields them.

    Raises:
        DamagedError: as :func:`members`; what was written so far is there.
        OSError: what the system says.
    """
    made = [tree]
    os.mkdir(tree, 0o700)
    for name, content in files:
        directory = tree
        for part in name.split("/")[:-1]:
            directory = os.path.join(directory, part)
            if directory not in made:
                os.mkdir(directory, 0o700)
                made.append(directory)
        write(os.path.join(tree, name), content, 0o644, flushed=False)
    for directory in reversed(made):
        os.chmod(directory, 0o755)


def write(path: str, data: bytes, mode: int, flushed: bool = True) -> None:
    """Make a new file with these permissions whatever the umask.

    Args:
        path: where nothing is.
        data: its content.
        mode: its permissions.
        flushed: whether it has to outlast a power cut.  A tree need not: every file of it is hashed
            before it is believed, and what a power cut spoiled is made anew.

    Raises:
        OSError: what the system says.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
        os.fchmod(file.fileno(), mode)
        file.write(data)
        file.flush()
        if flushed:
            os.fsync(file.fileno())


def flush(directory: str) -> None:
    """Make the names in a directory durable.

    Raises:
        OSError: what the system says.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def discard(path: str) -> None:
    """Remove what nobody looks for any more; what cannot be removed waits for a sweep."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            os.unlink(path)


def room(path: str) -> tuple[int, bool]:
    """Return the bytes free at an absolute path and whether it takes files.

    Where it is not there yet, the nearest directory above it answers.
    """
    while not os.path.exists(path):
        path = os.path.dirname(path)
    status = os.statvfs(path)
    writable = os.access(path, os.W_OK | os.X_OK) and not status.f_flag & os.ST_RDONLY
    return status.f_bavail * status.f_frsize, writable
