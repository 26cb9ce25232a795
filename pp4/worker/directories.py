"""The directories of a worker: this user's, on this machine, made where there are none."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pp4.clock import Deadline, SystemClock
from pp4.config.file_systems import require_local
from pp4.errors import Code, Refusal, RefusedError
from pp4.receipts.canonical import shown
from pp4.wire.serving import Serve

AGAIN: Final = "export PP4_STATE_DIR=/absolute/path"
_LOCK_S: Final = 2.0
_TURN_S: Final = 0.01
_OURS: Final = "pair-"
_OPENED = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
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


@contextlib.contextmanager
def alone(directory: Path) -> Iterator[None]:
    """Keep other workers from looking at the same names meanwhile; nobody holds this for long.

    The directory itself is locked: a lock file would be one more thing that is left there, and the
    library that makes those makes directories too, which were to be refused.

    Raises:
        OSError: it cannot be opened, or somebody does hold it for long.
    """
    deadline = Deadline.after(SystemClock(), _LOCK_S)
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        while not _lock(descriptor, last=deadline.expired()):
            time.sleep(_TURN_S)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, *, last: bool) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        if last:
            raise
        return False
    return True


@contextlib.contextmanager
def of_this_run(state: Path) -> Iterator[Path]:
    """A new directory of this worker's ranks alone, gone with it.

    A worker that was killed leaves its own.  Those that are of nobody any more are taken away: the
    lock on one lives as long as the worker or a rank of it, which inherits it.

    Args:
        state: of all workers of this user, checked by :func:`prepare`.

    Raises:
        RefusedError: ``UNWRITABLE``.
    """
    try:
        with alone(state):
            for left in state.glob(f"{_OURS}*"):
                _sweep(left)
            path = Path(tempfile.mkdtemp(prefix=_OURS, dir=state))
            lock = os.open(path, _OPENED)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        where, found = f"directory of the worker's state {shown(str(state))}", error.strerror
        refusal = Refusal(Code.UNWRITABLE, where, "a new directory", found or str(error))
        raise RefusedError(refusal) from error
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def _sweep(left: Path) -> None:
    """Take a directory away, unless somebody holds it."""
    try:
        lock = os.open(left, _OPENED)
    except OSError:
        # it goes just now, or is no directory
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(left, ignore_errors=True)
    except BlockingIOError:
        return
    finally:
        os.close(lock)


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
