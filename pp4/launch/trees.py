"""A directory tree as a list of files, and the one digest of it.

Nothing in it is imported or executed.  What could be another tree on another machine refuses by
its name: links that lead out, names that collide, whatever is no file.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, NoReturn

from pp4.errors import Code, Refusal, RefusedError
from pp4.launch.links import leads_to
from pp4.receipts.canonical import LIMIT, read_file, shown
from pp4.receipts.digests import sha256_hex, tree_digest

LEFT_OUT: Final = ("__pycache__", ".git")
"""Names that are passed over at any depth and never staged: caches of Python, records of git."""
MOST_FILES: Final = 24_000
"""Files and links of one tree; twice as many rows, and the source of pp4, fit into a receipt."""
_LONGEST: Final = 1024
_LATER: Final = "other bytes, a moment later"
_CHUNK: Final = 1 << 20
Type = Literal["file", "program", "link"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One file or link.

    Attributes:
        path: below the top, parts joined by ``/``.
        type: ``program`` is a file that its owner may execute.
        sha256: of its bytes; of the text of a link.
        target: the text of a link.
        leads_to: the path in the tree at which a link ends.
        mentions: whether its bytes hold one of the needles that the survey was given.
    """

    path: str
    type: Type
    sha256: str
    target: str = ""
    leads_to: str = ""
    mentions: bool = False

    @property
    def row(self) -> list[str]:
        """What the digest of a tree covers."""
        return [self.path, self.type, self.sha256]


@dataclass(frozen=True, slots=True)
class Tree:
    """A tree that was looked at.

    Attributes:
        root: where it lies.
        named: what messages call its top.
        entries: by path, in the order of paths.
        directories: every directory that was entered, the top left out.
        left_out: paths that were passed over.
    """

    root: Path
    named: Path
    entries: Mapping[str, Entry]
    directories: frozenset[str]
    left_out: tuple[str, ...]

    @property
    def sha256(self) -> str:
        """See :func:`rows_digest`."""
        return rows_digest(one.row for one in self.entries.values())

    def below(self, directory: str) -> dict[str, Entry]:
        """What lies below a directory, by its path from there."""
        start = f"{directory}/"
        return {p.removeprefix(start): e for p, e in self.entries.items() if p.startswith(start)}

    def part_sha256(self, directory: str) -> str:
        """Return the digest of a directory as a tree of its own."""
        return rows_digest([p, e.type, e.sha256] for p, e in self.below(directory).items())

    def content(self, path: str, limit: int = LIMIT) -> bytes:
        """Return the bytes of a file, if they are still those that were surveyed.

        Raises:
            RefusedError: ``NOT_REVIEWED``, they are others; ``UNREADABLE``; ``TOO_LARGE``.
        """
        raw = read_file(self.root / path, limit)
        if sha256_hex(raw) != self.entries[path].sha256:
            not_reviewed(self.where(path), self.entries[path].sha256, _LATER)
        return raw

    def where(self, path: str) -> str:
        """Return a path for a message."""
        return shown(str(self.named / path))


def rows_digest(rows: Iterator[list[str]]) -> str:
    """Return the sha256 of the canonical list of [path, type, sha256], in the order of paths."""
    return tree_digest(sorted(rows))


def survey(
    root: Path,
    *,
    needles: Sequence[bytes] = (),
    without: Sequence[str] = (),
    named: Path | None = None,
) -> Tree:
    """Look at every file of a tree once.

    Args:
        root: its top; may itself be a link.
        needles: byte strings to look for on the way.
        without: paths that are left out silently.
        named: what messages call the top; ``root`` where None.

    Raises:
        RefusedError: ``UNREADABLE``; ``BAD_TREE``, with the name that cannot be staged.
    """
    looking = _Survey(root, named or root, needles)
    looking.walk(without)
    return looking.tree()


def refuse_tree(place: Path, expected: str, found: str) -> NoReturn:
    """Refuse what a tree holds.

    Raises:
        RefusedError: ``BAD_TREE``, always.
    """
    where = shown(str(place))
    raise RefusedError(Refusal(Code.BAD_TREE, where, expected, found, "docs/prepare.md"))


def not_reviewed(where: str, wanted: str, found: str) -> NoReturn:
    """Refuse what is not the reviewed file or tree.

    Raises:
        RefusedError: ``NOT_REVIEWED``, always.
    """
    refusal = Refusal(Code.NOT_REVIEWED, where, f"sha256 {wanted}", found, "docs/prepare.md")
    raise RefusedError(refusal)


def unreadable(where: str, error: OSError) -> RefusedError:
    """Return the refusal of a file or directory that cannot be read."""
    found = shown(error.strerror or str(error))
    return RefusedError(Refusal(Code.UNREADABLE, where, "a tree that can be read", found))


def open_file(path: Path) -> int:
    """Return a descriptor of a regular file, never of what a link leads to.

    Raises:
        OSError: it cannot be opened.
        RefusedError: ``BAD_TREE``, it is something else.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    refuse_tree(path, "a file", "something else, since a moment ago")


class _Survey:
    """One look at a tree: first all names, then links, then bytes."""

    def __init__(self, root: Path, named: Path, needles: Sequence[bytes]) -> None:
        self._root, self._named, self._needles = root, named, needles
        self._longest = max((len(one) for one in needles), default=1)
        self._files: dict[str, os.DirEntry[str]] = {}
        self._directories: set[str] = set()
        self._left_out: list[str] = []

    def walk(self, without: Sequence[str]) -> None:
        """Take down every name."""
        pending = [""]
        while pending:
            directory = pending.pop()
            names: dict[str, str] = {}
            for one in self._listed(directory):
                path = f"{directory}/{one.name}" if directory else one.name
                self._want_name(path, one.name, names)
                if one.name in LEFT_OUT:
                    self._left_out.append(path)
                elif path in without:
                    continue
                elif one.is_dir(follow_symlinks=False):
                    self._directories.add(path)
                    pending.append(path)
                else:
                    self._files[path] = one
            if len(self._files) > MOST_FILES:
                self._refuse("", f"at most {MOST_FILES} files", "more")

    def tree(self) -> Tree:
        """Follow the links and read the files."""
        links = {path: self._target(path) for path, one in self._files.items() if one.is_symlink()}
        found = {}
        for path in sorted(self._files):
            if path in links:
                end = leads_to(path, links, self._directories, self._files)
                if end.flaw:
                    self._refuse(path, "a relative link to something in the tree", end.flaw)
                digest = sha256_hex(links[path].encode())
                found[path] = Entry(path, "link", digest, links[path], end.path)
            else:
                found[path] = self._file(path)
        left_out = tuple(sorted(self._left_out))
        return Tree(self._root, self._named, found, frozenset(self._directories), left_out)

    def _refuse(self, path: str, expected: str, found: str) -> NoReturn:
        refuse_tree(self._named / path, expected, found)

    def _unreadable(self, path: str, error: OSError) -> RefusedError:
        return unreadable(shown(str(self._named / path)), error)

    def _listed(self, directory: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(self._root / directory) as found:
                return sorted(found, key=lambda one: one.name)
        except OSError as error:
            raise self._unreadable(directory, error) from error

    def _want_name(self, path: str, name: str, names: dict[str, str]) -> None:
        """Refuse a name that another machine could not keep apart, or could not keep at all."""
        try:
            name.encode()
        except UnicodeEncodeError:
            self._refuse(path, "a name in UTF-8", f"the bytes {os.fsencode(name).hex(' ')}")
        if "\\" in name or any(ord(sign) < 32 for sign in name):
            expected = "a name without backslashes and control characters"
            self._refuse(path, expected, shown(repr(name)))
        if len(path) > _LONGEST:
            self._refuse(path, f"a path of at most {_LONGEST} characters", f"{len(path)}")
        folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())
        other = names.setdefault(folded, name)
        if other != name:
            both = " and ".join(shown(repr(one)) for one in sorted((other, name)))
            self._refuse(path, "names that differ in more than case or the form of accents", both)

    def _target(self, path: str) -> str:
        try:
            target = os.readlink(self._root / path)
            target.encode()
        except OSError as error:
            raise self._unreadable(path, error) from error
        except UnicodeEncodeError:
            self._refuse(path, "a link in UTF-8", "another encoding")
        return target

    def _file(self, path: str) -> Entry:
        place = self._root / path
        try:
            status = os.lstat(place)
            if not stat.S_ISREG(status.st_mode):
                self._refuse(path, "files, directories and links", _kind(status.st_mode))
            with os.fdopen(open_file(place), "rb", buffering=0) as stream:
                digest, mentions = self._read(stream)
        except OSError as error:
            raise self._unreadable(path, error) from error
        kind: Type = "program" if status.st_mode & stat.S_IXUSR else "file"
        return Entry(path, kind, digest, mentions=mentions)

    def _read(self, stream: io.RawIOBase) -> tuple[str, bool]:
        """Return sha256, and whether a needle is in it, also across two chunks."""
        digest, mentions, before = hashlib.sha256(), False, b""
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
            if not mentions:
                text = before + chunk if before else chunk
                mentions = any(one in text for one in self._needles)
                before = chunk[1 - self._longest :] if self._longest > 1 else b""
        return digest.hexdigest(), mentions


def _kind(mode: int) -> str:
    kinds = {
        stat.S_IFIFO: "a named pipe",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a character device",
        stat.S_IFBLK: "a block device",
    }
    return kinds.get(stat.S_IFMT(mode), "something else")
