"""Hops of a HOLD whose holder ended without a word: is anything left on the further hosts?"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from pp4.errors import Pp4Error
from pp4.hold.chained import processes_in, read_chained
from pp4.hold.exclusion import Exclusion
from pp4.hold.guard import GUARD
from pp4.hold.hop_books import HOP, HopBook, read_hops
from pp4.hold.hop_ends import settle_hops, settled_since
from pp4.hold.records import Record


def hops_left(record: Record) -> tuple[str, ...]:
    """Go to the far host of each hop that is not proven over; -> a text for each still not.

    Only when every process of the HOLD on this host is proven dead.
    """
    # the books of another user cannot be read, or lead to wherever that user wants, and those of
    # this one may be gone; the list of its processes is there
    if record.directory.stat().st_uid == os.geteuid() and _own(record).is_dir():
        return settle_hops(_own(record), record.registration.hold)
    books, _ = processes_in(read_chained(record.directory / "procs.jsonl"))
    steps = [owned.label.removeprefix(GUARD) for owned in books if owned.label.startswith(GUARD)]
    user = record.registration.coordinator.uid
    return tuple(
        f"{label} of HOLD {record.registration.hold}, unproven: only user {user} knew where"
        for label in steps
        if label.startswith(HOP)
    )


def hops_proven(record: Record, texts: Sequence[str]) -> tuple[str, ...]:
    """Which of these texts are of hops that have been proven over since."""
    return settled_since(_own(record), texts)


def known_hops(record: Record) -> tuple[HopBook, ...]:
    """The hops of a HOLD of this user; none where their books cannot be read."""
    try:
        return read_hops(_own(record))
    except Pp4Error:
        return ()


def _own(record: Record) -> Path:
    return Path(record.registration.journal).parent


def vouched_for(exclusion: Exclusion, record: Record) -> frozenset[str]:
    """What quarantines of this HOLD named when an operator ended them.

    That a quarantine is gone is not enough: one of an earlier boot is void, and says nothing of
    further hosts, which have not restarted with this one.
    """
    named: set[str] = set()
    for gpu in record.registration.gpus:
        for line in read_chained(exclusion.cleared_path(gpu)).lines:
            detail = line.get("detail")
            if isinstance(detail, dict) and detail.get("hold") == record.registration.hold:
                survivors = detail.get("survivors")
                named.update(map(str, survivors if isinstance(survivors, list) else ()))
    return frozenset(named)
