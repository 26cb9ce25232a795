"""The end of a quarantine by a person's word: who, why and of what, written down before it ends."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pp4.clock import Clock
from pp4.errors import Code, Refusal, RefusedError, UsageError
from pp4.hold import durable, processes
from pp4.hold.chained import read_chained
from pp4.hold.exclusion import Exclusion
from pp4.hold.survey import (
    Quarantine,
    gpus_on_disk,
    holder_lives,
    named,
    quarantine_of,
    registrations,
    sighting,
    state_of,
)
from pp4.hold.sweep import held_by, moment
from pp4.receipts.canonical import dump, shown
from pp4.receipts.journal import next_line

_LONGEST = {"--operator": 200, "--why": 2000}


@dataclass(frozen=True, slots=True)
class Cleared:
    """A quarantine that was ended.

    Attributes:
        gpu: its UUID.
        hold: the HOLD that it was about, ``unknown`` where it could not be read.
        survivors: the processes that it named.
        operator: who ended it.
        why: the reason given.
        at: when, in UTC.
        record: the file that says so.
    """

    gpu: str
    hold: str
    survivors: tuple[str, ...]
    operator: str
    why: str
    at: str
    record: Path


def clear(exclusion: Exclusion, gpu: str, operator: str, why: str, clock: Clock) -> Cleared:
    """End the quarantine of a GPU.

    Args:
        exclusion: where it is.
        gpu: the UUID.
        operator: who vouches that the GPU is idle, in one line.
        why: what that rests on, in one line.
        clock: for the time of day in the record.

    Raises:
        UsageError: ``USAGE``: operator or reason is missing or no line of text, or the GPU is not
            in quarantine.
        RefusedError: ``QUARANTINED``: a process is still seen alive; ``HELD_BY``: a HOLD has the
            GPU; ``JOURNAL_CHAIN``, ``EXCLUSION`` or ``UNWRITABLE``: it could not be written
            down.  The quarantine is there then.
    """
    for option, text in (("--operator", operator), ("--why", why)):
        _require_line(option, text)
    # asked first, so that no lock is made for a GPU that nobody knows
    _required(exclusion, gpu)
    with contextlib.ExitStack() as stack:
        _lock(stack, exclusion, gpu, clock)
        quarantine = _required(exclusion, gpu)
        if not quarantine.void:
            _require_none_alive(exclusion, quarantine)
        at = moment(clock.wall())
        path = cleared_path(exclusion, gpu)
        detail = {
            "operator": operator,
            "why": why,
            "at": at,
            "user": os.geteuid(),
            "hold": quarantine.hold,
            "survivors": list(quarantine.survivors),
            "fault": quarantine.fault,
            "boot_id": exclusion.boot_id,
        }
        _write_down(path, gpu, detail)
        durable.remove(exclusion.quarantine_path(gpu))
    return Cleared(gpu, quarantine.hold, quarantine.survivors, operator, why, at, path)


def cleared_path(exclusion: Exclusion, gpu: str) -> Path:
    """Where it is written down who ended quarantines of a GPU: a chained journal."""
    return exclusion.cleared_path(gpu)


def _require_line(option: str, text: str) -> None:
    longest = _LONGEST[option]
    if text.strip() and text.isprintable() and len(text) <= longest:
        return
    expected = f"one line of text, at most {longest} characters"
    found = shown(text) if text.strip() else "nothing"
    raise UsageError(Refusal(Code.USAGE, f"pp4 hold clear {option}", expected, found))


def _required(exclusion: Exclusion, gpu: str) -> Quarantine:
    """Return the quarantine of a GPU, or say which there are."""
    records, _ = registrations(exclusion.holds)
    kept = [one for one in gpus_on_disk(exclusion, records) if quarantine_of(exclusion, one)]
    quarantine = quarantine_of(exclusion, gpu) if gpu in kept else None
    if quarantine is not None:
        return quarantine
    raise UsageError(
        Refusal(
            Code.USAGE,
            f"pp4 hold clear {shown(gpu)}",
            f"a GPU in quarantine: {', '.join(kept)}" if kept else "a GPU in quarantine",
            "one that is not" if kept else "no GPU in quarantine",
            next="pp4 hold status",
        )
    )


def _lock(stack: contextlib.ExitStack, exclusion: Exclusion, gpu: str, clock: Clock) -> None:
    """Take the lock, or say who has it."""
    try:
        stack.enter_context(exclusion.locked([gpu]))
    except RefusedError as error:
        if error.refusal.code is not Code.HELD_BY:
            raise
        for record in registrations(exclusion.holds)[0]:
            theirs = gpu in record.registration.names and not record.closed
            if theirs and holder_lives(exclusion, record):
                raise held_by(record, gpu, clock) from error
        raise


def _require_none_alive(exclusion: Exclusion, quarantine: Quarantine) -> None:
    """Refuse where a process of the quarantine, or of an unburied HOLD of the GPU, is alive."""
    found = {owned.pid: owned for owned in processes.marked(quarantine.hold)}
    for record in registrations(exclusion.holds)[0]:
        if quarantine.gpu in record.registration.gpus and not record.closed:
            marked = processes.marked(record.registration.hold)
            seen = sighting(exclusion, record, marked)
            found.update((owned.pid, owned) for owned in seen.alive)
    told = (named(text) for text in quarantine.survivors)
    found.update((owned.pid, owned) for owned in told if owned is not None and owned.alive())
    if not found:
        return
    path = exclusion.quarantine_path(quarantine.gpu)
    alive = ", ".join(f"{owned} in state {state_of(owned.pid)}" for owned in found.values())
    raise RefusedError(
        Refusal(
            Code.QUARANTINED,
            quarantine.gpu,
            f"no process of HOLD {quarantine.hold} alive",
            shown(alive, 1000),
            left=shown(str(path)),
            next=f"ps -fp {','.join(map(str, found))}",
        )
    )


def _write_down(path: Path, gpu: str, detail: Mapping[str, object]) -> None:
    """Add a line to the journal of a GPU, in one step: it is never there in part."""
    before = read_chained(path)
    if before.fault:
        quoted = shlex.quote(str(path))
        expected, again = "a journal whose chain holds", f"mv {quoted} {quoted}.broken"
        raise RefusedError(
            Refusal(Code.JOURNAL_CHAIN, shown(str(path)), expected, before.fault, next=again)
        )
    last = before.lines[-1] if before.lines else None
    line = next_line(last, f"quarantine of {gpu}", "cleared", detail=detail)
    raw = b"".join(dump(one) + b"\n" for one in (*before.lines, line))
    # every user may have to add to it
    durable.replace(path, raw, 0o666)
