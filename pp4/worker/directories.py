"""The directories of a worker: this user's, on this machine, made where there are none."""

from __future__ import annotations

import os
import shlex
import stat
from pathlib import Path
from typing import Final

from pp4.config.file_systems import require_local
from pp4.errors import Code, Refusal, RefusedError
from pp4.receipts.canonical import shown
from pp4.wire.serving import Serve

AGAIN: Final = "export PP4_STATE_DIR=/absolute/path"
_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def prepare(serve: Serve) -> None:
    """Make and check the directories of state and of compiled kernels.

    Kernels are loaded from the latter, so whoever may write there could run anything on the GPUs.

    Raises:
        RefusedError: ``BAD_SETTING``, on a network file system; ``EXCLUSION``, somebody else's or
            writable by others; ``UNWRITABLE``.
    """
    require_directory(Path(serve.state), "directory of the worker's state")
    require_directory(Path(serve.compiled), "directory of compiled kernels")


def prepare_socket(serve: Serve) -> None:
    """Make and check the directory of the socket; raises as :func:`prepare`."""
    again = "--socket PATH, in a directory of yours"
    require_directory(Path(serve.socket).parent, "directory of the socket", again)


def require_directory(path: Path, what: str, again: str = AGAIN) -> None:
    """Make and check one directory.

    Args:
        path: an absolute path.
        what: what it is for.
        again: how another one is chosen.

    Raises:
        RefusedError: see :func:`prepare`.
    """
    require_local(path, what, again)
    where = f"{what} {shown(str(path))}"
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = path.stat()
    except OSError as error:
        found = error.strerror or str(error)
        refusal = Refusal(Code.UNWRITABLE, where, "a directory", found, next=again)
        raise RefusedError(refusal) from error
    me, quoted = os.geteuid(), shlex.quote(str(path))
    if status.st_uid != me:
        expected, found = f"owner {me}", f"owner {status.st_uid}"
        raise RefusedError(Refusal(Code.EXCLUSION, where, expected, found, next=again))
    if status.st_mode & _OTHERS:
        expected, found = "writable by its owner alone", f"mode {stat.S_IMODE(status.st_mode):04o}"
        # one like /tmp is everybody's on purpose
        mend = again if status.st_mode & stat.S_ISVTX else f"chmod go-w {quoted}"
        raise RefusedError(Refusal(Code.EXCLUSION, where, expected, found, next=mend))
