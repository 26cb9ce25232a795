"""The HOLD of a run as the command that asked for it has it: opened, and its close never lost."""

from __future__ import annotations

import contextlib
import getpass
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pp4.clock import SystemClock
from pp4.config.hold_file import HoldFile
from pp4.config.holds import HostCommand as Listed
from pp4.errors import Code, Pp4Error
from pp4.hold.around import DONE
from pp4.hold.deferred import Deferred
from pp4.hold.delivery import deliver
from pp4.hold.interruption import undisturbed
from pp4.hold.reach import Place
from pp4.hold.window import Watcher, Window, open_window
from pp4.wire.holds import Close, HostCommand, Open

REHEARSAL_GPUS = (
    "GPU-00000000-0000-4000-8000-000000000000",
    "GPU-00000000-0000-4000-8000-000000000001",
)
"""What a rehearsal holds where the HOLD file names no GPU: names that no driver gives."""
Note = Callable[[str], None]
"""Takes one line that is worth saying."""


def asked_of(
    file: HoldFile, command: str, source_digest: str, gpus: tuple[str, ...], **more: Any
) -> Open:
    """What a host is asked for by a HOLD file.

    Args:
        file: the HOLD file.
        command: as :class:`pp4.receipts.admission.Command` has it.
        source_digest: of the source that runs.
        gpus: UUIDs, rank 0 first.
        more: further members of :class:`pp4.wire.holds.Open`.
    """

    def commands(given: Sequence[Listed]) -> tuple[HostCommand, ...]:
        return tuple(HostCommand(argv=one.argv, limit_s=float(one.limit_s)) for one in given)

    return Open(
        command=command,
        source_digest=source_digest,
        gpus=gpus,
        coordinator=_asker(),
        transport=file.host.transport,
        ttl_s=float(file.ttl_s),
        bound_s=float(file.bound_s),
        state_dir=file.host.state_dir,
        host_dir=file.host.host_dir,
        quiesce=commands(file.quiesce),
        restore=commands(file.restore),
        **more,
    )


def _asker() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        # a container may run as a user that no file names
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def unnamed(tombstone: Mapping[str, Any]) -> dict[str, Any]:
    """A tombstone without what names the machine; the whole one stays on the host."""
    return {name: one for name, one in tombstone.items() if name not in ("gpus", "boot_id")}


@contextlib.contextmanager
def kept(
    place: Place, deferred: Deferred, asked: Open, watcher: Watcher, note: Note, option: str
) -> Iterator[Window]:
    """A window, made quiet, whose close is kept for later where it could not be delivered.

    Args:
        place: the host.
        deferred: where closes are kept.
        asked: what is asked for.
        watcher: who is told how the HOLD is.
        note: who is told what a person has to know of its end.
        option: what commands need that are to find this host again.
    """
    window: Window | None = None
    try:
        with open_window(
            place.host, place.program, asked, SystemClock(), watcher, option
        ) as window:
            window.quieten()
            yield window
    finally:
        if window is not None:
            say_unrestored(window.tombstone or {}, note)
        if window is not None and window.tombstone is None:
            granted = window.granted
            try:
                with undisturbed():
                    deferred.store(place.host.address, granted.hold, granted.fence, "cancelled")
                again = f"pp4 hold recover {granted.hold}{option}"
                note(f"the close of HOLD {granted.hold} is kept; how it ended: {again}")
            except Pp4Error as error:
                # what ended the run is said; that the close is not kept must not take its place
                note(f"the close of HOLD {granted.hold} is not kept: {error}")


def say_unrestored(tombstone: Mapping[str, Any], note: Note) -> None:
    """Say which restore commands did not end well: what they start is not running perhaps."""
    restored = tombstone.get("restored")
    for text in map(str, restored if isinstance(restored, list) else ()):
        if not text.endswith(f": {DONE}"):
            note(f"restore: {text}")


def deliver_kept(place: Place, file: HoldFile, deferred: Deferred, note: Note) -> None:
    """Deliver what could not be delivered to this host before; what still cannot stays."""
    for fault in deferred.faults():
        note(f"{fault.where}: {fault.found}")
    for one in deferred.pending(place.host.address):
        close = Close(hold=one.hold, fence=int(one.fence), why="cancelled")
        directories = (file.host.state_dir, file.host.host_dir)
        try:
            tombstone = deliver(
                place.host, place.program, close, directories, SystemClock(), file.restore_s
            )
        except Pp4Error as error:
            note(f"HOLD {one.hold} is not closed yet: {error}")
            if error.refusal.code is Code.UNKNOWN_HOLD:
                # its records were pruned there, which only an ended one's are
                deferred.delivered(one.hold)
            continue
        deferred.delivered(one.hold)
        note(f"HOLD {one.hold} is closed: {tombstone.get('why')}")
        say_unrestored(tombstone, note)
