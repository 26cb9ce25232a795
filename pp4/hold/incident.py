"""What an ``incident`` receipt says of a HOLD: what is known, and what is not."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from pp4.clock import Clock
from pp4.hold.chained import Chained, processes_in, read_chained
from pp4.hold.exclusion import Exclusion
from pp4.hold.hop_sweep import known_hops
from pp4.hold.processes import Owned
from pp4.hold.records import Record, Tombstone
from pp4.hold.survey import Quarantine, closing_of, state_of
from pp4.hold.sweep import moment
from pp4.receipts.canonical import shown
from pp4.receipts.gates import JournalLine
from pp4.receipts.journal import head
from pp4.receipts.private import opened

LIMITS = (
    "what the HOLD computed: its results are void unless a receipt of their own shows them",
    "processes that neither were in the books of the HOLD nor carried its id",
    "the state of the GPUs beyond what their locks and records say",
)
"""What an incident does not establish."""
_LONG = 400


@dataclass(frozen=True, slots=True)
class Known:
    """Everything that was found out about a HOLD.

    Attributes:
        record: its files.
        tombstone: its end, None where there is none that can be read.
        tombstone_sha256: of the tombstone's file.
        quarantines: what keeps its GPUs back at this boot.
        alive: its processes that are seen.
        unproven: texts about what is neither seen nor proven dead.
        journal: its journal, as far as it holds.
    """

    record: Record
    tombstone: Tombstone | None
    tombstone_sha256: str | None
    quarantines: tuple[Quarantine, ...]
    alive: tuple[Owned, ...]
    unproven: tuple[str, ...]
    journal: Chained

    @property
    def state(self) -> str:
        """``closed``, ``quarantined``, ``closing`` or ``unknown``."""
        if self.tombstone is not None:
            return "closed"
        if self.quarantines:
            return "quarantined"
        return "closing" if self.record.closing else "unknown"


def body_of(known: Known, exclusion: Exclusion, clock: Clock) -> dict[str, object]:
    """Return the body of the receipt, for :func:`pp4.receipts.build.build`.

    Args:
        known: what was found out.
        exclusion: for the id of this boot.
        clock: for the time of day, and for whether the deadline has passed.
    """
    found = known.record.registration
    lines, fault = _lines(known.journal)
    words = {gpu: f"gpu.{rank}" for rank, gpu in enumerate(found.gpus)}
    leaves = {f"gpu.{rank}.uuid": gpu for rank, gpu in enumerate(found.gpus)}
    hops = known_hops(known.record)
    words |= {str(hop.recorded.login): f"hop.{hop.recorded.hop}" for hop in hops}
    leaves |= {f"hop.{hop.recorded.hop}.login": str(hop.recorded.login) for hop in hops}
    here = {"host.name": socket.gethostname(), "host.boot_id": exclusion.boot_id}
    ended = f"{known.state}{_why(known)}"
    return {
        "kind": "incident",
        "made_at": moment(clock.wall()),
        "limits": list(LIMITS),
        "hold_id": found.hold,
        "fence": found.fence,
        "what": shown(f"{found.command}, opened at {found.opened_at}: {ended}", _LONG),
        "state": known.state,
        "tombstone_sha256": known.tombstone_sha256,
        "survivors": [
            {"pid": one.pid, "start_token": one.start_token, "state": state_of(one.pid)}
            for one in known.alive
        ],
        "unproven": [shown(_without(text, words), _LONG) for text in known.unproven],
        "journal": lines,
        "journal_torn": known.journal.torn,
        "facts": {
            **_facts(known, exclusion, clock),
            **_end(known, head(lines)),
            "journal_fault": _without(fault, words),
            **({"hops": [f"{hop.recorded.label}: {hop.found}" for hop in hops]} if hops else {}),
        },
        "private": opened({**here, **leaves}),
    }


def _lines(journal: Chained) -> tuple[list[dict[str, object]], str]:
    """Return the lines that a receipt can hold, and why there are no more."""
    lines: list[dict[str, object]] = []
    for line in journal.lines:
        try:
            JournalLine.model_validate(line)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            return lines, shown(f"line {len(lines)}: {place}: {first['msg']}", _LONG)
        lines.append(line)
    return lines, journal.fault


def _why(known: Known) -> str:
    if known.tombstone is not None:
        return f" ({known.tombstone.why})"
    why = closing_of(known.record.directory).get("why")
    return f" ({why})" if isinstance(why, str) and why else ""


def _without(text: str, words: Mapping[str, str]) -> str:
    """Put other words in the place of GPUs and hosts: their names stand in ``private`` alone."""
    for gpu, word in words.items():
        text = text.replace(gpu, word)
    return text


def _facts(known: Known, exclusion: Exclusion, clock: Clock) -> dict[str, object]:
    found = known.record.registration
    books, _ = processes_in(read_chained(known.record.directory / "procs.jsonl"))
    facts: dict[str, object] = {
        "command": found.command,
        "exclusion": found.exclusion,
        "transport": found.transport,
        "opened_at": found.opened_at,
        "same_boot": found.boot_id == exclusion.boot_id,
        "end_had_begun": known.record.closing,
        "registered_processes": [str(owned) for owned in books],
        "gpus_in_quarantine": len(known.quarantines),
    }
    if found.boot_id == exclusion.boot_id:
        # boot time of another boot says nothing
        facts["deadline_passed"] = int(found.deadline_boottime_ns) <= clock.boottime_ns()
    return facts


def _end(known: Known, journal_head: str) -> dict[str, object]:
    tombstone = known.tombstone
    if tombstone is None:
        return {}
    restored: Sequence[str] = tombstone.restored
    return {
        "why": tombstone.why,
        "closed_at": tombstone.closed_at,
        "restored": list(restored),
        "tombstone_has_this_journal": tombstone.journal_head == journal_head,
    }
