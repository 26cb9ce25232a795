"""Which kind of file system a path lies on, by the kernel's own word."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pp4.errors import Code, Refusal, RefusedError
from pp4.receipts.canonical import shown

# linux/magic.h and the headers of ZFS; anything not listed may be a network's
LOCAL: Final[Mapping[int, str]] = {
    0xEF53: "ext",
    0x58465342: "xfs",
    0x9123683E: "btrfs",
    0xF2F52010: "f2fs",
    0x2FC12FC1: "zfs",
    0xCA451A4E: "bcachefs",
    0x3153464A: "jfs",
    0x52654973: "reiserfs",
    0x794C7630: "overlay",
    0x01021994: "tmpfs",
    0x858458F6: "ramfs",
}
"""File systems of this machine alone, by their magic numbers."""
_LIBC = ctypes.CDLL(None, use_errno=True)


def file_system(path: Path) -> int:
    """Return the magic number of the file system that a path lies on, by ``statfs(2)``.

    Raises:
        OSError: what the system says.
    """
    # f_type is the first member and one long wide on 64-bit Linux; the rest is not looked at
    answer = (ctypes.c_long * 64)()
    if _LIBC.statfs(os.fsencode(path), answer) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(path))
    return answer[0] & 0xFFFFFFFF


def require_local(path: Path, what: str, again: str) -> None:
    """Refuse a directory on a network or unknown file system.

    Args:
        path: an absolute path; where nothing is there yet, the nearest one above it is looked at.
        what: what the directory is for.
        again: what to set instead, as the next command.

    Raises:
        RefusedError: ``BAD_SETTING``.
    """
    there = next((one for one in (path, *path.parents) if os.path.exists(one)), Path("/"))
    try:
        magic = file_system(there)
    except OSError as error:
        found = error.strerror or str(error)
    else:
        if magic in LOCAL:
            return
        found = f"file system type 0x{magic:x}"
    expected = f"a local file system ({', '.join(LOCAL.values())})"
    where = f"{what} {shown(str(path))}"
    raise RefusedError(Refusal(Code.BAD_SETTING, where, expected, shown(found), next=again))
