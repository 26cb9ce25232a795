"""One reading of the kernel's list of processes: who is whose parent."""

from __future__ import annotations

import os
from collections.abc import Mapping, Set
from typing import NamedTuple

from pp4.errors import Code, Refusal, RefusedError, reason_of


class Status(NamedTuple):
    """What ``/proc/<pid>/stat`` says.

    Attributes:
        zombie: its first thread has ended; others may go on.
        parent: process id of its parent.
        session: process id of whoever began its session.
        token: start time in clock ticks since boot.
    """

    zombie: bool
    parent: int
    session: int
    token: str


def below(roots: Set[int], table: Mapping[int, Status], keep: Set[int]) -> set[int]:
    """Return ids below the roots, without the roots and without the subtrees to keep."""
    children: dict[int, list[int]] = {}
    for pid, status in table.items():
        children.setdefault(status.parent, []).append(pid)
    found: set[int] = set()
    left = list(roots - keep)
    while left:
        fresh = {*children.get(left.pop(), ())} - found - roots - keep
        found |= fresh
        left += fresh
    return found


def read_table() -> dict[int, Status]:
    """Read the status of every process, zombies included, by process id.

    Raises:
        RefusedError: ``UNREADABLE``: there is no ``/proc``.
    """
    try:
        names = os.listdir("/proc")
    except OSError as error:
        raise RefusedError(
            Refusal(Code.UNREADABLE, "/proc", "the kernel's list of processes", reason_of(error))
        ) from error
    found = {}
    for name in names:
        if name.isdecimal():
            status = _read(name)
            if status is not None:
                found[int(name)] = status
    return found


def _read(pid: str) -> Status | None:
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            # fields are counted from the end of the name, which may hold any bytes
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    if len(fields) < 20:
        return None
    token = fields[19].decode("ascii", "replace")
    return Status(fields[0] in (b"Z", b"X", b"x"), int(fields[1]), int(fields[3]), token)
