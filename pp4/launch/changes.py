"""What is changed in a tree: packages and passages, each found exactly once or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

from pp4.errors import Code, Refusal, RefusedError
from pp4.launch.manifest import Edit, Package
from pp4.launch.trees import Tree
from pp4.receipts.canonical import shown

_MODULES: Final = frozenset({"py", "pyw", "pyc", "so", "pyd"})
"""Endings under which Python imports a module."""
_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class Edited:
    """A file after its edits.

    Attributes:
        content: its new bytes.
        lines: the line that each edit's old passage begins at, in the order of the edits.
    """

    content: bytes
    lines: tuple[int, ...]


def want_package(tree: Tree, package: Package) -> None:
    """Hold a tree to one package of that name, at its place.

    Raises:
        RefusedError: ``NOT_ONCE``, with every place.
    """
    places = package_places(tree, package.name)
    if places != [package.path]:
        expected = f"the package {package.name} once, at {package.path}"
        _refuse(tree.where(package.path), expected, _counted(places))


def package_places(tree: Tree, name: str) -> list[str]:
    """Return every path that an import of a dotted name could mean, however deep it lies.

    Directories, with or without an ``__init__.py``; modules, compiled ones as well; links.
    """
    *above, last = name.split(".")
    tail = "/".join(["", *above, last])
    found = [path for path in tree.directories if f"/{path}".endswith(tail)]
    for path, entry in tree.entries.items():
        directory, _, file = f"/{path}".rpartition("/")
        stem, *endings = file.split(".")
        linked = entry.type == "link" and not endings
        module = bool(endings) and endings[-1] in _MODULES
        if stem == last and (linked or module) and f"{directory}/{stem}".endswith(tail):
            found.append(path)
    return sorted(found)


def edited(tree: Tree, edits: Sequence[Edit], content: bytes) -> Edited:
    """Return a file with its passages replaced; each is looked for in the text as it was.

    Args:
        tree: that the file belongs to, for messages.
        edits: all those of one file.
        content: its bytes.

    Raises:
        RefusedError: ``NOT_ONCE``, a passage is not there once, or two of them overlap.
    """
    spans = []
    for edit in edits:
        old = edit.old.encode()
        starts = _starts(content, old)
        if len(starts) != 1:
            places = [f"line {_line(content, start)}" for start in starts]
            expected = f"the old passage of edit {edit.name} once"
            _refuse(tree.where(edit.path), expected, _counted(places))
        spans.append((starts[0], starts[0] + len(old), edit))
    parts, end = [], 0
    for start, stop, edit in sorted(spans, key=lambda span: span[0]):
        if start < end:
            expected = f"the old passage of edit {edit.name} apart from every other"
            _refuse(tree.where(edit.path), expected, f"overlaps in line {_line(content, start)}")
        parts += [content[end:start], edit.new.encode()]
        end = stop
    lines = tuple(_line(content, start) for start, _, _ in spans)
    return Edited(b"".join([*parts, content[end:]]), lines)


def _starts(content: bytes, old: bytes) -> list[int]:
    """Offsets of every occurrence, overlapping ones as well."""
    starts = []
    at = content.find(old)
    while at >= 0:
        starts.append(at)
        at = content.find(old, at + 1)
    return starts


def _line(content: bytes, offset: int) -> int:
    return content.count(b"\n", 0, offset) + 1


def _counted(places: Sequence[str]) -> str:
    if not places:
        return "nowhere"
    more = f" and {len(places) - _SHOWN} more" if len(places) > _SHOWN else ""
    return f"{len(places)}: {', '.join(map(shown, places[:_SHOWN]))}{more}"


def _refuse(where: str, expected: str, found: str) -> NoReturn:
    raise RefusedError(Refusal(Code.NOT_ONCE, where, expected, found, "docs/prepare.md"))
