"""What is known of a HOLD that ended badly: the body of an ``incident`` receipt.

``python -m pp4.hold.recovery ID`` prints the sealed receipt about a HOLD of this host.

Nothing is killed and no quarantine is ended here.  A HOLD whose processes are proven dead gets the
tombstone that it could not write itself; about any other one it is said what is not proven.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import time
from collections.abc import Container, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path

from pp4.clock import Clock, Deadline, SystemClock
from pp4.config import load_settings
from pp4.errors import Code, Exit, Pp4Error, Refusal, RefusedError
from pp4.hold import durable, processes
from pp4.hold.chained import read_chained
from pp4.hold.exclusion import Exclusion, open_exclusion
from pp4.hold.hop_sweep import hops_left, hops_proven
from pp4.hold.incident import Known, body_of
from pp4.hold.processes import Owned
from pp4.hold.records import Record, Tombstone
from pp4.hold.restoring import settle_lost
from pp4.hold.survey import (
    Quarantine,
    holder_lives,
    named,
    quarantine_of,
    registered,
    registrations,
    sighting,
    tombstone_of,
)
from pp4.hold.sweep import held_by, sweep
from pp4.receipts.build import build
from pp4.receipts.canonical import shown
from pp4.receipts.digests import sha256_hex

_LOCK_S = 2.0
_POLL_S = 0.02
_ID = re.compile(r"[0-9a-f]{16}", re.ASCII)


def recover(exclusion: Exclusion, hold_id: str, clock: Clock) -> dict[str, object]:
    """Find out how a HOLD ended, and bury it where its processes are proven dead.

    Args:
        exclusion: where it is registered.
        hold_id: its id.
        clock: for times of day and the time that a HOLD has left.

    Returns:
        The body of an ``incident`` receipt; :func:`sealed` makes its bytes.

    Raises:
        RefusedError: ``UNKNOWN_HOLD``, with the nearest ids; ``HELD_BY``: the HOLD has not ended;
            ``UNREADABLE``: its registration is none; ``EXCLUSION``.
    """
    record = _asked(exclusion, hold_id)
    doubts: tuple[str, ...] = ()
    if not record.closed:
        doubts = _swept(exclusion, record, clock)
        record = _asked(exclusion, hold_id)
    return body_of(_known(exclusion, record, doubts), exclusion, clock)


def sealed(body: Mapping[str, object]) -> bytes:
    """Return the bytes of the ``incident`` receipt with this body, read back once.

    Raises:
        RefusedError: the body does not fit its model, or contradicts itself.
    """
    return build(body)


def _asked(exclusion: Exclusion, hold_id: str) -> Record:
    # only what looks like an id becomes a path
    record = registered(exclusion.holds / hold_id) if _ID.fullmatch(hold_id) else None
    if record is not None:
        return record
    records = registrations(exclusion.holds)[0]
    records.sort(key=lambda one: one.registration.opened_at)
    known = [one.registration.hold for one in records]
    near = get_close_matches(hold_id[:64], known, n=3) or known[-3:]
    raise RefusedError(
        Refusal(
            Code.UNKNOWN_HOLD,
            "HOLD",
            f"the id of a HOLD here, such as {', '.join(near)}" if near else "the id of a HOLD",
            shown(hold_id) if known else f"{shown(hold_id)}, and no HOLD at all",
            source=shown(str(exclusion.holds)),
            next="pp4 hold status",
        )
    )


def _swept(exclusion: Exclusion, record: Record, clock: Clock) -> tuple[str, ...]:
    """Bury a HOLD where that can be proven; -> why not.

    Raises:
        RefusedError: ``HELD_BY``: its holder lives; ``EXCLUSION``.
    """
    with contextlib.ExitStack() as stack:
        if not _locked(stack, exclusion, record, clock):
            return ("nothing was swept: another HOLD has the lock of a GPU",)
        # somebody else may have buried it meanwhile, and a tombstone is written once
        record = _asked(exclusion, record.registration.hold)
        same_boot = record.registration.boot_id == exclusion.boot_id
        kept = [one.hold for one in _quarantines(exclusion, record)]
        if kept and (same_boot or record.registration.hold in kept):
            # that it is still there means that nobody has given his word yet
            return _kept_back(exclusion, record)
        try:
            sweep(exclusion, record.registration.names, [record], clock)
        except RefusedError as error:
            if error.refusal.code in (Code.HELD_BY, Code.EXCLUSION):
                raise
            if error.refusal.code is Code.QUARANTINED:
                return ()
            return (f"the end could not be recorded: {error.refusal.found}",)
    if os.path.lexists(record.directory / "closed.json"):
        return ()
    user = record.registration.coordinator.uid
    return (f"everything is proven dead, and only user {user} can write the tombstone",)


def _kept_back(exclusion: Exclusion, record: Record) -> tuple[str, ...]:
    """Ask further hosts once more about a HOLD in quarantine; -> what keeps it there.

    A further host that was out of reach may be back: its word is taken down, and the quarantine is
    still a person's to end.
    """
    seen = sighting(exclusion, record, processes.marked(record.registration.hold))
    return () if seen.alive else hops_left(record)


def _locked(
    stack: contextlib.ExitStack, exclusion: Exclusion, record: Record, clock: Clock
) -> bool:
    """Take the locks of a HOLD's GPUs; -> False where another one has them.

    They are asked for more than once: whoever only looks has one for a moment, and so has a holder
    that was just killed.
    """
    deadline = Deadline.after(SystemClock(), _LOCK_S)
    while True:
        try:
            stack.enter_context(exclusion.locked(record.registration.names))
        except RefusedError as error:
            if error.refusal.code is not Code.HELD_BY:
                raise
            if not deadline.expired():
                time.sleep(_POLL_S)
                continue
            same_boot = record.registration.boot_id == exclusion.boot_id
            if same_boot and holder_lives(exclusion, record):
                raise held_by(record, error.refusal.where, clock) from error
            return False
        return True


def _quarantines(exclusion: Exclusion, record: Record) -> tuple[Quarantine, ...]:
    found = (quarantine_of(exclusion, gpu) for gpu in record.registration.gpus)
    return tuple(one for one in found if one is not None and not one.void)


def _known(exclusion: Exclusion, record: Record, doubts: Sequence[str]) -> Known:
    tombstone, digest, odd = _tombstone(record)
    quarantines = _quarantines(exclusion, record)
    journal = read_chained(Path(record.registration.journal))
    if tombstone is not None:
        # it is written only when everything is proven dead
        return Known(record, tombstone, digest, quarantines, (), (), journal)
    seen = sighting(exclusion, record, processes.marked(record.registration.hold))
    told = [text for one in quarantines for text in _untold(one, record, seen.alive)]
    # both GPUs of a pair are kept back for the same processes
    unproven = tuple(dict.fromkeys((*odd, *doubts, *seen.unproven, *told)))
    return Known(record, None, None, quarantines, seen.alive, unproven, journal)


def _tombstone(record: Record) -> tuple[Tombstone | None, str | None, tuple[str, ...]]:
    """Read the tombstone; -> it, the sha256 of its file, and why it does not count."""
    ours = record.registration
    try:
        raw = durable.read(record.directory / "closed.json")
        tombstone = tombstone_of(record.directory)
    except Pp4Error as error:
        return None, None, (f"the tombstone cannot be read: {error.refusal.found}",)
    if raw is None or tombstone is None:
        return None, None, ()
    if (tombstone.hold, tombstone.fence) != (ours.hold, ours.fence):
        odd = f"the tombstone is of HOLD {tombstone.hold}, fence {tombstone.fence}"
        return None, None, (odd,)
    return tombstone, sha256_hex(raw), ()


def _untold(quarantine: Quarantine, record: Record, alive: Sequence[Owned]) -> list[str]:
    """Survivors of a quarantine that are neither seen alive nor proven dead."""
    if quarantine.fault:
        return [f"a quarantine that cannot be read: {quarantine.fault}"]
    if quarantine.hold != record.registration.hold:
        return [f"its GPUs are in quarantine for HOLD {quarantine.hold}"]
    same = record.registration.coordinator.pid_namespace == processes.namespace()
    seen = {owned.pid for owned in alive}
    over = hops_proven(record, quarantine.survivors)
    left = [text for text in quarantine.survivors if text not in over]
    return [text for text in left if not same or _open(text, seen)]


def _open(text: str, seen: Container[int]) -> bool:
    """Whether a process as a quarantine names it is none of those seen, and may be alive."""
    owned = named(text)
    if owned is None:
        return True
    return owned.pid not in seen and (owned.alive() or processes.hidden(owned.pid))


def main(arguments: Sequence[str]) -> int:
    """Print the sealed receipt of one HOLD of this host, or the refusal; -> exit code."""
    settings = load_settings()
    try:
        exclusion = open_exclusion(settings.host_dir, settings.state_dir, make=False)
        body = recover(exclusion, arguments[0], SystemClock())
        put_back = settle_lost(settings.state_dir / "holds", exclusion)
        facts = body["facts"]
        if put_back and isinstance(facts, dict):
            facts["put_back"] = list(put_back)
        raw = sealed(body)
    except Pp4Error as error:
        raw = json.dumps({"refusal": error.refusal.as_dict()}).encode()
    sys.stdout.buffer.write(raw)
    return int(Exit.DONE)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
