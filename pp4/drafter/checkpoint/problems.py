"""What is wrong with a checkpoint, collected, and the one refusal that says it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pp4.errors import Code, Refusal, RefusedError

_WIDTH = 160


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        what: a tensor, a key of the config or a file.
        expected: short text of what was needed.
        found: short text of what was there.
    """

    what: str
    expected: str
    found: str


def shown(value: object) -> str:
    """A value out of a file as one short line of printable ASCII."""
    text = value if isinstance(value, str) else repr(value)
    text = ascii(text)[1:-1]
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."


def refused(
    path: Path,
    problems: Sequence[Problem],
    *,
    code: Code = Code.BAD_CHECKPOINT,
    next: str = "",
) -> RefusedError:
    """The refusal of a checkpoint: its first problem, and how many more there are.

    Args:
        path: directory of the checkpoint.
        problems: at least one.
        code: ``BAD_CHECKPOINT``, or ``UNSUPPORTED_CHECKPOINT`` where nothing is damaged.
        next: what to do, where there is something better than to read about the code.
    """
    first, more = problems[0], len(problems) - 1
    found = f"{first.found} (and {more} more)" if more else first.found
    where = f"{shown(str(path))}: {shown(first.what)}"
    return RefusedError(Refusal(code, where, first.expected, found, "drafter", next=next))
