"""The text: source files of Python's standard library, dealt to three splits by their paths.

``python -m examples.mini.text DIR`` copies the chosen files of this interpreter into a new
directory, so that another machine can train on the same text.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pp4.errors import BadInputError, Code, Exit, Refusal, RefusedError

SPLITS: Final = ("train", "validation", "heldout")
"""Held-out files are looked at once, after every choice has been made."""
_DEALT: Final = ("train",) * 94 + ("validation",) * 3 + ("heldout",) * 3
_OUTSIDE: Final = frozenset(
    {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"}
)
_MACHINE_MADE: Final = ("_sysconfigdata", "config-")
"""What the build of an interpreter writes: the paths of its machine are in it."""
_TABLES: Final = "gencodec.py"
"""The program that wrote the tables of character sets.  They are so alike that held-out ones would
be known from others, so files that name it are left out."""


@dataclass(frozen=True, slots=True)
class Source:
    """One file.

    Attributes:
        path: relative to the directory, with slashes.
        text: its content, line ends as they are.
    """

    path: str
    text: str

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return len(self.text.encode())


def standard_library() -> Path:
    """Where this interpreter keeps the source of its standard library."""
    return Path(sysconfig.get_path("stdlib"))


def chosen(directory: Path) -> list[Path]:
    """Files of a directory that are text to train on, in the order of their relative paths.

    Tests, installed packages, empty files and what is made by machine are left out.

    Raises:
        RefusedError: ``UNREADABLE``: it is no directory, or has no such file.
    """
    found = {
        path.relative_to(directory).as_posix(): path
        for path in directory.rglob("*.py")
        if _is_text(path.relative_to(directory)) and path.is_file() and path.stat().st_size
    }
    if not found:
        raise RefusedError(
            Refusal(
                Code.UNREADABLE,
                "text",
                "a directory with Python source files",
                f"none in {directory.name or directory}",
                next="give one with --text DIR",
            )
        )
    return [found[name] for name in sorted(found)]


def _is_text(relative: Path) -> bool:
    inside = _OUTSIDE.isdisjoint(relative.parts[:-1])
    return inside and not any(part.startswith(_MACHINE_MADE) for part in relative.parts)


def read(directory: Path) -> tuple[list[Source], list[str]]:
    """Read the chosen files.

    Tables of character sets are left out, too.

    Returns:
        The files, and the paths of those that are no UTF-8 and were left out.

    Raises:
        RefusedError: as :func:`chosen`.
    """
    sources, left_out = [], []
    for path in chosen(directory):
        name = path.relative_to(directory).as_posix()
        try:
            text = path.read_bytes().decode("utf-8")
        except UnicodeDecodeError:
            left_out.append(name)
            continue
        if _TABLES not in text:
            sources.append(Source(name, text))
    return sources, left_out


def split_of(path: str) -> str:
    """Split of a file: by the hash of its relative path, so it stays where other files change."""
    number = int.from_bytes(hashlib.sha256(path.encode()).digest()[:8], "big")
    return _DEALT[number % len(_DEALT)]


def dealt(sources: Sequence[Source]) -> dict[str, list[Source]]:
    """Deal files to their splits.

    Raises:
        BadInputError: a split would have no file.
    """
    splits: dict[str, list[Source]] = {split: [] for split in SPLITS}
    for source in sources:
        splits[split_of(source.path)].append(source)
    for split, members in splits.items():
        if not members:
            raise BadInputError.of("text", f"files for the split {split}", f"{len(sources)} files")
    return splits


def digest(sources: Iterable[Source]) -> str:
    """SHA-256 over path, size and bytes of each file in order, a zero byte after the former two."""
    total = hashlib.sha256()
    for source in sources:
        content = source.text.encode()
        total.update(f"{source.path}\0{len(content)}\0".encode())
        total.update(content)
    return total.hexdigest()


def copied(source: Path, into: Path) -> int:
    """Copy the chosen files into a new directory; -> how many.

    Raises:
        RefusedError: as :func:`chosen`; ``EXISTS``: there is such a directory already.
    """
    if into.exists():
        raise RefusedError(Refusal(Code.EXISTS, into.name, "a new directory", "one that exists"))
    paths = chosen(source)
    for path in paths:
        place = into / path.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)
    return len(paths)


def main(arguments: Sequence[str]) -> int:
    """Copy the standard library's text; -> the exit code."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m examples.mini.text DIR\n")
        return int(Exit.USAGE)
    try:
        count = copied(standard_library(), Path(arguments[0]))
    except RefusedError as error:
        sys.stderr.write(f"{error.refusal.as_dict()}\n")
        return int(error.exit)
    sys.stdout.write(f"{count} files\n")
    return int(Exit.DONE)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
