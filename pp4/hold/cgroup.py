"""A cgroup of its own for one step, where this process may make one; nothing where it may not.

The kernel ends a cgroup of version 2 at once, whatever forks in it, and says when it is empty.
That helps where it is there; nothing here is ever a reason to refuse.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

from pp4.clock import Deadline

_MOUNTS = Path("/proc/self/mountinfo")
_MEMBERSHIP = Path("/proc/self/cgroup")
_NEEDED = ("cgroup.procs", "cgroup.kill", "cgroup.events")
_NAME = 200
_POLL_S = 0.01
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True, slots=True)
class Leaf:
    """A cgroup below that of this process.

    Attributes:
        path: its directory.
    """

    path: Path

    def enter(self) -> None:
        """Move this process inside; it stays outside, as without a leaf, where it may not.

        It is for a child between fork and exec, so that nothing the child starts is left outside.
        """
        # 0 is whoever writes
        _write(self.path / "cgroup.procs", b"0\n")

    def kill(self) -> bool:
        """Have the kernel kill everything inside; -> whether it took the order."""
        return _write(self.path / "cgroup.kill", b"1\n")

    def empty(self) -> bool:
        """Whether the kernel says that nothing lives inside; False where it says nothing."""
        try:
            return b"populated 0" in (self.path / "cgroup.events").read_bytes().splitlines()
        except FileNotFoundError:
            return not self.path.exists()
        except OSError:
            return False

    def remove(self, deadline: Deadline) -> bool:
        """Wait until nothing lives inside and remove it; -> whether it is gone.

        What was made below it is removed as well.
        """
        while not self.empty():
            if deadline.expired():
                return False
            time.sleep(_POLL_S)
        # a directory of this file system goes with the files in it, not with directories
        for inner in sorted(self.path.rglob("*/"), reverse=True):
            with contextlib.suppress(OSError):
                inner.rmdir()
        try:
            self.path.rmdir()
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True


def make_leaf(hold: str, label: str, *, root: Path | None = None) -> Leaf | None:
    """Make the cgroup ``pp4-<hold>-<label>`` below that of this process.

    Args:
        hold: id of the HOLD.
        label: the step, unique in its HOLD.
        root: where cgroups of version 2 are mounted; asked of the kernel where it is not given.

    Returns:
        None where there are no such cgroups, this process may not make one, the kernel cannot
        kill one (before 5.14), or one of that name is there already.
    """
    home = _home(root)
    if home is None:
        return None
    path = home / f"pp4-{_plain(hold)}-{_plain(label)}"[:_NAME]
    try:
        path.mkdir(mode=0o755)
    except OSError:
        return None
    if all(os.access(path / name, os.F_OK) for name in _NEEDED) and _takes_processes(path):
        return Leaf(path)
    with contextlib.suppress(OSError):
        path.rmdir()
    return None


def leaves(hold: str, *, root: Path | None = None) -> tuple[Leaf, ...]:
    """Return the cgroups of a HOLD that lie below that of this process, for whoever comes later."""
    home = _home(root)
    if home is None:
        return ()
    return tuple(Leaf(path) for path in sorted(home.glob(f"pp4-{_plain(hold)}-*/")))


def _home(root: Path | None) -> Path | None:
    """Return the directory of the cgroup that this process is in, if it may move children there."""
    mount = _mount() if root is None else root
    try:
        lines = _MEMBERSHIP.read_text().splitlines()
    except OSError:
        return None
    below = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), None)
    if mount is None or below is None or ".." in Path(below).parts:
        # outside of what a namespace shows
        return None
    home = mount / below
    try:
        inside = (home / "cgroup.procs").read_text().split()
    except (OSError, ValueError):
        return None
    # another mount, or another namespace: then it is the directory of somebody else
    if str(os.getpid()) not in inside:
        return None
    # moving a process takes the right to write where it comes from as well
    return home if os.access(home / "cgroup.procs", os.W_OK) else None


def _mount() -> Path | None:
    """Return where the first cgroup file system of version 2 is mounted."""
    try:
        lines = _MOUNTS.read_text(errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        before, dash, after = line.partition(" - ")
        if dash and after.split(" ", 1)[0] == "cgroup2":
            return Path(before.split(" ")[4])
    return None


def _takes_processes(path: Path) -> bool:
    """Whether a cgroup is of a type that whole processes may be in."""
    try:
        return (path / "cgroup.type").read_text().strip() in ("domain", "domain threaded")
    except FileNotFoundError:
        return True
    except OSError:
        return False


def _plain(text: str) -> str:
    return _NOT_IN_NAMES.sub("_", text)


def _write(path: Path, data: bytes) -> bool:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.write(descriptor, data) == len(data)
    except OSError:
        return False
    finally:
        os.close(descriptor)
