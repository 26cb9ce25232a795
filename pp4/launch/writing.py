"""The files of an output: planned, written into a staging, and held to what was read back."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pp4.errors import Code, Refusal, WrongError
from pp4.launch.changes import Edited
from pp4.launch.staging import Staging, unwritable
from pp4.launch.trees import Entry, Tree, Type, not_reviewed, open_file, unreadable
from pp4.receipts.canonical import shown
from pp4.receipts.digests import sha256_hex

_CHUNK: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Planned:
    """A file of the output.

    Attributes:
        path: where it goes, below the top.
        type: of the entry.
        sha256: of the entry.
        origin: the file that its bytes are copied from.
        target: the text of a link.
        content: its bytes, where they are not copied.
    """

    path: str
    type: Type
    sha256: str
    origin: Path
    target: str = ""
    content: bytes | None = None


def plan(
    tree: Tree, replacements: Mapping[str, Tree], edits: Mapping[str, Edited]
) -> list[Planned]:
    """Return every file of the output, in the order of paths.

    Args:
        tree: the source.
        replacements: what takes the place of a directory, by its path.
        edits: files with other bytes, by path.
    """
    planned = []
    for path, entry in tree.entries.items():
        if any(path.startswith(f"{package}/") for package in replacements):
            continue
        if path in edits:
            content = edits[path].content
            digest = sha256_hex(content)
            planned.append(Planned(path, entry.type, digest, tree.root, content=content))
        else:
            planned.append(_copied(path, entry, tree.root / path))
    for package, replacement in replacements.items():
        for path, entry in replacement.entries.items():
            planned.append(_copied(f"{package}/{path}", entry, replacement.root / path))
    return sorted(planned, key=lambda one: one.path)


def _copied(path: str, entry: Entry, origin: Path) -> Planned:
    return Planned(path, entry.type, entry.sha256, origin, entry.target)


def write(place: Staging, one: Planned) -> None:
    """Write one file.

    Raises:
        RefusedError: ``UNWRITABLE``; ``UNREADABLE``; ``NOT_REVIEWED``, it has other bytes by now.
    """
    if one.type == "link":
        try:
            place.link(one.path, one.target)
        except OSError as error:
            raise unwritable(place.out / one.path, error) from error
    elif one.content is not None:
        write_bytes(place, one.path, one.content, program=one.type == "program")
    else:
        with _Sink(place, one.path, program=one.type == "program") as sink:
            _copy(one, sink)


def write_bytes(place: Staging, path: str, content: bytes, *, program: bool = False) -> None:
    """Write a file of these bytes.

    Raises:
        RefusedError: ``UNWRITABLE``.
    """
    with _Sink(place, path, program=program) as sink:
        sink.write(content)


def want_written(planned: Sequence[Planned], output: Tree) -> None:
    """Hold what was read back from the disk to what was written.

    Raises:
        WrongError: ``DIGEST_MISMATCH``, with the first file that differs.
    """
    wanted = {one.path: (one.type, one.sha256) for one in planned}
    found = {path: (entry.type, entry.sha256) for path, entry in output.entries.items()}
    odd = sorted(path for path in wanted | found if wanted.get(path) != found.get(path))
    if odd:
        expected = "the bytes that were written, read back from the disk"
        where = output.where(odd[0])
        raise WrongError(Refusal(Code.DIGEST_MISMATCH, where, expected, "others"))


class _Sink:
    """A new file; what the disk does not take is a refusal of its name."""

    def __init__(self, place: Staging, path: str, *, program: bool) -> None:
        self._where = place.out / path
        try:
            self._stream = os.fdopen(place.write(path, program=program), "wb", buffering=0)
        except OSError as error:
            raise unwritable(self._where, error) from error

    def __enter__(self) -> _Sink:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._stream.close()
        except OSError as error:
            raise unwritable(self._where, error) from error

    def write(self, content: bytes) -> None:
        left = memoryview(content)
        try:
            while left:
                left = left[self._stream.write(left) :]
        except OSError as error:
            raise unwritable(self._where, error) from error


def _copy(one: Planned, sink: _Sink) -> None:
    digest = hashlib.sha256()
    try:
        with os.fdopen(open_file(one.origin), "rb", buffering=0) as stream:
            while chunk := stream.read(_CHUNK):
                digest.update(chunk)
                sink.write(chunk)
    except OSError as error:
        raise unreadable(shown(str(one.origin)), error) from error
    if digest.hexdigest() != one.sha256:
        found = f"sha256 {digest.hexdigest()}, a moment later"
        not_reviewed(shown(str(one.origin)), one.sha256, found)
