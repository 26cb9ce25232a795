"""Stage a runner tree: reviewed input, every change exactly once, guards before and after.

The order is that of trust: first the bytes are the reviewed ones, then they are looked into, then
they are changed, and what came out is read back from the disk and held to the same rules.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

from pp4.errors import BadInputError, Code, Refusal, RefusedError, UsageError, WrongError
from pp4.launch.changes import Edited, edited, want_package
from pp4.launch.guards import Guard, find_guards
from pp4.launch.launchers import NEEDLES, want_switches_off
from pp4.launch.manifest import Edit, GuardRule, Opened, Package, load_manifest
from pp4.launch.record import RECEIPT, body
from pp4.launch.staging import Staging, staging, unwritable
from pp4.launch.trees import Entry, Tree, Type, open_file, refuse_tree, survey, unreadable
from pp4.receipts.build import build
from pp4.receipts.canonical import read_file, shown
from pp4.receipts.digests import sha256_hex

_PAGE: Final = "docs/prepare.md"
_CHUNK: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Prepared:
    """A staged tree.

    Attributes:
        out: where it lies.
        receipt_sha256: of the receipt in it.
        source: the tree that it was made of.
        output: the tree that it is, the receipt left out.
        replaced: each package and passage with its place.
        guards: each guard with its place.
        swept: names of what killed runs had left beside it, and was taken away.
    """

    out: Path
    receipt_sha256: str
    source: Tree
    output: Tree
    replaced: tuple[str, ...]
    guards: tuple[str, ...]
    swept: tuple[str, ...]

    def as_dict(self) -> dict[str, object]:
        """Return what a person is told, and a program under ``--json``."""
        return {
            "out": str(self.out),
            "files": len(self.output.entries),
            "source_sha256": self.source.sha256,
            "output_sha256": self.output.sha256,
            "replaced_once": list(self.replaced),
            "guards": list(self.guards),
            "left_out": list(self.source.left_out),
            "taken_away": list(self.swept),
            "receipt": str(self.out / RECEIPT),
            "receipt_sha256": self.receipt_sha256,
        }


@dataclass(frozen=True, slots=True)
class _Planned:
    """A file of the output: where its bytes come from, or what they are."""

    path: str
    type: Type
    sha256: str
    origin: Path
    target: str = ""
    content: bytes | None = None


def prepare(manifest: Path, source: Path | None, out: Path) -> Prepared:
    """Stage a tree.

    Args:
        manifest: its file.
        source: the reviewed tree; the manifest's own where None.
        out: the directory to make; its parent exists, it does not.

    Raises:
        RefusedError: the manifest, the source or the output will not do; nothing is left.
        WrongError: ``DIGEST_MISMATCH``, the disk gave back other bytes; nothing is left.
    """
    opened = load_manifest(manifest)
    root = source or opened.source
    if root is None:
        expected = "--source TREE, since the manifest names no source.path"
        raise UsageError(Refusal(Code.USAGE, "pp4 prepare", expected, "none"))
    replacements = (opened.directory / one.replacement for one in opened.manifest.package)
    for one in (root, *replacements):
        _want_apart(one, out)
    with staging(out) as place:
        return _staged(opened, root, place)


def _staged(opened: Opened, root: Path, place: Staging) -> Prepared:
    manifest = opened.manifest
    tree = survey(root, needles=NEEDLES)
    _want_reviewed(opened, tree)
    for package in manifest.package:
        want_package(tree, package)
    edits = _edits(tree, manifest.edit)
    before = _guards(tree, manifest.guard)
    want_switches_off(tree)
    replacements = {one.path: _replacement(opened, one) for one in manifest.package}
    planned = _plan(tree, replacements, edits)
    for one in planned:
        _write(place, one)
    output = survey(place.place, needles=NEEDLES, named=place.out)
    _want_written(planned, output)
    for package in manifest.package:
        want_package(output, package)
    after = _guards(output, manifest.guard)
    _want_same(before, after, output)
    want_switches_off(output)
    lines = _lines(manifest.edit, edits)
    raw = build(body(opened, tree, output, lines, list(zip(before, after, strict=True))))
    _store(place, raw)
    place.publish()
    packages = (f"package {one.name} at {one.path}" for one in manifest.package)
    passages = (f"{e.name} at {e.path}, line {lines[e.name]}" for e in manifest.edit)
    return Prepared(
        out=place.out,
        receipt_sha256=sha256_hex(raw),
        source=tree,
        output=output,
        replaced=(*packages, *passages),
        guards=tuple(f"{one.name} at {one.path}, line {one.line}" for one in after),
        swept=place.swept,
    )


# -- the input --------------------------------------------------------------------------------


def _want_apart(root: Path, out: Path) -> None:
    """Refuse an output within what it is made of: the next look there would find another tree."""
    top, made = Path(os.path.realpath(root)), Path(os.path.realpath(out))
    if made == top or top in made.parents:
        raise BadInputError.of("--out", f"a directory outside of {shown(str(root))}", str(out))


def _want_reviewed(opened: Opened, tree: Tree) -> None:
    """Hold a tree to every sha256 of the manifest, what is named by itself first."""
    for path, sha256 in opened.manifest.pins:
        entry = tree.entries.get(path)
        if entry is None or entry.type == "link":
            _not_reviewed(tree.where(path), sha256, "no such file" if entry is None else "a link")
        if entry.sha256 != sha256:
            _not_reviewed(tree.where(path), sha256, f"sha256 {entry.sha256}")
    if RECEIPT in tree.entries or RECEIPT in tree.directories:
        refuse_tree(tree.named / RECEIPT, "a tree that was not prepared before", "its receipt")
    if tree.sha256 != opened.manifest.source.sha256:
        wanted = opened.manifest.source.sha256
        _not_reviewed(tree.where(""), wanted, f"a tree with sha256 {tree.sha256}")
    for package in opened.manifest.package:
        found = tree.part_sha256(package.path)
        if found != package.sha256 and package.path in tree.directories:
            _not_reviewed(tree.where(package.path), package.sha256, f"a tree with sha256 {found}")


def _replacement(opened: Opened, package: Package) -> Tree:
    """Return the tree that takes a package's place."""
    tree = survey(opened.directory / package.replacement, needles=NEEDLES)
    if tree.sha256 != package.replacement_sha256:
        found = f"a tree with sha256 {tree.sha256}"
        _not_reviewed(tree.where(""), package.replacement_sha256, found)
    return tree


def _edits(tree: Tree, edits: Sequence[Edit]) -> dict[str, Edited]:
    """Return every file that has edits, as it is after them."""
    by_path: dict[str, list[Edit]] = {}
    for edit in edits:
        by_path.setdefault(edit.path, []).append(edit)
    return {path: edited(tree, some, _content(tree, path)) for path, some in by_path.items()}


def _lines(edits: Sequence[Edit], files: Mapping[str, Edited]) -> dict[str, int]:
    """Return the line of each edit by its name."""
    lines = {path: iter(one.lines) for path, one in files.items()}
    return {edit.name: next(lines[edit.path]) for edit in edits}


def _guards(tree: Tree, rules: Sequence[GuardRule]) -> list[Guard]:
    """Return every guard, in the order of the manifest."""
    by_path: dict[str, list[GuardRule]] = {}
    for rule in rules:
        by_path.setdefault(rule.path, []).append(rule)
    found = {}
    for path, some in by_path.items():
        entry = tree.entries.get(path)
        if entry is None or entry.type == "link":
            _guard_changed(tree.where(path), "the file of its guards", "none")
        for guard in find_guards(some, _content(tree, path), tree.where(path)):
            found[guard.name] = guard
    return [found[rule.name] for rule in rules]


def _want_same(before: Sequence[Guard], after: Sequence[Guard], output: Tree) -> None:
    for old, new in zip(before, after, strict=True):
        if old.form != new.form:
            where = f"{output.where(new.path)}, line {new.line}"
            expected = f"guard {old.name} and the head of its function as they were reviewed"
            _guard_changed(where, expected, "another body, other parameters or decorators")


def _content(tree: Tree, path: str) -> bytes:
    """Return the bytes of a file that was surveyed.

    Raises:
        RefusedError: ``NOT_REVIEWED``, it is another one by now; ``UNREADABLE``; ``TOO_LARGE``.
    """
    raw = read_file(tree.root / path)
    wanted = tree.entries[path].sha256
    if sha256_hex(raw) != wanted:
        _not_reviewed(tree.where(path), wanted, f"sha256 {sha256_hex(raw)}, a moment later")
    return raw


def _not_reviewed(where: str, wanted: str, found: str) -> NoReturn:
    raise RefusedError(Refusal(Code.NOT_REVIEWED, where, f"sha256 {wanted}", found, _PAGE))


def _guard_changed(where: str, expected: str, found: str) -> NoReturn:
    raise RefusedError(Refusal(Code.GUARD_CHANGED, where, expected, found, _PAGE))


# -- the output -------------------------------------------------------------------------------


def _plan(
    tree: Tree, replacements: Mapping[str, Tree], edits: Mapping[str, Edited]
) -> list[_Planned]:
    """Return every file of the output, by path."""
    planned = []
    for path, entry in tree.entries.items():
        if any(path.startswith(f"{package}/") for package in replacements):
            continue
        if path in edits:
            content = edits[path].content
            digest = sha256_hex(content)
            planned.append(_Planned(path, entry.type, digest, tree.root, content=content))
        else:
            planned.append(_planned(path, entry, tree.root / path))
    for package, replacement in replacements.items():
        for path, entry in replacement.entries.items():
            planned.append(_planned(f"{package}/{path}", entry, replacement.root / path))
    return sorted(planned, key=lambda one: one.path)


def _planned(path: str, entry: Entry, origin: Path) -> _Planned:
    return _Planned(path, entry.type, entry.sha256, origin, entry.target)


def _write(place: Staging, one: _Planned) -> None:
    where = place.out / one.path
    try:
        if one.type == "link":
            place.link(one.path, one.target)
            return
        descriptor = place.write(one.path, program=one.type == "program")
    except OSError as error:
        raise unwritable(where, error) from error
    with _Sink(descriptor, where) as sink:
        if one.content is not None:
            sink.write(one.content)
        else:
            _copy(one, sink)


class _Sink:
    """A file that is written; what the disk does not take is a refusal of its name."""

    def __init__(self, descriptor: int, where: Path) -> None:
        self._stream, self._where = os.fdopen(descriptor, "wb", buffering=0), where

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


def _copy(one: _Planned, sink: _Sink) -> None:
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
        _not_reviewed(shown(str(one.origin)), one.sha256, found)


def _want_written(planned: Sequence[_Planned], output: Tree) -> None:
    wanted = [[one.path, one.type, one.sha256] for one in planned]
    found = [entry.row for entry in output.entries.values()]
    if wanted != found:
        odd = next((row for row in (*wanted, *found) if (row in wanted) != (row in found)), [""])
        expected = "the files that were written, read back from the disk"
        where = output.where(odd[0])
        raise WrongError(Refusal(Code.DIGEST_MISMATCH, where, expected, "others", _PAGE))


def _store(place: Staging, raw: bytes) -> None:
    where = place.out / RECEIPT
    try:
        descriptor = place.write(RECEIPT)
    except OSError as error:
        raise unwritable(where, error) from error
    with _Sink(descriptor, where) as sink:
        sink.write(raw)
