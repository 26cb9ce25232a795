"""What keeps a host in order: its directory, a view of what is there, and old things put away.

The parts lie in files of their own; whoever writes a command needs this one alone.
"""

from __future__ import annotations

import os
import shlex
import stat
from pathlib import Path

from pp4.errors import Code, Refusal, RefusedError
from pp4.hold.clearing import Cleared, clear, cleared_path
from pp4.hold.overview import Overview, SeenGpu, SeenHold, overview
from pp4.hold.places import SHARED, host_directory
from pp4.hold.pruning import prune
from pp4.hold.survey import Quarantine, Unreadable
from pp4.receipts.canonical import shown

__all__ = [
    "Cleared",
    "Overview",
    "Quarantine",
    "SeenGpu",
    "SeenHold",
    "Unreadable",
    "clear",
    "cleared_path",
    "init_host",
    "overview",
    "prune",
]

_DEFAULT = Path("/var/lib/pp4")
_MODE = 0o755
_LONG = 4096


def init_host(path: Path) -> tuple[str, ...]:
    """Make the host's directory of locks, fences and registrations, or check the one there is.

    Args:
        path: ``PP4_HOST_DIR``.

    Returns:
        One line for each directory: whether it was made or was there, and its mode.

    Raises:
        RefusedError: ``UNWRITABLE``: this process is not the administrator's, or a directory
            cannot be made; ``EXCLUSION``: what is there excludes nobody, or keeps users out.
    """
    if os.geteuid() != 0:
        raise _not_root(path)
    modes = {path: _MODE, **{path / name: mode for name, mode in SHARED.items()}}
    there = {directory for directory in modes if os.path.lexists(directory)}
    host_directory(path)
    for directory, mode in modes.items():
        _require_mode(directory, mode)
    return tuple(
        f"{'was there' if one in there else 'made'}: {shown(str(one), _LONG)}, mode {mode:04o}"
        for one, mode in modes.items()
    )


def _not_root(path: Path) -> RefusedError:
    again = "sudo pp4 host init"
    if path != _DEFAULT:
        # sudo keeps no variables
        again = f"sudo env PP4_HOST_DIR={shlex.quote(str(path))} pp4 host init"
    where, expected = shown(str(path)), "the administrator of the host (user 0)"
    return RefusedError(
        Refusal(Code.UNWRITABLE, where, expected, f"user {os.geteuid()}", next=again)
    )


def _require_mode(directory: Path, mode: int) -> None:
    """Refuse what lets the administrator in and keeps users out."""
    # whose group new files get is all the same
    found = stat.S_IMODE(directory.lstat().st_mode) & ~(stat.S_ISUID | stat.S_ISGID)
    if found == mode:
        return
    raise RefusedError(
        Refusal(
            Code.EXCLUSION,
            shown(str(directory)),
            f"mode {mode:04o}, the same for every user",
            f"mode {found:04o}",
            left="the directories of the host, as far as they were made",
            next=f"chmod {mode:04o} {shlex.quote(str(directory))}",
        )
    )
