"""Digests: of bytes, of a source tree, of a receipt's file and of its content."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pp4.errors import Code
from pp4.receipts.canonical import dump, read_file, refuse, shown
from pp4.receipts.private import closed


def sha256_hex(data: bytes) -> str:
    """Return sha256 as 64 lower-case hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def tree_digest(tree: object) -> str:
    """Return the sha256 of the canonical bytes of a JSON tree.

    Raises:
        RefusedError: the tree has no canonical bytes.
    """
    return sha256_hex(dump(tree))


def file_digest(raw: bytes) -> str:
    """Return what others write when they refer to a receipt: the sha256 of its file."""
    return sha256_hex(raw)


def receipt_digest(tree: Mapping[str, object]) -> str:
    """Return the digest that a receipt must carry.

    It covers every member but ``digest``, with each leaf of ``private`` replaced by its salted
    hash, and works on the tree as written: no model of this version takes part, so a later tool
    computes the same.

    Raises:
        RefusedError: the tree has no canonical bytes.
    """
    covered = {name: value for name, value in tree.items() if name != "digest"}
    if "private" in covered:
        covered["private"] = closed(covered["private"])
    return tree_digest(covered)


@dataclass(frozen=True, slots=True)
class Source:
    """The source that ran.

    Attributes:
        digest: see :func:`source_list_digest`.
        files: (POSIX path below the package, sha256), sorted by path.
    """

    digest: str
    files: tuple[tuple[str, str], ...]

    def as_dict(self) -> dict[str, object]:
        """Return the member ``source`` of a receipt."""
        rows = [{"path": path, "sha256": digest} for path, digest in self.files]
        return {"digest": self.digest, "files": rows}


def source_list_digest(files: Sequence[tuple[str, str]]) -> str:
    """Return the sha256 of the canonical list of [path, sha256] pairs, in the order given."""
    return tree_digest([[path, digest] for path, digest in files])


def source_digest(root: Path) -> Source:
    """Hash every ``.py`` file below ``root``, kernels included, compiled caches excluded.

    Args:
        root: the directory of the package.

    Raises:
        RefusedError: UNREADABLE, where ``root`` is no directory, holds no source or a file of it
            cannot be read.
    """
    names = sorted(
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        if "__pycache__" not in path.parts
    )
    if not names:
        refuse(Code.UNREADABLE, shown(str(root)), "a directory with Python source", "none")
    files = tuple((name, sha256_hex(read_file(root / name))) for name in names)
    return Source(source_list_digest(files), files)


def installed_source() -> Source:
    """Return the source of the package that runs this very line.

    Raises:
        RefusedError: UNREADABLE.
    """
    return source_digest(Path(__file__).resolve().parent.parent)
