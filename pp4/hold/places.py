"""Directories whose files may be believed: local, nobody else's, reached through no link.

The host's directory belongs to its administrator (mode 0755), and so do the three directories in
it: ``gpu`` and ``fence`` (0777) and ``holds`` (1777).  Every user of the host can so take a lock.
The first two have no sticky bit, because their files are replaced by rename, which the bit would
forbid between users.  They keep apart those who want to be kept apart: whoever may open a GPU can
disturb what runs there without touching a file of pp4.
"""

from __future__ import annotations

import os
import shlex
import stat
from pathlib import Path

from pp4.config.file_systems import LOCAL, file_system
from pp4.errors import Code, Refusal, RefusedError
from pp4.hold.durable import flush_directory, linked, unwritable
from pp4.receipts.canonical import shown

SHARED = {"gpu": 0o777, "fence": 0o777, "holds": 0o1777}
"""What the host's directory holds, and the permissions with which it is made."""
_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def host_directory(path: Path, *, make: bool = True) -> bool:
    """Check the host's directory, and make it where this process is root's.

    Args:
        path: where it is.
        make: whether it may be made.

    Returns:
        Whether there is one.

    Raises:
        RefusedError: ``EXCLUSION``: there is one that excludes nobody; ``UNWRITABLE``.
    """
    root = os.geteuid() == 0
    if not os.path.lexists(path):
        if not (root and make):
            return False
        _make(path, 0o755, parents=True)
    _check(path, 0, "PP4_HOST_DIR")
    _check_parents(path)
    for name, mode in SHARED.items():
        below = path / name
        if root and not os.path.lexists(below):
            _make(below, mode)
        _check_shared(below)
    return True


def own_directory(path: Path) -> None:
    """Check a directory of this user, and make it where there is none.

    Raises:
        RefusedError: ``EXCLUSION``: it is somebody else's; ``UNWRITABLE``.
    """
    if not os.path.lexists(path):
        _make(path, 0o700, parents=True)
    _check(path, os.geteuid(), "PP4_STATE_DIR")


def _make(path: Path, mode: int, *, parents: bool = False) -> None:
    try:
        if parents:
            path.parent.mkdir(parents=True, exist_ok=True)
        try:
            path.mkdir(0o700)
        except FileExistsError:
            # somebody else made it meanwhile; it is checked like any other
            return
        # whatever the umask
        path.chmod(mode)
        flush_directory(path.parent)
    except OSError as error:
        raise unwritable(path, error, "a new directory") from error


def _status(path: Path) -> os.stat_result:
    try:
        status = path.lstat()
    except OSError as error:
        expected = "a directory of locks and fences"
        raise _refused(path, expected, error.strerror or str(error)) from error
    if stat.S_ISLNK(status.st_mode):
        raise linked(path)
    if not stat.S_ISDIR(status.st_mode):
        raise _refused(path, "a directory", "something else")
    return status


def _check(path: Path, owner: int, setting: str) -> None:
    status = _status(path)
    if status.st_uid != owner:
        raise _refused(path, f"owner {owner}", f"owner {status.st_uid}", f"chown {owner}", setting)
    if status.st_mode & _OTHERS:
        found = f"mode {stat.S_IMODE(status.st_mode):04o}"
        raise _refused(path, "writable by its owner alone", found, "chmod go-w")
    _check_local(path, setting)


def _check_local(path: Path, setting: str) -> None:
    try:
        magic = file_system(path)
    except OSError as error:
        found = error.strerror or str(error)
        raise _refused(path, "a file system", found, setting=setting) from error
    if magic not in LOCAL:
        expected = f"a local file system ({', '.join(LOCAL.values())})"
        raise _refused(path, expected, f"file system type 0x{magic:x}", setting=setting)


def _check_parents(path: Path) -> None:
    """Refuse a host's directory that somebody could put another one in the place of."""
    for above in path.resolve().parents:
        status = above.stat()
        kept = status.st_mode & stat.S_ISVTX
        if status.st_uid != 0 or (status.st_mode & _OTHERS and not kept):
            found = f"owner {status.st_uid}, mode {stat.S_IMODE(status.st_mode):04o}"
            raise _refused(above, "owner 0, writable by it alone", found)


def _check_shared(path: Path) -> None:
    status = _status(path)
    if status.st_uid != 0:
        raise _refused(path, "owner 0", f"owner {status.st_uid}", "chown 0")
    if path.name == "holds" and status.st_mode & _OTHERS and not status.st_mode & stat.S_ISVTX:
        found = f"mode {stat.S_IMODE(status.st_mode):04o}"
        raise _refused(path, "mode 1777", found, "chmod 1777")
    if not os.access(path, os.W_OK | os.X_OK):
        mode = SHARED[path.name]
        expected = f"mode {mode:04o}, for this user to write"
        found = f"mode {stat.S_IMODE(status.st_mode):04o}"
        raise _refused(path, expected, found, f"chmod {mode:04o}")
    _check_local(path, "PP4_HOST_DIR")


def _refused(
    path: Path, expected: str, found: str, repair: str = "", setting: str = "PP4_HOST_DIR"
) -> RefusedError:
    where = shown(str(path))
    again = f"export {setting}=/absolute/path"
    if repair:
        again = f"{repair} {shlex.quote(str(path))}"
    return RefusedError(Refusal(Code.EXCLUSION, where, expected, shown(found), next=again))
