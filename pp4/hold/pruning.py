"""The end of old records: HOLDs that are over for long, and never what a fence rests on."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from pp4.clock import Clock
from pp4.errors import BadInputError, Code, Pp4Error, RefusedError
from pp4.hold import durable
from pp4.hold.exclusion import Exclusion
from pp4.hold.records import Record
from pp4.hold.restoring import pending
from pp4.hold.survey import gpus_on_disk, quarantine_of, registrations, tombstone_of

_LAST = "closed.json"


def prune(
    exclusion: Exclusion,
    state_dir: Path,
    older_than: timedelta,
    clock: Clock,
    dry_run: bool = False,
) -> tuple[Path, ...]:
    """Remove this user's HOLDs whose tombstone is older than a span.

    What stays whatever its age: a HOLD without a tombstone, the one with the highest fence of a
    GPU, one that a quarantine names, one whose restore commands were not run, and one whose GPUs
    are held at this moment.

    Args:
        exclusion: where the HOLDs are.
        state_dir: this user's; the journals of these HOLDs go too.
        older_than: how old, by the time of day at which they were closed.
        clock: for the time of day.
        dry_run: say what would go, and leave it.

    Returns:
        The directories that went, or would go.

    Raises:
        BadInputError: a negative span.
        RefusedError: ``EXCLUSION``; ``UNWRITABLE``: one could not be removed.
    """
    if older_than < timedelta(0):
        raise BadInputError.of("older_than", "a span that is not negative", str(older_than))
    records, _ = registrations(exclusion.holds)
    kept = _kept(exclusion, records)
    now = clock.wall()
    gone: list[Path] = []
    for record in records:
        if record.registration.hold in kept or not _ours(record.directory):
            continue
        age = _age(record, now)
        if age is None or age <= older_than:
            continue
        places = _places(record, state_dir)
        if any(pending(place) for place in places):
            continue
        if dry_run or _remove(exclusion, record, places, gone):
            gone += places
    if not dry_run:
        _remove_rests(exclusion.holds, gone)
    return tuple(gone)


def _kept(exclusion: Exclusion, records: Sequence[Record]) -> set[str]:
    """Ids of HOLDs that something rests on."""
    kept: set[str] = set()
    names = {name for record in records for name in record.registration.names}
    for gpu in names.union(gpus_on_disk(exclusion, records)):
        theirs = [record for record in records if gpu in record.registration.names]
        # of all users: without it a lost fence would look like one that never was
        highest = max((int(record.registration.fence) for record in theirs), default=0)
        kept |= {r.registration.hold for r in theirs if int(r.registration.fence) == highest}
        quarantine = quarantine_of(exclusion, gpu)
        if quarantine is not None:
            kept.add(quarantine.hold)
    return kept


def _age(record: Record, now: datetime) -> timedelta | None:
    """How long a HOLD has been over, None where it is not or its tombstone cannot be read."""
    try:
        tombstone = tombstone_of(record.directory)
    except Pp4Error:
        return None
    return None if tombstone is None else now - datetime.fromisoformat(tombstone.closed_at)


def _ours(directory: Path) -> bool:
    try:
        return directory.lstat().st_uid == os.geteuid()
    except FileNotFoundError:
        return False


def _places(record: Record, state_dir: Path) -> list[Path]:
    """Where a HOLD lies: its journal and its work first, since its records tell of them."""
    own = state_dir / "holds" / record.directory.name
    places = [own] if own != record.directory and own.is_dir() and not own.is_symlink() else []
    return [*places, record.directory]


def _remove(
    exclusion: Exclusion, record: Record, places: Sequence[Path], gone: Sequence[Path]
) -> bool:
    """Remove a HOLD; -> False where its GPUs are held: whoever has them may be reading it."""
    *own, public = places
    try:
        with exclusion.locked(record.registration.names):
            for place in own:
                shutil.rmtree(place)
            # from here on nobody takes the rest for a HOLD
            durable.remove(public / "registration.json")
        _remove_rest(public)
    except FileNotFoundError:
        # another prune of this user is at the same directory
        return False
    except RefusedError as error:
        if error.refusal.code is Code.HELD_BY:
            return False
        raise RefusedError(replace(error.refusal, left=_left(gone))) from error
    except OSError as error:
        raise _stuck(public, error, gone) from error
    return True


def _stuck(directory: Path, error: OSError, gone: Sequence[Path]) -> RefusedError:
    refusal = durable.unwritable(directory, error, "a HOLD that can be removed").refusal
    return RefusedError(replace(refusal, left=_left(gone)))


def _left(gone: Sequence[Path]) -> str:
    return f"everything but {len(gone)} directories that went before it"


def _remove_rest(directory: Path) -> None:
    """Remove a directory, its tombstone last: by it the next one knows what a kill left of it."""
    with os.scandir(directory) as entries:
        rest = [entry for entry in entries if entry.name != _LAST]
    for entry in rest:
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)
    (directory / _LAST).unlink(missing_ok=True)
    directory.rmdir()
    durable.flush_directory(directory.parent)


def _remove_rests(holds: Path, gone: list[Path]) -> None:
    """Remove what a prune that was killed has left."""
    for directory in sorted(holds.iterdir()):
        if directory.is_symlink() or not directory.is_dir() or not _ours(directory):
            continue
        if (directory / "registration.json").exists() or not (directory / _LAST).exists():
            continue
        try:
            _remove_rest(directory)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise _stuck(directory, error, gone) from error
        gone.append(directory)
