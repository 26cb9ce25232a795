"""Measurements as rows and lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

PARTS: Final = ("part", "worst s", "times", "margin %", "projected s")
_ARMS: Final = ("arm", "verdict", "timed rounds")
_SAMPLED: Final = ("part", "worst s")
_SUMMARY: Final = ("verdict", "effect", "interval", "drift")


def _seconds(text: str) -> str:
    return f"{int(text) / 1e9:,.3f}"


def parts(budget: Mapping[str, Any]) -> list[tuple[object, ...]]:
    """The parts of a projected window, its sum and what it has to stay within."""
    rows: list[tuple[object, ...]] = [
        (
            part["name"],
            _seconds(part["worst_ns"]),
            part["times"],
            part["margin_percent"],
            _seconds(part["projected_ns"]),
        )
        for part in budget["parts"]
    ]
    rows.append(("all of it", "", "", "", _seconds(budget["projected_ns"])))
    return [*rows, ("the window", "", "", "", _seconds(budget["bound_ns"]))]


def tables(made: Mapping[str, Any]) -> Iterator[tuple[Sequence[str], list[tuple[object, ...]]]]:
    """Heads and rows of what was made."""
    if made["budget"]:
        yield PARTS, parts(made["budget"])
    if made["arms"]:
        yield _ARMS, [(one["arm"], one["verdict"], one["rounds"]) for one in made["arms"]]
    if made["sampled"]:
        yield _SAMPLED, [(one["name"], _seconds(one["worst_ns"])) for one in made["sampled"]]
    if one := made["summary"]:
        interval = f"{one['interval_low']} to {one['interval_high']}"
        yield _SUMMARY, [(one["verdict"], one["effect"], interval, one["drift"])]


def lines(made: Mapping[str, Any]) -> Iterator[str]:
    """What else there is to say."""
    yield f"verdict: {made['verdict']}"
    if made["differences"]:
        yield "A physical run would do differently:"
    yield from (f"  - {text}" for text in made["differences"])
    for name in ("receipt", "qualification", "rounds"):
        if made[name]:
            yield f"{name}: {made[name]}"
    if made["receipt"]:
        yield f"check it with: {made['check']}"
