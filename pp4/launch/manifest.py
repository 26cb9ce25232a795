"""The manifest of a preparation: what is pinned, what is replaced, and what has to remain."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, NoReturn

from pydantic import AfterValidator, Field, StringConstraints, ValidationError

from pp4.config.tables import said
from pp4.config.toml_text import toml_table
from pp4.errors import Code, Refusal, RefusedError
from pp4.receipts.canonical import read_file, shown
from pp4.receipts.digests import sha256_hex
from pp4.receipts.envelope import Model, RelativePath, Sha256, Text, Word

LIMIT: Final = 1 << 20
"""Largest manifest in bytes."""
_PAGE: Final = "docs/prepare.md"
_WHAT: Final = "a manifest"


def _plain(path: str) -> str:
    if any(part in (".", "..") for part in path.split("/")):
        raise ValueError("a path from the top of the tree, without . and ..")
    return path


_IDENTIFIER: Final = r"[A-Za-z_][A-Za-z0-9_]*"
TreePath = Annotated[RelativePath, AfterValidator(_plain)]
"""A path below the top of a tree."""
Dotted = Annotated[
    str, StringConstraints(pattern=rf"^{_IDENTIFIER}(\.{_IDENTIFIER})*$", max_length=512)
]
Passage = Annotated[str, StringConstraints(min_length=1, max_length=65_536)]


class Whole(Model):
    """The reviewed tree: where it lies unless ``--source`` says otherwise, and its sha256."""

    path: Text | None = None
    sha256: Sha256


class Pinned(Model):
    """One file of the reviewed tree."""

    path: TreePath
    sha256: Sha256


class Package(Model):
    """A nested package and what takes its place.

    Attributes:
        name: dotted, as it is imported; nothing else in the tree may end in it.
        path: its directory in the tree.
        sha256: of what is there, as a tree.
        replacement: the directory that takes its place, from the manifest's own.
        replacement_sha256: of that directory, as a tree.
    """

    name: Dotted
    path: TreePath
    sha256: Sha256
    replacement: Text
    replacement_sha256: Sha256


class Edit(Model):
    """A passage of a file that is found exactly once and becomes another one."""

    name: Word
    path: TreePath
    sha256: Sha256
    old: Passage
    new: Annotated[str, StringConstraints(max_length=65_536)]


class GuardRule(Model):
    """A guard that has to remain: ``if SUBJECT is None:`` at the front of a function.

    Attributes:
        name: what the receipt calls it.
        path: its file.
        function: dotted name within the file, such as ``Runner.load``.
        subject: a parameter of it, or an attribute of one.
    """

    name: Word
    path: TreePath
    function: Dotted
    subject: Dotted


class Manifest(Model):
    """All of it; the list of guards has at least two, those of the runner."""

    source: Whole
    runner: Pinned
    input: tuple[Pinned, ...] = ()
    package: tuple[Package, ...] = Field(min_length=1)
    edit: tuple[Edit, ...] = ()
    guard: tuple[GuardRule, ...] = Field(min_length=2)

    @property
    def pins(self) -> tuple[tuple[str, str], ...]:
        """Path and sha256 of every file that is pinned by itself, the runner first."""
        edits = ((one.path, one.sha256) for one in self.edit)
        files = ((one.path, one.sha256) for one in (self.runner, *self.input))
        return (*files, *edits)


@dataclass(frozen=True, slots=True)
class Opened:
    """A manifest that was read.

    Attributes:
        manifest: what it says.
        place: its file, for messages.
        directory: where its relative paths begin.
        sha256: of its bytes.
    """

    manifest: Manifest
    place: str
    directory: Path
    sha256: str

    @property
    def source(self) -> Path | None:
        """Where the reviewed tree lies, if the manifest says so."""
        path = self.manifest.source.path
        return None if path is None else self.directory / path


def load_manifest(path: Path) -> Opened:
    """Read and judge a manifest; nothing that it names is opened.

    Raises:
        RefusedError: ``BAD_MANIFEST``, with the place and what has to stand there.
    """
    place = shown(str(path))
    try:
        raw = read_file(path, LIMIT)
    except RefusedError as error:
        _refuse(place, f"{_WHAT}: {error.refusal.expected}", error.refusal.found)
    tree = toml_table(raw, place, _WHAT, _refuse)
    try:
        # Through JSON, because lists become tuples on the way in; what JSON lacks becomes a table,
        # and no key of a manifest takes one of that kind.
        text = json.dumps(tree, default=lambda value: {"not for a manifest": said(value)})
        manifest = Manifest.model_validate_json(text)
    except ValidationError as error:
        first, *more = error.errors(include_url=False, include_context=False, include_input=False)
        where = ".".join(str(part) for part in first["loc"])
        found = shown(first["msg"]) + (f" (and {len(more)} more)" if more else "")
        _refuse(f"{place}, {shown(where)}", f"keys as in {_PAGE}", found)
    except ValueError:
        _refuse(place, "numbers of at most 64 bits", "a number of thousands of digits")
    for where, expected, found in _contradictions(manifest):
        _refuse(f"{place}, {where}", expected, found)
    return Opened(manifest, place, path.absolute().parent, sha256_hex(raw))


def _refuse(where: str, expected: str, found: str) -> NoReturn:
    raise RefusedError(Refusal(Code.BAD_MANIFEST, where, expected, shown(found), _PAGE))


def _contradictions(manifest: Manifest) -> Iterator[tuple[str, str, str]]:
    """Place, expected and found of what cannot be true at once."""
    yield from _twice("edit", "a name of its own", (one.name for one in manifest.edit))
    yield from _twice("guard", "a name of its own", (one.name for one in manifest.guard))
    guards = (f"{one.path}: {one.subject} in {one.function}" for one in manifest.guard)
    yield from _twice("guard", "a place of its own", guards)
    paths = [one.path for one in manifest.package]
    yield from _twice("package", "a place of its own", paths)
    for one in manifest.package:
        if not f"/{one.path}".endswith(f"/{one.name.replace('.', '/')}"):
            yield "package.path", f"a directory that ends in {one.name}", one.path
    for inner in (*paths, *(one.path for one in manifest.edit)):
        for outer in paths:
            if inner.startswith(f"{outer}/"):
                yield "package", f"nothing that is changed within {outer}", inner
    for edit in manifest.edit:
        if edit.old == edit.new:
            yield f"edit {edit.name}", "a passage that becomes another one", "the same"
    pinned = dict(manifest.pins)
    for path, sha256 in manifest.pins:
        if pinned[path] != sha256:
            yield path, "one sha256 for each file", f"{sha256} and {pinned[path]}"


def _twice(where: str, expected: str, names: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    for name, count in Counter(names).items():
        if count > 1:
            yield where, expected, f"{count} times {name}"
