"""HOLDs whose coordinator ended without a word: proven dead, or their GPUs are kept back.

Nothing is killed here.  What a dead coordinator had started ends by itself, because its input
ends; what does not is for an operator to look at.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pp4.clock import Clock, Deadline, SystemClock
from pp4.errors import Code, Refusal, RefusedError
from pp4.hold import durable, processes
from pp4.hold.chained import processes_in, read_chained
from pp4.hold.exclusion import Exclusion
from pp4.hold.guard import ENDED, GUARD
from pp4.hold.hop_sweep import hops_left, vouched_for
from pp4.hold.processes import Owned
from pp4.hold.records import Record, Tombstone, write
from pp4.receipts.journal import head

_SETTLE_S = 10.0
_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class _Proof:
    """What is known of the processes of a HOLD: alive, or neither that nor proven dead."""

    alive: tuple[str, ...]
    unproven: tuple[str, ...]


def sweep(
    exclusion: Exclusion, names: Sequence[str], records: Sequence[Record], clock: Clock
) -> tuple[str, ...]:
    """Bury HOLDs of these GPUs that have no tombstone; only under the locks of the GPUs.

    A HOLD with hops is not buried before their far ends are proven over too.

    Args:
        exclusion: where the HOLDs are.
        names: those whose locks are held: of GPUs, or of an origin's children.
        records: every HOLD.
        clock: for the time of day in a tombstone.

    Returns:
        Ids of the HOLDs that were found without a tombstone.

    Raises:
        RefusedError: ``QUARANTINED``: a process is alive, or cannot be proven dead; ``HELD_BY``:
            the coordinator itself lives, so that its lock was taken from it; ``UNWRITABLE``.
    """
    open_ones = [r for r in records if not r.closed and set(names) & set(r.registration.names)]
    for record in open_ones:
        _bury(exclusion, record, clock)
    return tuple(record.registration.hold for record in open_ones)


def _bury(exclusion: Exclusion, record: Record, clock: Clock) -> None:
    found = record.registration
    if found.boot_id != exclusion.boot_id:
        # no process outlives the kernel that it ran under; one of another host does
        _require_over(exclusion, record, _Proof((), ()))
        _write_tombstone(exclusion, record, "host_reboot", clock)
        return
    same_namespace = found.coordinator.pid_namespace == processes.namespace()
    # one that is at its end lets its locks go when it is over; a child has none to tell that by
    serves = not record.closing or found.parent is not None
    if same_namespace and serves:
        if _lives_on(record.coordinator):
            raise held_by(record, found.gpus[0], clock)
        if os.path.lexists(record.directory / "closed.json"):
            # it got to its end meanwhile, and knows better how
            return
    _require_over(exclusion, record, _settled(record, same_namespace))
    _write_tombstone(exclusion, record, "abandoned", clock)


def _require_over(exclusion: Exclusion, record: Record, proof: _Proof) -> None:
    """Keep the GPUs of a HOLD back where anything of it, here or elsewhere, may be alive."""
    # a quarantine that somebody took away is an operator's word for what cannot be proven here;
    # it is no word for what is seen alive
    left: tuple[str, ...] = ()
    if proof.alive or not record.kept_back:
        left = (*proof.alive, *proof.unproven)
    # while something lives here, the near end of a hop may be what lives
    if not proof.alive:
        vouched = vouched_for(exclusion, record)
        left += tuple(text for text in hops_left(record) if text not in vouched)
    if left:
        found = record.registration
        exclusion.quarantine(found.gpus, found.hold, left)
        _mark_closing(record, left)
        raise exclusion.quarantined(found.gpus[0], f"{', '.join(left)} of HOLD {found.hold}")


def _lives_on(coordinator: Owned) -> bool:
    """Whether a coordinator whose locks are free is still there after a while.

    One that is killed loses its locks a moment before it is gone.
    """
    deadline = Deadline.after(SystemClock(), _SETTLE_S)
    while coordinator.alive():
        if deadline.expired():
            return True
        time.sleep(_POLL_S)
    return False


def _settled(record: Record, same_namespace: bool) -> _Proof:
    """Give what ends by itself the time to do so; -> what is left then."""
    hold = record.registration.hold
    if not same_namespace:
        return _Proof((), (f"processes of another pid namespace, HOLD {hold}",))
    registered, fault = processes_in(read_chained(record.directory / "procs.jsonl"))
    unproven: tuple[str, ...] = ()
    if fault:
        unproven = (f"{record.directory / 'procs.jsonl'}: {fault}",)
    deadline = Deadline.after(SystemClock(), _SETTLE_S)
    while True:
        known = {owned.pid: owned for owned in registered if owned.alive()}
        others = {owned.pid: owned for owned in processes.marked(hold)}
        alive = tuple(str(owned) for owned in {**others, **known}.values())
        if not alive or deadline.expired():
            break
        time.sleep(_POLL_S)
    unproven += tuple(str(owned) for owned in registered if processes.hidden(owned.pid))
    work = Path(record.registration.journal).parent / "work"
    unproven += tuple(
        f"what {owned} had started"
        for owned in registered
        # of another user's nothing can be seen, which proves nothing
        if owned.label.startswith(GUARD) and not os.path.exists(work / f"{owned.label}{ENDED}")
    )
    return _Proof(alive, unproven)


def _mark_closing(record: Record, left: Sequence[str]) -> None:
    tree = {"hold": record.registration.hold, "why": "abandoned", "survivors": list(left)}
    try:
        durable.replace_object(record.directory / "closing.json", tree)
    except RefusedError:
        # another user's HOLD: the quarantine says it as well
        return


def _write_tombstone(exclusion: Exclusion, record: Record, why: str, clock: Clock) -> None:
    found = record.registration
    tombstone = Tombstone(
        hold=found.hold,
        fence=found.fence,
        gpus=found.gpus,
        why=why,
        journal_head=_journal_head(record),
        survivors=(),
        boot_id=exclusion.boot_id,
        closed_at=moment(clock.wall()),
        closed_by=os.getpid(),
    )
    try:
        write(record.directory / "closed.json", tombstone)
    except RefusedError:
        # another user's HOLD: the proof is made anew each time, until its user writes this; and
        # one whose records are gone meanwhile needs none
        if _ours(record.directory):
            raise


def _ours(directory: Path) -> bool:
    try:
        return directory.stat().st_uid == os.geteuid()
    except FileNotFoundError:
        return False


def _journal_head(record: Record) -> str | None:
    journal = read_chained(Path(record.registration.journal))
    return None if journal.fault else head(journal.lines)


def moment(at: datetime) -> str:
    """Return a time of day in UTC, to the second, as receipts spell it."""
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def held_by(record: Record, gpu: str, clock: Clock) -> RefusedError:
    """Return the refusal of a GPU that another HOLD has."""
    found = record.registration
    left_s = max(0, int(found.deadline_boottime_ns) - clock.boottime_ns()) // 10**9
    return RefusedError(
        Refusal(
            Code.HELD_BY,
            gpu,
            "a GPU that no HOLD has",
            f"HOLD {found.hold}, fence {found.fence}, since {found.opened_at}, "
            f"pid {found.coordinator.pid} of user {found.coordinator.uid}, "
            f"at most {left_s} s left",
        )
    )
