"""Every round and snapshot of a half on this machine's disk, before anybody sees it.

``measurement-HOLD.rounds.jsonl`` is a chained journal like a HOLD's own.  Its first line has all
that a receipt needs beside them, so that one can be made of this file alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import BaseModel

from pp4.errors import Code, Pp4Error, Refusal, RefusedError
from pp4.hold.chained import read_chained
from pp4.hold.journal import Journal
from pp4.receipts.canonical import shown
from pp4.receipts.envelope import U64
from pp4.wire.facts import read
from pp4.wire.frames import Model
from pp4.wire.measuring import Rounded, Stepped, Work

SUFFIX: Final = ".rounds.jsonl"
LIMIT: Final = 64 << 20
"""Bytes of the longest file that is read."""
_STEP: Final = "measurement"
_HEAD: Final = "begin"
_TOLD: Final = "told"
M = TypeVar("M", bound=BaseModel)


class Head(Model):
    """What the first line says.

    Attributes:
        work: the half.
        rehearsal: whether nothing of it was measured, so that no receipt is made of it.
        at_ns: when the measuring step was begun, since the HOLD was opened.
        body: members of the receipt that are known before the first arm begins.
    """

    work: Work
    rehearsal: bool
    at_ns: U64
    body: dict[str, Any]


class Line(Model):
    """What every other line says.

    Attributes:
        at_ns: when it was told, since the HOLD was opened.
        heartbeats_ns: moments since the line before at which the host had answered one.
        rounded: a round or a snapshot, or None.
        stepped: the begin or the end of a phase, or None.
    """

    at_ns: U64
    heartbeats_ns: tuple[U64, ...]
    rounded: Rounded | None = None
    stepped: Stepped | None = None


@dataclass(frozen=True, slots=True)
class Kept:
    """What a file of rounds holds.

    Attributes:
        head: its first line.
        lines: the others, as far as their chain holds.
        fault: why no more of them count; empty where all do.
    """

    head: Head
    lines: tuple[Line, ...]
    fault: str


class RoundsFile:
    """Writes the file; each line is durable before the call returns.

    Args:
        path: a file that does not exist yet.
        head: the first line.

    Raises:
        UncleanError: ``UNWRITABLE``, a line could not be made durable.
    """

    def __init__(self, path: Path, head: Head) -> None:
        self._journal = Journal(path)
        # for as long as somebody may write it, nobody else makes a receipt of it
        self._lock = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._add(_HEAD, head)

    def add(self, line: Line) -> None:
        """Append one line and wait until it is durable."""
        self._add(_TOLD, line)

    def _add(self, event: str, model: Model) -> None:
        self._journal.add(_STEP, event, detail=model.model_dump(mode="json"))

    def close(self) -> None:
        """No line may follow, and whoever wants to may seal it."""
        self._journal.close()
        os.close(self._lock)


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """Keep a file of rounds as it is while the block runs.

    Raises:
        RefusedError: ``HELD_BY``, a measurement still writes it; ``UNREADABLE``.
    """
    where = shown(str(path), 300)
    try:
        lock = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        found = error.strerror or str(error)
        raise RefusedError(Refusal(Code.UNREADABLE, where, "a file of rounds", found)) from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            expected, found = "a file that no measurement writes", "one that is still written"
            raise RefusedError(Refusal(Code.HELD_BY, where, expected, found)) from error
        yield
    finally:
        os.close(lock)


def read_rounds(path: Path) -> Kept:
    """Read a file of rounds as far as its chain holds.

    Raises:
        RefusedError: ``UNREADABLE``, there is none; ``JOURNAL_CHAIN``, not even its first line
            holds; ``SCHEMA``, it is the journal of something else.
    """
    where = shown(str(path), 300)
    if not path.is_file():
        found = "none" if not path.exists() else "something else"
        raise RefusedError(Refusal(Code.UNREADABLE, where, "a file of rounds", found))
    chained = read_chained(path, LIMIT)
    fault = chained.fault or ("a torn last line, which is left out" if chained.torn else "")
    if not chained.lines:
        found = fault or "an empty file"
        raise RefusedError(Refusal(Code.JOURNAL_CHAIN, where, "a first line that holds", found))
    first, *others = chained.lines
    head = _detail(Head, first, _HEAD, where)
    return Kept(head, tuple(_detail(Line, one, _TOLD, where) for one in others), fault)


def _detail(model: type[M], line: Mapping[str, object], event: str, where: str) -> M:
    """What a line of the chain says."""
    found = f"line {line.get('sequence')}: {line.get('step')} {line.get('event')}"
    if (line.get("step"), line.get("event")) != (_STEP, event):
        expected = f"{_STEP} {event}"
        raise RefusedError(Refusal(Code.SCHEMA, where, expected, shown(found)))
    try:
        return read(model, line["detail"])
    except Pp4Error as error:
        expected = f"line {line.get('sequence')} as pp4 writes it"
        found = shown(error.refusal.found, 300)
        raise RefusedError(Refusal(Code.SCHEMA, where, expected, found)) from error
