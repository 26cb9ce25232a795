"""Closes that could not be delivered, kept by the coordinator until the host is reached again.

One file for each HOLD.  A close names exactly one HOLD and its fence, so that one which arrives
late, or twice, changes nothing else.
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

from pydantic import ValidationError

from pp4.errors import BadInputError, Code, Pp4Error, Refusal, RefusedError
from pp4.hold import durable
from pp4.receipts.canonical import parse, shown
from pp4.receipts.envelope import U64, Model, Text

CLOSES = "closes"
"""Where a coordinator keeps them, in its state directory."""
_ID = re.compile(r"[0-9a-f]{16}", re.ASCII)
_FILE = re.compile(r"[0-9a-f]{16}\.json", re.ASCII)


class Close(Model):
    """A close that has to be delivered.

    Attributes:
        address: the host that granted the HOLD.
        hold: its id.
        fence: the fence that it was granted.
        why: what its tombstone is to say.
    """

    address: Text
    hold: Text
    fence: U64
    why: Text


class Deferred:
    """The closes of one user.

    Args:
        directory: where they are; made with the first of them.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def store(self, address: str, hold_id: str, fence: int, why: str) -> None:
        """Keep a close, durably; the same one again changes at most its reason.

        Args:
            address: the host, as it is asked for in :meth:`pending`.
            hold_id: 16 lower-case hexadecimal digits.
            fence: the fence of the HOLD.
            why: what the tombstone is to say.

        Raises:
            BadInputError: an argument is out of its domain.
            RefusedError: ``EXISTS``: another host or fence is stored for this id; ``UNREADABLE``:
                its file is there and is no close, which is left as it is; ``EXCLUSION``: a
                symbolic link; ``UNWRITABLE``.
        """
        path = self._path(hold_id)
        try:
            close = Close(address=address, hold=hold_id, fence=str(fence), why=why)
        except ValidationError as error:
            first = error.errors()[0]
            where = f"a close: {'.'.join(map(str, first['loc']))}"
            raise BadInputError.of(where, first["msg"], shown((address, fence, why))) from error
        self._make()
        before = _read(path)
        if before is not None and (before.address, before.fence) != (address, str(fence)):
            expected = f"no close of another HOLD {hold_id} than fence {fence} of {address}"
            found = f"fence {before.fence} of {before.address}"
            raise RefusedError(
                Refusal(Code.EXISTS, shown(str(path)), shown(expected), shown(found))
            )
        durable.replace_object(path, close.model_dump(mode="json"), 0o600)

    def pending(self, address: str) -> tuple[Close, ...]:
        """Return the closes of a host that are not delivered; what is no close is passed over.

        Raises:
            RefusedError: ``UNREADABLE``: the directory cannot be read.
        """
        return tuple(close for close in self._read_all()[0] if close.address == address)

    def faults(self) -> tuple[Refusal, ...]:
        """Return what is to be said of files that are no closes; none of them is ever removed.

        Raises:
            RefusedError: as :meth:`pending`.
        """
        return tuple(self._read_all()[1])

    def delivered(self, hold_id: str) -> None:
        """Forget a close, durably; one that is not there, or is no close, is left as it is.

        Raises:
            BadInputError: no id of a HOLD.
            RefusedError: ``UNWRITABLE``.
        """
        path = self._path(hold_id)
        try:
            known = _read(path)
        except RefusedError:
            return
        if known is not None:
            durable.remove(path)

    def _path(self, hold_id: str) -> Path:
        if not _ID.fullmatch(hold_id):
            expected = "16 lower-case hexadecimal digits"
            raise BadInputError.of("the id of a HOLD", expected, shown(hold_id))
        return self._directory / f"{hold_id}.json"

    def _make(self) -> None:
        new = [path for path in (self._directory, *self._directory.parents) if not path.exists()]
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            for path in new:
                durable.flush_directory(path.parent)
        except OSError as error:
            raise durable.unwritable(self._directory, error, "a directory of closes") from error

    def _read_all(self) -> tuple[list[Close], list[Refusal]]:
        closes: list[Close] = []
        faults: list[Refusal] = []
        try:
            names = sorted(os.listdir(self._directory))
        except FileNotFoundError:
            return closes, faults
        except OSError as error:
            found = error.strerror or str(error)
            raise _unreadable(self._directory, "a directory of closes", found) from error
        for name in names:
            if not _FILE.fullmatch(name):
                # what a crash left of a file that was being written
                continue
            try:
                close = _read(self._directory / name)
            except RefusedError as error:
                faults.append(error.refusal)
                continue
            if close is not None:
                closes.append(close)
        return closes, faults


def _read(path: Path) -> Close | None:
    """Read one close, None where there is none.

    Raises:
        RefusedError: ``UNREADABLE``, it is no close of the HOLD that its name tells; or
            ``EXCLUSION``.
    """
    raw = durable.read(path)
    if raw is None:
        return None
    try:
        parse(raw, "a close")
        close = Close.model_validate_json(raw)
    except ValidationError as error:
        first = error.errors()[0]
        found = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise _unreadable(path, "a close", found) from error
    except Pp4Error as error:
        raise _unreadable(path, "a close", error.refusal.found) from error
    if f"{close.hold}.json" != path.name:
        raise _unreadable(path, f"a close of HOLD {path.stem}", f"one of HOLD {close.hold}")
    return close


def _unreadable(path: Path, expected: str, found: str) -> RefusedError:
    quoted = shlex.quote(str(path))
    again = f"mv {quoted} {quoted}.broken"
    return RefusedError(
        Refusal(Code.UNREADABLE, shown(str(path)), expected, shown(found), next=again)
    )
