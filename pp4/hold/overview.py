"""Every HOLD and every GPU of this host as they stand, for ``pp4 hold status``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pp4.clock import NS_PER_S, Clock
from pp4.errors import Pp4Error
from pp4.hold.exclusion import Exclusion
from pp4.hold.processes import Owned
from pp4.hold.records import Record, highest_granted
from pp4.hold.survey import (
    Quarantine,
    Unreadable,
    all_marked,
    closing_of,
    gpus_on_disk,
    holder_lives,
    quarantine_of,
    registrations,
    sighting,
    taken,
    tombstone_of,
)
from pp4.receipts.canonical import shown

State = Literal["open", "closing", "closed", "lost", "void"]


@dataclass(frozen=True, slots=True)
class SeenHold:
    """One HOLD.

    Attributes:
        hold: its id.
        command: what it was opened for.
        fence: what it was granted.
        gpus: UUIDs, rank 0 first.
        user: user id of its holder.
        since: when it was granted, in UTC.
        left_s: whole seconds until its deadline; None where it is closed or void.
        state: ``open``; ``closing``: its end has begun; ``closed``: it has a tombstone; ``lost``:
            open on disk, and its holder is dead; ``void``: open on disk, and of an earlier boot.
        why: why it is closing or closed, empty otherwise or where it is not told.
        alive: its processes that are seen; the holder is none of them.
        unproven: texts about what is neither seen nor proven dead.
        parent: the HOLD of another host that it is a child of, and the hop; empty for any other.
        exclusion: ``host`` or ``private``.
        directory: where its records lie.
    """

    hold: str
    command: str
    fence: int
    gpus: tuple[str, ...]
    user: int
    since: str
    left_s: int | None
    state: State
    why: str
    alive: tuple[str, ...]
    unproven: tuple[str, ...]
    parent: str
    exclusion: str
    directory: Path


@dataclass(frozen=True, slots=True)
class SeenGpu:
    """One GPU that some HOLD had or has.

    Attributes:
        gpu: its UUID.
        taken: whether its lock is held; None where that cannot be told.
        fence: the highest ever granted; None where it is lost.
        fault: why the fence is lost, empty where it is not.
        quarantine: what keeps it back, None where nothing does.
    """

    gpu: str
    taken: bool | None
    fence: int | None
    fault: str
    quarantine: Quarantine | None


@dataclass(frozen=True, slots=True)
class Overview:
    """What there is.

    Attributes:
        exclusion: ``host`` or ``private``.
        directory: where locks, fences and registrations are.
        holds: the oldest first.
        gpus: in the order of their UUIDs.
        unreadable: records that could not be read.
    """

    exclusion: str
    directory: Path
    holds: tuple[SeenHold, ...]
    gpus: tuple[SeenGpu, ...]
    unreadable: tuple[Unreadable, ...]


def overview(exclusion: Exclusion, state_dir: Path, clock: Clock) -> Overview:
    """Look at every HOLD and every GPU; nothing is changed and no lock is kept.

    Args:
        exclusion: the locks, fences and registrations.
        state_dir: this user's; private HOLDs from before the host had a directory lie there.
        clock: for the time that is left.

    Raises:
        RefusedError: ``EXCLUSION``: the directories of locks and fences cannot be read.
    """
    marked = all_marked()
    places = [exclusion]
    if state_dir != exclusion.directory:
        places.append(Exclusion(state_dir, "private", exclusion.boot_id))
    holds: list[SeenHold] = []
    faults: list[Unreadable] = []
    shared: list[Record] = []
    for place in places:
        records, unreadable = registrations(place.holds)
        shared = shared if place is not exclusion else records
        faults += unreadable
        for record in records:
            holds.append(_hold(place, record, marked, clock, faults))
    gpus = tuple(_gpu(exclusion, gpu, shared) for gpu in gpus_on_disk(exclusion, shared))
    holds.sort(key=lambda seen: (seen.since, seen.fence, seen.hold))
    return Overview(exclusion.kind, exclusion.directory, tuple(holds), gpus, tuple(faults))


def _hold(
    exclusion: Exclusion,
    record: Record,
    marked: Mapping[str, Sequence[Owned]],
    clock: Clock,
    faults: list[Unreadable],
) -> SeenHold:
    found = record.registration
    state, why = _state(exclusion, record, faults)
    theirs = marked.get(found.hold, ())
    alive, unproven = tuple(map(str, theirs)), tuple[str, ...]()
    left_s = None
    if state not in ("closed", "void"):
        seen = sighting(exclusion, record, theirs)
        alive, unproven = tuple(map(str, seen.alive)), seen.unproven
        left_s = max(0, int(found.deadline_boottime_ns) - clock.boottime_ns()) // NS_PER_S
    return SeenHold(
        hold=found.hold,
        command=found.command,
        fence=int(found.fence),
        gpus=found.gpus,
        user=found.coordinator.uid,
        since=found.opened_at,
        left_s=left_s,
        state=state,
        why=why,
        alive=alive,
        unproven=unproven,
        parent="" if found.parent is None else str(found.parent),
        exclusion=found.exclusion,
        directory=record.directory,
    )


def _state(exclusion: Exclusion, record: Record, faults: list[Unreadable]) -> tuple[State, str]:
    if record.closed:
        return "closed", _why_closed(record, faults)
    if record.registration.boot_id != exclusion.boot_id:
        return "void", ""
    lives = holder_lives(exclusion, record)
    if (record.directory / "closed.json").exists():
        # it ended while it was looked at: its tombstone was there before its holder was gone
        return "closed", _why_closed(record, faults)
    if record.closing:
        why = closing_of(record.directory).get("why")
        return "closing", shown(why) if isinstance(why, str) else ""
    return ("open" if lives else "lost"), ""


def _why_closed(record: Record, faults: list[Unreadable]) -> str:
    try:
        tombstone = tombstone_of(record.directory)
    except Pp4Error as error:
        faults.append(Unreadable(record.directory / "closed.json", error.refusal.found))
        return ""
    return "" if tombstone is None else shown(tombstone.why)


def _gpu(exclusion: Exclusion, gpu: str, records: Sequence[Record]) -> SeenGpu:
    fence, fault = None, ""
    try:
        fence = exclusion.highest_fence(gpu, highest_granted(records, gpu))
    except Pp4Error as error:
        fault = error.refusal.found
    return SeenGpu(
        gpu,
        taken(exclusion.lock_path(gpu)),
        fence,
        fault,
        quarantine_of(exclusion, gpu),
    )
