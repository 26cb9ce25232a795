"""Where a symbolic link ends, by the texts of the links alone: nothing is followed on the disk."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

_MOST: Final = 40
"""Links on the way; Linux gives up at as many."""


@dataclass(frozen=True, slots=True)
class End:
    """Where a link ends.

    Attributes:
        path: in the tree; empty is its top.
        flaw: why it may not be staged, empty where it may.
    """

    path: str
    flaw: str = ""


def leads_to(
    link: str, links: Mapping[str, str], directories: Collection[str], files: Collection[str]
) -> End:
    """Follow a link within its tree.

    Args:
        link: its path.
        links: the text of every link of the tree, by path.
        directories: those of the tree, the top left out.
        files: everything that is no directory, links included.
    """
    at: list[str] = []
    pending = link.split("/")[::-1]
    followed = 0
    while pending:
        part = pending.pop()
        if part in ("", "."):
            continue
        if part == "..":
            if not at:
                return End("", f"{links[link]!r}, which leaves the tree")
            at.pop()
            continue
        at.append(part)
        here = "/".join(at)
        if here in links:
            followed += 1
            if followed > _MOST:
                return End("", f"{links[link]!r}, which leads back to itself")
            if links[here].startswith("/"):
                return End("", f"{links[here]!r}, which is absolute")
            at.pop()
            pending.extend(links[here].split("/")[::-1])
        elif here not in directories and (here not in files or any(pending)):
            return End("", f"{links[link]!r}, which ends nowhere in the tree")
    return End("/".join(at))
