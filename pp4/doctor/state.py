"""Checks of the directories that hold fences, locks and journals."""

from __future__ import annotations

import re
from pathlib import Path

from pp4.doctor.model import Check, Status
from pp4.doctor.probes import Probes

#: File systems where a lock or a rename of one machine may not be what another one sees.
NOT_LOCAL = frozenset(
    {
        *("9p", "afs", "beegfs", "ceph", "cifs", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs"),
        *("nfs", "nfs4", "ocfs2", "orangefs", "smb3", "smbfs", "virtiofs", "wekafs"),
    }
)


def check_directory(probes: Probes, name: str, path: Path, needed_for: str, private: bool) -> Check:
    """Look at a directory of state: is it there, whose is it, who may write, is it local.

    Args:
        probes: the machine.
        name: what the directory is for.
        path: absolute.
        needed_for: the commands that depend on it.
        private: whether it belongs to this user alone (otherwise root may own it).
    """
    facts = probes.facts(path)
    kind = filesystem(probes.read(Path("/proc/self/mountinfo")) or "", probes.real(path))
    if facts is None:
        found = f"{path} does not exist yet, on {kind}"
        if private:
            return Check(name, Status.OK, found, needed_for)
        todo = "make it as the administrator; a private one works too, and receipts say so"
        return Check(name, Status.MISSING, found, needed_for, todo)
    found = f"{path}: {facts.kind}, owner {facts.owner}, mode {facts.mode:04o}, on {kind}"
    owners = {probes.user()} if private else {0, probes.user()}
    status, todo = Status.OK, ""
    if facts.kind != "directory":
        status, todo = Status.FAIL, f"replace {path} by a real directory, no symbolic link"
    elif facts.owner not in owners:
        status, todo = Status.FAIL, f"give {path} to user {probes.user()}"
    elif facts.mode & 0o002 and not facts.mode & 0o1000:
        status, todo = Status.FAIL, f"chmod o-w {path}: anybody may replace a fence there"
    elif private and facts.mode & 0o077:
        status, todo = Status.WARN, f"chmod 700 {path}"
    elif not is_local(kind):
        status, todo = Status.FAIL, "use a directory on a local disk; locks need one"
    return Check(name, status, found, needed_for, todo)


def is_local(kind: str) -> bool:
    """Whether locks and renames on this type of file system mean what they should."""
    return kind not in NOT_LOCAL and not kind.startswith("fuse")


def filesystem(mountinfo: str, path: Path) -> str:
    """Return the type of the file system that holds ``path``.

    Args:
        mountinfo: text of ``/proc/self/mountinfo`` (proc(5)).
        path: absolute, without symbolic links; it need not exist.

    Returns:
        The type of the longest mount point above the path, the last one where several are
        stacked; ``unknown`` where the text names none.
    """
    best, kind = -1, "unknown"
    for line in mountinfo.splitlines():
        left, dash, right = line.partition(" - ")
        fields = left.split(" ")
        if not dash or len(fields) < 5 or not right:
            continue
        # Octal escapes stand for blanks, tabs, newlines and backslashes.
        point = Path(re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), fields[4]))
        depth = len(point.parts)
        if depth >= best and (point == path or point in path.parents):
            best, kind = depth, right.split(" ")[0]
    return kind
