"""The tensor files of a directory: one file, or several that an index names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pp4.drafter.checkpoint.documents import inside, read_document
from pp4.drafter.checkpoint.headers import Entry, read_header
from pp4.drafter.checkpoint.problems import Problem, refused, shown
from pp4.errors import Code, Refusal, RefusedError

CONFIG: Final = "config.json"
SINGLE: Final = "model.safetensors"
INDEX: Final = "model.safetensors.index.json"
PICKLED: Final = frozenset({".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle"})
"""Files that only unpickling could read, which runs whatever program is in them."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """What the headers of a directory's files say.

    Attributes:
        directory: where they lie.
        files: names of the files that were read.
        entries: tensors by name.
        problems: what is wrong with files and tensors.
    """

    directory: Path
    files: tuple[str, ...]
    entries: Mapping[str, Entry]
    problems: tuple[Problem, ...]


def read_bundle(directory: Path) -> Bundle:
    """Read the headers of all tensor files of a directory.

    Raises:
        RefusedError: ``UNREADABLE``: no such directory; or ``BAD_CHECKPOINT``: pickled files, no
            tensor file or two ways to find one, an index that names a file outside.
    """
    names = _names(directory)
    pickled = sorted(name for name in names if Path(name).suffix.lower() in PICKLED)
    if pickled:
        raise refused(
            directory,
            [Problem(one, "safetensors alone", "a pickled file") for one in pickled],
            next="convert it to safetensors where it was made, or move it out of the directory",
        )
    ways = [name for name in (SINGLE, INDEX) if name in names]
    if len(ways) != 1:
        found = "both" if ways else "neither"
        raise refused(directory, [Problem("tensors", f"either {SINGLE} or {INDEX}", found)])
    if ways == [SINGLE]:
        entries, problems = read_header(inside(directory, SINGLE))
        return Bundle(directory, (SINGLE,), entries, tuple(problems))
    return _indexed(directory)


def _names(directory: Path) -> frozenset[str]:
    try:
        return frozenset(path.name for path in directory.iterdir())
    except OSError as error:
        found = error.strerror or str(error)
        where = shown(str(directory))
        raise RefusedError(
            Refusal(Code.UNREADABLE, where, "the directory of a checkpoint", found, "drafter")
        ) from error


def _indexed(directory: Path) -> Bundle:
    placed = _weight_map(read_document(directory, INDEX).get("weight_map"), directory)
    files = tuple(sorted(set(placed.values())))
    entries: dict[str, Entry] = {}
    problems: list[Problem] = []
    unread = set()
    for file in files:
        found, wrong = read_header(inside(directory, file))
        problems += wrong
        if wrong and not found:
            unread.add(file)
        for name, entry in found.items():
            if name in entries:
                both = f"in {shown(entries[name].file.name)} and {shown(file)}"
                problems.append(Problem(name, "one place", both))
            elif placed.get(name) != file:
                expected = f"in {shown(placed[name])}" if name in placed else "a name of the index"
                problems.append(Problem(name, expected, f"in {shown(file)}"))
            entries.setdefault(name, entry)
    missing = [
        Problem(name, f"a tensor in {shown(file)}, as the index says", "none")
        for name, file in placed.items()
        if name not in entries and file not in unread
    ]
    return Bundle(directory, files, entries, (*missing, *problems))


def _weight_map(tree: Any, directory: Path) -> dict[str, str]:
    fits = isinstance(tree, dict) and all(isinstance(file, str) for file in tree.values())
    if not fits or not tree:
        problem = Problem(f"{INDEX}: weight_map", "a file's name for each tensor", shown(tree))
        raise refused(directory, [problem])
    named: dict[str, str] = tree
    return named
