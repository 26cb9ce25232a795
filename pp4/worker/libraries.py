"""Which shared libraries a process has mapped, what is in them, and which builds they are."""

from __future__ import annotations

import hashlib
import os
import struct
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import BufferedReader
from pathlib import Path
from typing import Final, NamedTuple

from pp4.errors import Code, Refusal, RefusedError, reason_of
from pp4.wire.facts import Library

_MAPS = Path("/proc/self/maps")
_RELEVANT = (
    # the driver, the runtime and what Triton builds: libcuda.so.*, libcudart, cuda_utils, ...
    *("cuda", "nvidia", "triton", "torch", "c10"),
    # what torch maps from the toolkit's own packages
    *("nccl", "nvshmem", "nvrtc", "nvjitlink", "nvtx", "nvtoolsext", "cupti", "cufile"),
    *("cublas", "cudnn", "cufft", "curand", "cusolver", "cusparse", "cudss"),
    *("gomp", "openblas"),
)
_SETTLED_NS: Final = 2_000_000_000
"""A file that was touched more recently may change again within one tick of its time stamps."""

_ELF64_LITTLE: Final = b"\x7fELF\x02\x01"
_HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT: Final = struct.Struct("<IIQQQQQQ")
_NOTE: Final = struct.Struct("<III")
_PT_NOTE: Final = 4
_BUILD_ID: Final = (b"GNU\0", 3)
_READERS: Final = 8
_LONGEST_NOTES: Final = 1 << 20
"""Bytes of notes that are looked through in one file; real ones are some hundred long."""


class _Content(NamedTuple):
    sha256: str
    build_id: str | None


_Version = tuple[int, int, int, int, int]
"""Device, inode, size, times of change of the bytes and of the inode: one state of one file."""

_known: dict[_Version, _Content] = {}


def mapped(maps: Path = _MAPS, outside: Path | None = None) -> tuple[Path, ...]:
    """Return the mapped libraries that can change a result, sorted by name.

    Args:
        maps: where the system lists what is mapped.
        outside: a directory whose files are left out.

    Raises:
        RefusedError: ``UNREADABLE``, the system does not tell.
    """
    try:
        lines = maps.read_text().splitlines()
    except OSError as error:
        raise RefusedError(
            Refusal(Code.UNREADABLE, str(maps), "the list of mapped files", reason_of(error))
        ) from error
    paths = {Path(line.split(maxsplit=5)[5]) for line in lines if line.count("/")}
    found = [path for path in paths if ".so" in path.name and _matters(path)]
    if outside is not None:
        found = [path for path in found if not path.is_relative_to(outside.resolve())]
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


def fingerprints(
    *,
    flip: bool = False,
    fresh: bool = False,
    maps: Path = _MAPS,
    outside: Path | None = None,
) -> tuple[Library, ...]:
    """Hash the mapped libraries and read their build ids.

    Libraries are named by their file names.  Where several have one name, each is named by the
    shortest end of its path that tells them apart.  Bytes are read once for each state of a file
    in the life of this process.

    Args:
        flip: a control: the smallest library is hashed with its last byte flipped.
        fresh: read all bytes, also of what was read before.
        maps: where the system lists what is mapped.
        outside: a directory whose files are left out.

    Raises:
        RefusedError: ``UNREADABLE``, a library cannot be read, was replaced since it was mapped,
            changes while it is read, or is cut off.
    """
    paths = mapped(maps, outside)
    smallest = min(paths, key=lambda path: _status(path).st_size, default=None)
    # hashing lets go of the interpreter's lock, and there are gigabytes of it
    with ThreadPoolExecutor(_READERS) as readers:
        contents = list(
            readers.map(lambda path: _content(path, flip and path == smallest, fresh), paths)
        )
    return tuple(
        Library(name=name, sha256=content.sha256, build_id=content.build_id)
        for name, content in zip(_names(paths), contents, strict=True)
    )


def _names(paths: Sequence[Path]) -> Iterator[str]:
    """Yield the name of each path, longer where several files have one name."""
    for path in paths:
        alike = [other.parts[1:] for other in paths if other.name == path.name]
        depth = 1
        while len({parts[-depth:] for parts in alike}) < len(alike):
            depth += 1
        yield "/".join(path.parts[1:][-depth:])


def _status(path: Path) -> os.stat_result:
    try:
        return path.stat()
    except OSError as error:
        raise _unreadable(path, reason_of(error)) from error


def _version(status: os.stat_result) -> _Version:
    return (
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


def _content(path: Path, flip: bool, fresh: bool) -> _Content:
    try:
        with path.open("rb") as file:
            version = _version(os.fstat(file.fileno()))
            if not (flip or fresh) and version in _known:
                return _known[version]
            started_ns = time.time_ns()
            content = _Content(_digest(file, path, flip), _build_id(file, path))
            changed = version != _version(os.fstat(file.fileno()))
    except OSError as error:
        raise _unreadable(path, reason_of(error)) from error
    if changed:
        raise _unreadable(path, "it changed while it was read")
    if not flip and max(version[3:]) + _SETTLED_NS < started_ns:
        _known[version] = content
    return content


def _digest(file: BufferedReader, path: Path, flip: bool) -> str:
    if not flip:
        return hashlib.file_digest(file, "sha256").hexdigest()
    data = bytearray(file.read())
    if not data:
        raise _unreadable(path, "an empty file")
    data[-1] ^= 1
    return hashlib.sha256(data).hexdigest()


def build_id(path: Path) -> str | None:
    """Return the GNU build id of a library in hexadecimal digits.

    The linker leaves it as a note of owner ``GNU`` and type 3 in a segment of type ``PT_NOTE``
    (ELF-64 object file format; ``elf.h`` of glibc).

    Returns:
        None where there is none, and for what is no 64-bit little-endian ELF file.

    Raises:
        RefusedError: ``UNREADABLE``, the file cannot be read or its tables lie beyond its end.
    """
    try:
        with path.open("rb") as file:
            return _build_id(file, path)
    except OSError as error:
        raise _unreadable(path, reason_of(error)) from error


def _build_id(file: BufferedReader, path: Path) -> str | None:
    size = os.fstat(file.fileno()).st_size
    if _piece(file, path, 0, min(size, len(_ELF64_LITTLE))) != _ELF64_LITTLE:
        return None
    header = _HEADER.unpack(_piece(file, path, 0, _HEADER.size))
    offset, entry, count = header[5], header[9], header[10]
    if count and entry != _SEGMENT.size:
        raise _unreadable(path, f"an ELF file with program headers of {entry} bytes")
    table = _piece(file, path, offset, count * entry) if count else b""
    left = _LONGEST_NOTES
    for kind, _, at, _, _, length, _, align in _SEGMENT.iter_unpack(table):
        if kind != _PT_NOTE or length > left:
            continue
        left -= length
        found = _find(_piece(file, path, at, length), 8 if align == 8 else 4)
        if found is not None:
            return found.hex()
    return None


def _piece(file: BufferedReader, path: Path, offset: int, length: int) -> bytes:
    """Read bytes that the file must have; nothing is allocated for what it has not."""
    if offset + length > os.fstat(file.fileno()).st_size:
        raise _unreadable(path, f"an ELF file that ends before byte {offset + length}")
    file.seek(offset)
    piece = file.read(length)
    if len(piece) != length:
        raise _unreadable(path, "it was cut while it was read")
    return piece


def _find(notes: bytes, align: int) -> bytes | None:
    """-> the build id among notes; whoever wrote a note past the end wrote no more of them."""
    at = 0
    while at + _NOTE.size <= len(notes):
        name_size, size, kind = _NOTE.unpack_from(notes, at)
        name = notes[at + _NOTE.size : at + _NOTE.size + name_size]
        start = _aligned(at + _NOTE.size + name_size, align)
        if start + size > len(notes):
            return None
        if (name, kind) == _BUILD_ID and size:
            return notes[start : start + size]
        at = _aligned(start + size, align)
    return None


def _aligned(offset: int, align: int) -> int:
    return -(-offset // align) * align


def _unreadable(path: Path, found: str) -> RefusedError:
    return RefusedError(Refusal(Code.UNREADABLE, str(path), "a readable library", found))
