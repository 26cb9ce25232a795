"""Which files of a tree set a switch of the sampled path; every file that is no page is read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Final, NoReturn

from pp4.errors import Code, Refusal, RefusedError
from pp4.launch.pythons import PARTS, python_findings
from pp4.launch.texts import Finding, text_findings
from pp4.launch.trees import Entry, Tree

NEEDLES: Final = (
    *(part.encode() for part in (*PARTS, "SWITCHES")),
    *("SAMPLED_TOP32".encode(form) for form in ("utf-16-le", "utf-16-be")),
)
"""A file without any of these names no switch, neither whole nor in parts."""
PAGES: Final = (".md", ".rst")
"""Endings of documentation: what stands there is read by people and started by nobody."""
Read = tuple[str, str]
"""Path and sha256 of a file that was read."""
LIMIT: Final = 16 << 20
"""Largest file that is read for assignments; a longer one that names a switch refuses."""
_PYTHON: Final = re.compile(rb"#!.*python")
_NAMED: Final = re.compile(rb"SAMPLED_TOP32")


def want_switches_off(tree: Tree, known: frozenset[Read] = frozenset()) -> frozenset[Read]:
    """Hold a tree to files that set neither switch.

    Args:
        tree: surveyed with :data:`NEEDLES`.
        known: files that were read before and set none.

    Returns:
        Files that were read and set none, with those.

    Raises:
        RefusedError: ``SWITCH_SET``, with the first place and how many more there are.
    """
    read = set(known)
    found: list[Finding] = []
    for entry in tree.entries.values():
        # A link gives a file another name, and with it another reading.
        end = tree.entries.get(entry.leads_to) if entry.type == "link" else entry
        if end is None or not end.mentions or entry.path.lower().endswith(PAGES):
            continue
        if (entry.path, end.sha256) not in read:
            found += _in_file(tree, entry, end)
            read.add((entry.path, end.sha256))
    if found:
        first, *more = sorted(set(found))
        _refuse(tree, first, f" (and {len(more)} more)" if more else "")
    return frozenset(read)


def _in_file(tree: Tree, entry: Entry, end: Entry) -> Iterator[Finding]:
    try:
        raw = tree.content(end.path, LIMIT)
    except RefusedError as error:
        if error.refusal.code is not Code.TOO_LARGE:
            raise
        yield Finding(entry.path, 1, f"may name a switch and is longer than {LIMIT} bytes")
        return
    yield from launcher_findings(entry.path, raw)


def launcher_findings(path: str, raw: bytes) -> list[Finding]:
    """Return every place of a file that sets a switch, or that cannot be read.

    Args:
        path: its name, which says how it is read.
        raw: its bytes.
    """
    ending = PurePosixPath(path).suffix.lower()
    if ending in (".py", ".pyw", ".pyi") or _PYTHON.match(raw):
        return python_findings(path, raw)
    if b"\0" in raw:
        plain = raw.replace(b"\0", b"")
        return [Finding(path, 1, "names a switch and is no text")] if _NAMED.search(plain) else []
    # Names are ASCII in every encoding without zero bytes.
    return text_findings(path, raw.decode("utf-8", "replace"))


def _refuse(tree: Tree, finding: Finding, more: str) -> NoReturn:
    where = f"{tree.where(finding.path)}, line {finding.line}"
    expected = "both switches of the sampled path unset, or 0"
    found = f"{finding.what}{more}"
    raise RefusedError(Refusal(Code.SWITCH_SET, where, expected, found, "docs/prepare.md"))
