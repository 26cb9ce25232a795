"""Processes named by pid and start token, since a pid alone may be somebody else's by now."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path

COOKIE = "PP4_HOLD"
"""Variable by which whatever a HOLD starts, and whatever that starts, names its HOLD."""


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

    def signal(self, number: int) -> None:
        """Send a signal to this very process; none where it is gone or may not be signalled."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except OSError:
            return
        try:
            # the descriptor stays with the process that has the id now; is it the one meant?
            if self.alive():
                signal.pidfd_send_signal(descriptor, number)
        except (ProcessLookupError, PermissionError):
            return
        finally:
            os.close(descriptor)

    def __str__(self) -> str:
        return f"{self.label} (pid {self.pid}, start {self.start_token})"


def start_token(pid: int) -> str | None:
    """Return the start token of a running process, None where there is none or it is a zombie.

    A process whose first thread has ended looks like a zombie while its other threads go on.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
        token = token_in(stat)
        if token is None and len(os.listdir(f"/proc/{pid}/task")) > 1:
            return _field(stat, 22)
    except OSError:
        return None
    return token


def token_in(stat: bytes) -> str | None:
    """Return the start token in the bytes of a ``/proc/<pid>/stat``, None for a zombie.

    The name in parentheses may hold any bytes, parentheses and broken text included, so fields
    are counted from its end: the state is field 3.
    """
    return None if _field(stat, 3) in (None, "Z", "X", "x") else _field(stat, 22)


def _field(stat: bytes, number: int) -> str | None:
    fields = stat.rpartition(b")")[2].split()
    return fields[number - 3].decode("ascii", "replace") if len(fields) >= 20 else None


def boot_id() -> str:
    """Return the kernel's id of this boot, ``unknown`` where it gives none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"


def namespace() -> str:
    """Return the kernel's name of this process's namespace of process ids.

    A pid says nothing in another one: there it is absent, or somebody else's.
    """
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return "unknown"


def marked(hold_id: str) -> tuple[Owned, ...]:
    """Return processes that were started under a HOLD, whether or not they are in its books.

    A coordinator may be killed between the start of a process and its registration, and what was
    started may start more.  Processes whose environment may not be read are passed over.
    """
    # an empty answer twice: a process may fork and end while the list is being read
    return _carrying(f"{COOKIE}={hold_id}".encode()) or _carrying(f"{COOKIE}={hold_id}".encode())


def _carrying(mark: bytes) -> tuple[Owned, ...]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark not in (entry / "environ").read_bytes().split(b"\0"):
                continue
        except OSError:
            continue
        pid = int(entry.name)
        token = start_token(pid)
        if token is not None:
            found.append(Owned(pid, token, "unregistered"))
    return tuple(found)


def hidden(pid: int) -> bool:
    """Whether a process of this id exists whose status this process may not read."""
    if start_token(pid) is not None:
        return False
    try:
        os.kill(pid, 0)
    except PermissionError:
        return not Path(f"/proc/{pid}").exists()
    except OSError:
        return False
    return False
