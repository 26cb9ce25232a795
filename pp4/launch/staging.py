"""A directory that is built beside its name and gets it whole, or goes.

What a killed run leaves is a directory named :data:`PREFIX`, the output's name, a token and
:data:`ENDING`; the next run for the same output takes it away, unless its run still lives.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from pp4.errors import Code, Pp4Error, Refusal, RefusedError
from pp4.receipts.canonical import shown

PREFIX: Final = ".pp4-prepare."
ENDING: Final = ".unfinished"
_TAKEN: Final = frozenset({errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR})
_KEPT: Final = 100
_TRIES: Final = 10


class Staging:
    """A directory under construction.

    Args:
        out: the name that it gets.
        place: where it is until then.
        identity: its status, by which it is known under either name.
        swept: what killed runs had left here, and was taken away.
    """

    def __init__(
        self, out: Path, place: Path, identity: os.stat_result, swept: tuple[str, ...]
    ) -> None:
        self.out, self.place, self.swept = out, place, swept
        self._identity = identity
        self._made = {place}

    def write(self, path: str, *, program: bool = False) -> int:
        """Create a file and return its descriptor; of its mode the umask decides all but one bit.

        Raises:
            OSError: it cannot be made.
        """
        place = self._place(path)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(place, flags, 0o777 if program else 0o666)

    def link(self, path: str, target: str) -> None:
        """Create a symbolic link.

        Raises:
            OSError: it cannot be made.
        """
        os.symlink(target, self._place(path))

    def _place(self, path: str) -> Path:
        place = self.place / path
        if place.parent not in self._made:
            place.parent.mkdir(parents=True, exist_ok=True)
            self._made.add(place.parent)
        return place

    def publish(self) -> None:
        """Give the directory its name, once everything in it has reached the disk.

        Raises:
            RefusedError: ``EXISTS``; ``UNWRITABLE``.
        """
        # A flush for each of ten thousand files would take longer than all the rest.
        os.sync()
        try:
            # Of a directory this can only replace an empty one, and that was not there before.
            os.rename(self.place, self.out)
            _flush(self.out.parent)
        except BaseException as error:
            if self._has_its_name():
                os.rename(self.out, self.place)
            if isinstance(error, OSError):
                if error.errno in _TAKEN:
                    raise _exists(self.out) from None
                raise unwritable(self.out, error) from error
            raise

    def _has_its_name(self) -> bool:
        """Whether what has the output's name is this directory, and not somebody else's."""
        try:
            return os.path.samestat(os.lstat(self.out), self._identity)
        except OSError:
            return False


@contextlib.contextmanager
def staging(out: Path) -> Iterator[Staging]:
    """Make a directory that becomes ``out`` when it is published, and goes when it is not.

    Raises:
        RefusedError: ``EXISTS``, something has that name; ``UNWRITABLE``.
    """
    if os.path.lexists(out):
        raise _exists(out)
    try:
        swept = _sweep(out)
        place, lock = _made(out)
    except OSError as error:
        raise unwritable(out, error) from error
    one = Staging(out, place, os.fstat(lock), swept)
    try:
        yield one
    except BaseException as error:
        left = _taken_away(place)
        if left and isinstance(error, Pp4Error):
            raise type(error)(replace(error.refusal, left=left)) from error
        raise
    finally:
        os.close(lock)


def unwritable(where: Path, error: OSError) -> RefusedError:
    """Return the refusal of what cannot be written."""
    found = shown(error.strerror or str(error))
    expected = "a directory that takes new files"
    return RefusedError(Refusal(Code.UNWRITABLE, shown(str(where)), expected, found))


def _exists(out: Path) -> RefusedError:
    expected = "no file or directory of that name: nothing is written over"
    return RefusedError(Refusal(Code.EXISTS, shown(str(out)), expected, "one that is there"))


def _start(out: Path) -> str:
    return f"{PREFIX}{out.name[:_KEPT]}."


def _made(out: Path) -> tuple[Path, int]:
    """Return a new directory, and the descriptor that holds its lock."""
    for _ in range(_TRIES):
        place = out.parent / f"{_start(out)}{secrets.token_hex(8)}{ENDING}"
        os.mkdir(place)
        # Another run may have swept it away before it was locked.
        lock = _locked(place)
        if lock is not None:
            return place, lock
    raise OSError(errno.EBUSY, "directories are taken away as soon as they are made")


def _locked(place: Path) -> int | None:
    """Lock a directory; None where somebody else has it, or it is another one by now."""
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), os.lstat(place)):
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _sweep(out: Path) -> tuple[str, ...]:
    """Take away what killed runs of this user have left beside ``out``; -> their names."""
    swept = []
    with os.scandir(out.parent) as found:
        names = [one.name for one in found]
    for name in sorted(names):
        if not (name.startswith(_start(out)) and name.endswith(ENDING)):
            continue
        place = out.parent / name
        status = os.lstat(place)
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            continue
        lock = _locked(place)
        if lock is None:
            continue  # its run lives
        try:
            shutil.rmtree(place)
            swept.append(name)
        finally:
            os.close(lock)
    return tuple(swept)


def _taken_away(place: Path) -> str:
    """Remove a directory; -> what is left of it, empty where nothing is."""
    try:
        shutil.rmtree(place)
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"{shown(str(place))}: {shown(error.strerror or str(error))}"
    return ""


def _flush(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
