"""Which shared libraries a process has mapped, and what is in them."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from pp4.errors import Code, Refusal, RefusedError
from pp4.wire.facts import Library

_MAPS = Path("/proc/self/maps")
_RELEVANT = ("triton", "torch", "c10", "cuda", "nvidia", "nccl", "nvshmem", "gomp", "openblas")


def mapped(maps: Path = _MAPS) -> tuple[Path, ...]:
    """Return the mapped libraries that can change a result, sorted by name.

    Raises:
        RefusedError: ``UNREADABLE``, the system does not tell.
    """
    try:
        lines = maps.read_text().splitlines()
    except OSError as error:
        raise RefusedError(
            Refusal(Code.UNREADABLE, str(maps), "the list of mapped files", str(error))
        ) from error
    paths = {Path(line.split(maxsplit=5)[5]) for line in lines if line.count("/")}
    found = [path for path in paths if ".so" in path.name and _matters(path)]
    return tuple(sorted(found, key=lambda path: (path.name, str(path))))


def _matters(path: Path) -> bool:
    return any(word in path.name.lower() for word in _RELEVANT)


def mapping_digest(maps: Path = _MAPS) -> str:
    """Digest over which files are mapped, by identity and size: equal in forked ranks.

    Raises:
        RefusedError: ``UNREADABLE``, a library is gone or the system does not tell.
    """
    rows = [
        f"{path.name} {status.st_dev} {status.st_ino} {status.st_size} {status.st_mtime_ns}"
        for path in mapped(maps)
        for status in (_status(path),)
    ]
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()


def fingerprints(*, flip: bool = False, maps: Path = _MAPS) -> tuple[Library, ...]:
    """Hash the mapped libraries.

    Args:
        flip: a control: the smallest library is hashed with its last byte flipped.
        maps: where the system lists what is mapped.

    Raises:
        RefusedError: ``UNREADABLE``, a library cannot be read or was replaced since it was mapped.
    """
    paths = mapped(maps)
    smallest = min(paths, key=lambda path: _status(path).st_size, default=None)
    return tuple(
        Library(name=path.name, sha256=_digest(path, flip and path == smallest)) for path in paths
    )


def _status(path: Path) -> os.stat_result:
    try:
        return path.stat()
    except OSError as error:
        raise _unreadable(path, error) from error


def _digest(path: Path, flip: bool) -> str:
    try:
        if not flip:
            with path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        data = bytearray(path.read_bytes())
    except OSError as error:
        raise _unreadable(path, error) from error
    data[-1] ^= 1
    return hashlib.sha256(data).hexdigest()


def _unreadable(path: Path, error: OSError) -> RefusedError:
    return RefusedError(Refusal(Code.UNREADABLE, str(path), "a readable library", str(error)))
