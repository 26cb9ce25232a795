"""What the coordinator sees of processes and files by itself, without asking whoever it judges."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from pp4.hold.rehearsal import OpenHold

_PATH = 5
"""Fields of a line of ``/proc/<pid>/maps`` before the path."""


def _mapped(pid: int) -> Iterator[list[str]]:
    try:
        lines = Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()
    except OSError:
        return  # it is gone, and has nothing mapped
    for line in lines:
        fields = line.split(maxsplit=_PATH)
        if len(fields) > _PATH:
            yield fields


def shared_objects(pid: int) -> str:
    """Digest of which shared objects a process maps, by identity; empty where it maps none."""
    found = {" ".join(fields[3:]) for fields in _mapped(pid) if ".so" in fields[_PATH]}
    return hashlib.sha256("\n".join(sorted(found)).encode()).hexdigest() if found else ""


def owner_pid(hold: OpenHold) -> int:
    """Process of the product's owner, 0 where none runs."""
    owners = [
        one.pid
        for one in hold.running()
        if one.label.startswith("owner-") and "-rank-" not in one.label
    ]
    return min(owners, default=0)


def workspaces_on_disk(hold: OpenHold) -> tuple[str, ...]:
    """Workspaces of any owner of this HOLD that still have a name."""
    found = hold.directory.rglob("link-*")
    return tuple(sorted(str(path.relative_to(hold.directory)) for path in found))


def workspaces_mapped(hold: OpenHold) -> tuple[str, ...]:
    """Labels of live processes of this HOLD that map a workspace, also one without a name."""
    start = f"{hold.directory.resolve()}/"
    return tuple(
        owned.label
        for owned in hold.running()
        if any(
            fields[_PATH].startswith(start) and "/link-" in fields[_PATH]
            for fields in _mapped(owned.pid)
        )
    )


def compiled(hold: OpenHold) -> int:
    """Binaries in the compilers' caches of this HOLD."""
    return sum(1 for _ in hold.directory.rglob("*.cubin"))
