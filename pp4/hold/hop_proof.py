"""What proves the far end of a hop over: asked of the far host, and of nobody else."""

from __future__ import annotations

from pp4.clock import Deadline, SystemClock
from pp4.errors import Code, Pp4Error, Refusal, UncleanError
from pp4.hold.delivery import deliver
from pp4.hold.hop_books import Ended, HopBook
from pp4.hold.reach import Place
from pp4.wire.facts import read
from pp4.wire.holds import Close
from pp4.wire.hops import Child

_NOBODY = {Code.LEASE_LOST, Code.CONNECTION_LOST, Code.STEP_TIMEOUT}


def prove(book: HopBook, place: Place, deadline: Deadline) -> Ended:
    """Have the child of a hop closed, or learn that there is none; its near step is dead.

    Args:
        book: the hop.
        place: the far host.
        deadline: of everything that is waited for.

    Raises:
        Pp4Error: it is not proven: what the far host says, or that it says nothing.
    """
    child = _child(book, place)
    granted = book.granted
    if granted is not None and child.boot_id != granted.boot_id:
        # no process outlives the kernel that it ran under
        return Ended(how="reboot", boot_id=child.boot_id)
    if child.hold is None and granted is None:
        # nor can one be opened from now on
        return Ended(how="never", boot_id=child.boot_id)
    hold = child.hold if granted is None else granted.hold
    if child.hold is None or hold != child.hold:
        where, found = f"far end of {book.recorded.label}", f"HOLD {child.hold}"
        raise UncleanError(Refusal(Code.UNKNOWN_HOLD, where, f"HOLD {hold}", found))
    close = Close(hold=child.hold, fence=child.fence, why="cancelled")
    try:
        tombstone = _closed(book, place, close, deadline)
    except Pp4Error as error:
        if error.refusal.code not in _NOBODY:
            raise
        # nobody serves it: where its processes are dead, this writes what it could not
        place.ask("pp4.hold.recovery", child.hold)
        tombstone = _closed(book, place, close, deadline)
    return Ended(how="tombstone", boot_id=child.boot_id, tombstone=tombstone)


def _child(book: HopBook, place: Place) -> Child:
    """Which child the far host has for this hop."""
    parent = book.recorded.asked.parent
    if parent is None:
        raise ValueError("a child has a parent")
    named = (parent.hold, str(parent.fence), str(parent.hop), parent.origin)
    gpus = book.recorded.asked.gpus
    return read(Child, place.ask("pp4.hold.children", *named, *gpus))


def _closed(book: HopBook, place: Place, close: Close, deadline: Deadline) -> dict[str, object]:
    directories = (book.recorded.login.state_dir, book.recorded.login.host_dir)
    left_s = deadline.remaining_s()
    return deliver(place.host, place.program, close, directories, SystemClock(), limit_s=left_s)
