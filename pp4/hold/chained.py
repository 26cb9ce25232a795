"""Chained journals read as far as they hold; what a crash left behind that is said, not raised."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pp4.errors import Pp4Error
from pp4.hold import durable
from pp4.hold.processes import Owned
from pp4.receipts.canonical import parse, shown
from pp4.receipts.journal import first_break

# PID_MAX_LIMIT of a 64-bit kernel
_LAST_PID = 1 << 22


@dataclass(frozen=True, slots=True)
class Chained:
    """A journal.

    Attributes:
        lines: those from its beginning on whose chain holds.
        torn: whether it ends in a part of a line, which is dropped.
        fault: why the lines behind them, or the whole file, do not count; empty where all do.
    """

    lines: tuple[dict[str, object], ...]
    torn: bool
    fault: str


def read_chained(path: Path, limit: int = durable.LIMIT) -> Chained:
    """Read a journal of at most ``limit`` bytes; none there is an empty one."""
    try:
        raw = durable.read(path, limit) or b""
    except Pp4Error as error:
        return Chained((), torn=False, fault=error.refusal.found)
    except ValueError as error:
        # a name with a NUL inside never reaches the kernel
        return Chained((), torn=False, fault=str(error))
    *whole, rest = raw.split(b"\n")
    lines, fault = _parsed(whole)
    if broken := first_break(lines):
        fault = f"line {broken.index}: {broken.found} in place of {broken.expected}"
        lines = lines[: broken.index]
    return Chained(tuple(lines), torn=bool(rest), fault=shown(fault, 400))


def _parsed(whole: Sequence[bytes]) -> tuple[list[dict[str, object]], str]:
    lines: list[dict[str, object]] = []
    for number, text in enumerate(whole):
        try:
            line = parse(text, "a line")
        except Pp4Error as error:
            return lines, f"line {number}: {error.refusal.found}"
        if not isinstance(line, dict):
            return lines, f"line {number}: JSON that is no object"
        lines.append(line)
    return lines, ""


def processes_in(books: Chained) -> tuple[tuple[Owned, ...], str]:
    """Return the processes that a HOLD registered, and why more may be missing."""
    found = []
    for line in books.lines:
        match line:
            case {"step": str(step), "detail": {"pid": int(pid), "start_token": str(token)}} if (
                0 < pid <= _LAST_PID and pid is not True
            ):
                found.append(Owned(pid, token, shown(step)))
            case _:
                return tuple(found), f"line {len(found)}: no process"
    return tuple(found), books.fault
