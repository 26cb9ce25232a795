"""Qualifications held against this machine, as rows for a person and as one JSON document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pp4.errors import Exit

if TYPE_CHECKING:
    from pp4.qualify.standing import Standing

HEAD = ("result", "qualification", "scope", "made", "GPUs", "because of", "expected", "found")


def rows(standings: Sequence[Standing]) -> list[tuple[str, ...]]:
    """Return a row for each qualification that stands, and one for each reason against another."""
    made: list[tuple[str, ...]] = []
    for standing in standings:
        receipt = standing.receipt
        scope = receipt.scope if receipt else "unknown"
        at = (receipt.made_at if receipt else None) or "unknown"
        start = (standing.file, scope, at, standing.gpus)
        if standing.stands:
            made.append(("stands", *start, "", "", ""))
        made += [
            ("void", *start, reason.what, reason.expected, reason.found)
            for reason in standing.reasons
        ]
    return made


def record(standings: Sequence[Standing], line: str, code: Exit) -> dict[str, object]:
    """Return the JSON document of all."""
    return {
        "summary": line,
        "exit": int(code),
        "qualifications": [standing.as_dict() for standing in standings],
    }
