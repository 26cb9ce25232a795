"""What a process maps, as its host's kernel says it and not the process itself."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

PATH = 5
"""Fields of a line of ``/proc/<pid>/maps`` before the path."""


def mapped(pid: int) -> Iterator[list[str]]:
    """Fields of each line of its map that has a path; none where it is gone."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()
    except OSError:
        return  # it is gone, and has nothing mapped
    for line in lines:
        fields = line.split(maxsplit=PATH)
        if len(fields) > PATH:
            yield fields


def shared_objects(pid: int, outside: Path) -> str:
    """Digest of which shared objects a process maps, by identity; empty where it maps none.

    outside: a directory whose files are left out: what a compiler built for each rank.
    """
    start = f"{outside.resolve()}/"
    found = {
        " ".join(fields[3:])
        for fields in mapped(pid)
        if ".so" in fields[PATH] and not fields[PATH].startswith(start)
    }
    return hashlib.sha256("\n".join(sorted(found)).encode()).hexdigest() if found else ""
