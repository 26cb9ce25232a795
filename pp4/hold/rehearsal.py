"""A receiving host for a rehearsal: a temporary directory of this machine, one fence, no GPUs.

It has the shape of a real HOLD, so that what runs inside cannot tell: an id, a fence, a nonce, a
journal, processes that it owns and proves dead.
"""

from __future__ import annotations

import contextlib
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pp4.clock import Clock
from pp4.errors import Code, Refusal, RefusedError, UncleanError, reason_of
from pp4.hold.interruption import ended
from pp4.hold.journal import Journal
from pp4.hold.open import Grant, OpenHold
from pp4.receipts.admission import Admission
from pp4.transport.interface import Transport


@contextlib.contextmanager
def open_rehearsal(
    admission: Admission, transport: Transport, clock: Clock, parent: Path
) -> Iterator[OpenHold]:
    """Open a HOLD in a new temporary directory, close it and remove the directory.

    Args:
        admission: the admission of the rehearsal.
        transport: the way to this machine.
        clock: where deadlines come from.
        parent: where the directory goes.

    Raises:
        RefusedError: the directory cannot be made.
        UncleanError: something that was started is still alive; the directory stays.
    """
    try:
        directory = Path(tempfile.mkdtemp(prefix="pp4-rehearsal-", dir=parent))
    except OSError as error:
        raise RefusedError(
            Refusal(Code.UNWRITABLE, str(parent), "a new directory", reason_of(error))
        ) from error
    try:
        journal = Journal(directory / "journal.jsonl")
        hold = OpenHold(admission, transport, clock, _grant(clock), directory, journal)
    except BaseException:
        _remove(directory)
        raise
    by_signal = True
    try:
        yield hold
        by_signal = False
    except Exception:
        by_signal = False
        raise
    finally:
        ended(lambda: _put_away(hold), again=not by_signal)


def _grant(clock: Clock) -> Grant:
    return Grant(
        hold_id=secrets.token_hex(8),
        fence=1,
        nonce=secrets.token_hex(16),
        exclusion="private",
        boot_id=None,
        gpus=(),
        opened_at=clock.wall(),
        deadline=None,
    )


def _put_away(hold: OpenHold) -> None:
    """Close a HOLD and remove its directory."""
    hold.close()
    _remove(hold.directory)


def _remove(directory: Path) -> None:
    try:
        shutil.rmtree(directory)
    except FileNotFoundError:
        return
    except OSError as error:
        raise UncleanError(
            Refusal(
                Code.UNWRITABLE,
                str(directory),
                "a directory that can be removed",
                reason_of(error),
                left=str(directory),
            )
        ) from error
