"""Stage a runner tree: reviewed input, every change exactly once, guards before and after.

The order is that of trust: first the bytes are the reviewed ones, then they are looked into, then
they are changed, and what came out is read back from the disk and held to the same rules.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

from pp4.errors import BadInputError, Code, Refusal, RefusedError, UsageError
from pp4.launch.changes import Edited, edited, want_package
from pp4.launch.guards import Guard, find_guards
from pp4.launch.launchers import NEEDLES, want_switches_off
from pp4.launch.manifest import Edit, GuardRule, Opened, Package, load_manifest
from pp4.launch.record import RECEIPT, body
from pp4.launch.staging import Staging, staging
from pp4.launch.trees import Tree, not_reviewed, refuse_tree, survey
from pp4.launch.writing import plan, want_written, write, write_bytes
from pp4.receipts.build import build
from pp4.receipts.canonical import shown
from pp4.receipts.digests import sha256_hex

_PAGE: Final = "docs/prepare.md"


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
    read = want_switches_off(tree)
    replacements = {one.path: _replacement(opened, one) for one in manifest.package}
    planned = plan(tree, replacements, edits)
    for one in planned:
        write(place, one)
    output = survey(place.place, needles=NEEDLES, named=place.out)
    want_written(planned, output)
    for package in manifest.package:
        want_package(output, package)
    after = _guards(output, manifest.guard)
    _want_same(before, after, output)
    want_switches_off(output, read)
    lines = _lines(manifest.edit, edits)
    raw = build(body(opened, tree, output, lines, list(zip(before, after, strict=True))))
    write_bytes(place, RECEIPT, raw)
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
            not_reviewed(tree.where(path), sha256, "no such file" if entry is None else "a link")
        if entry.sha256 != sha256:
            not_reviewed(tree.where(path), sha256, f"sha256 {entry.sha256}")
    if RECEIPT in tree.entries or RECEIPT in tree.directories:
        refuse_tree(tree.named / RECEIPT, "a tree that was not prepared before", "its receipt")
    if tree.sha256 != opened.manifest.source.sha256:
        wanted = opened.manifest.source.sha256
        not_reviewed(tree.where(""), wanted, f"a tree with sha256 {tree.sha256}")
    for package in opened.manifest.package:
        found = tree.part_sha256(package.path)
        if found != package.sha256 and package.path in tree.directories:
            not_reviewed(tree.where(package.path), package.sha256, f"a tree with sha256 {found}")


def _replacement(opened: Opened, package: Package) -> Tree:
    """Return the tree that takes a package's place."""
    tree = survey(opened.directory / package.replacement, needles=NEEDLES)
    if tree.sha256 != package.replacement_sha256:
        found = f"a tree with sha256 {tree.sha256}"
        not_reviewed(tree.where(""), package.replacement_sha256, found)
    return tree


def _edits(tree: Tree, edits: Sequence[Edit]) -> dict[str, Edited]:
    """Return every file that has edits, as it is after them."""
    by_path: dict[str, list[Edit]] = {}
    for edit in edits:
        by_path.setdefault(edit.path, []).append(edit)
    return {path: edited(tree, some, tree.content(path)) for path, some in by_path.items()}


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
        for guard in find_guards(some, tree.content(path), tree.where(path)):
            found[guard.name] = guard
    return [found[rule.name] for rule in rules]


def _want_same(before: Sequence[Guard], after: Sequence[Guard], output: Tree) -> None:
    for old, new in zip(before, after, strict=True):
        if old.form != new.form:
            where = f"{output.where(new.path)}, line {new.line}"
            expected = f"guard {old.name} and the head of its function as they were reviewed"
            _guard_changed(where, expected, "another body, other parameters or decorators")


def _guard_changed(where: str, expected: str, found: str) -> NoReturn:
    raise RefusedError(Refusal(Code.GUARD_CHANGED, where, expected, found, _PAGE))
