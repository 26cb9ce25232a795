"""Processes named by pid and start token, since a pid alone may be somebody else's by now."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Owned:
    """A process that a HOLD started.

    Attributes:
        pid: process id.
        start_token: start time in clock ticks since boot, field 22 of ``/proc/<pid>/stat``.
        label: what it is for.
    """

    pid: int
    start_token: str
    label: str

    def alive(self) -> bool:
        """Whether this very process still runs; a zombie does not."""
        return start_token(self.pid) == self.start_token


def start_token(pid: int) -> str | None:
    """Return the start token of a running process, None where there is none or it is a zombie."""
    try:
        return token_in(Path(f"/proc/{pid}/stat").read_bytes())
    except OSError:
        return None


def token_in(stat: bytes) -> str | None:
    """Return the start token in the bytes of a ``/proc/<pid>/stat``, None for a zombie.

    The name in parentheses may hold any bytes, parentheses and broken text included, so fields
    are counted from its end: the state is field 3.
    """
    fields = stat.rpartition(b")")[2].split()
    if len(fields) < 20 or fields[0] in (b"Z", b"X", b"x"):
        return None
    return fields[19].decode("ascii", "replace")


def boot_id() -> str:
    """Return the kernel's id of this boot, ``unknown`` where it gives none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"
