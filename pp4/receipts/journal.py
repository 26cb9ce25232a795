"""The chain of journal lines: each line carries the hash of the line before it.

Pure functions over plain mappings.  Whoever writes a journal extends the chain with
:func:`next_line`; whoever reads one asks :func:`first_break`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pp4.receipts.canonical import dump

GENESIS: Final = "0" * 64
"""What the first line carries in place of a hash."""


def line_digest(line: Mapping[str, object]) -> str:
    """Return the sha256 of the canonical bytes of one line.

    Raises:
        RefusedError: the line has no canonical bytes.
    """
    return hashlib.sha256(dump(dict(line), "journal line")).hexdigest()


def next_line(
    before: Mapping[str, object] | None,
    step: str,
    event: str,
    found: str | None = None,
    detail: Mapping[str, object] | None = None,
) -> dict[str, object]:
    """Return the line that follows ``before``, or the first line where ``before`` is None.

    Args:
        before: the line written last.
        step: the step's name, such as ``gate-2/pair-equals-reference``, or what a note is about.
        event: ``begin``, ``end``, ``note`` or another lower-case word.
        found: what the step found; only lines that end a step have it.
        detail: facts worth keeping: text, integers, booleans and lists of these.

    Raises:
        RefusedError: ``before`` has no canonical bytes.
    """
    sequence = 0
    if before is not None:
        last = before["sequence"]
        sequence = last + 1 if isinstance(last, int) else 0
    return {
        "sequence": sequence,
        "step": step,
        "event": event,
        "found": found,
        "previous": GENESIS if before is None else line_digest(before),
        "detail": dict(detail or {}),
    }


def head(lines: Sequence[Mapping[str, object]]) -> str:
    """Return the hash of the last line; of an empty journal the value of :data:`GENESIS`."""
    return line_digest(lines[-1]) if lines else GENESIS


@dataclass(frozen=True, slots=True)
class Break:
    """Where a chain stops to hold.

    Attributes:
        index: position in the list, from 0.
        expected: what the line should say.
        found: what it says.
    """

    index: int
    expected: str
    found: str


def first_break(lines: Sequence[Mapping[str, object]]) -> Break | None:
    """Return the first place where the chain does not hold, or None.

    Only the first counts: behind a broken link every later one is meaningless.
    """
    previous = GENESIS
    for index, line in enumerate(lines):
        if line.get("sequence") != index:
            return Break(index, f"sequence {index}", f"sequence {line.get('sequence')}")
        if line.get("previous") != previous:
            return Break(index, f"previous {previous}", f"previous {line.get('previous')}")
        previous = line_digest(line)
    return None
