"""A replay of held-out inputs as rows and lines for a person."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

HEAD = (
    "T",
    "switch",
    "accepted length",
    "tokens per step",
    "averaged over words",
    "blocks by accepted tokens",
)
POSITIONS = ("T", "switch", "position", "reached", "accepted", "rate", "averaged", "min(P, Q)")


def rows(found: Mapping[str, Any]) -> list[tuple[object, ...]]:
    """A row for each temperature and position of the switch."""
    return [
        (
            arm["temperature"],
            arm["switch"],
            f"{arm['accepted_length']:.3f}",
            f"{arm['tokens_per_step']:.3f}",
            f"{arm['expected_length']:.3f}",
            " ".join(str(count) for count in arm["histogram"]),
        )
        for arm in found["arms"]
    ]


def positions(found: Mapping[str, Any]) -> list[tuple[object, ...]]:
    """A row for each position of each of them."""
    return [
        (
            arm["temperature"],
            arm["switch"],
            place,
            one["reached"],
            one["accepted"],
            f"{one['accepted'] / one['reached']:.3f}" if one["reached"] else "none reached",
            "none reached" if one["expected_rate"] is None else f"{one['expected_rate']:.3f}",
            f"{one['shared']:.3f}",
        )
        for arm in found["arms"]
        for place, one in enumerate(arm["positions"], start=1)
    ]


def lines(found: Mapping[str, Any]) -> Iterator[str]:
    """What else there is to say: truncation, the difference, how much was replayed, digests."""
    for place, one in enumerate(found["truncation"], start=1):
        shared = ", ".join(f"{value:.3f} at T = {key}" for key, value in one["shared"].items())
        yield (
            f"truncation at position {place}: total variation {one['mean']:.4f} on average, "
            f"{one['largest']:.4f} at most; min(P, Q) without it {shared}"
        )
    for one in found["differences"]:
        for name, said in (("decided", "by the words"), ("expected", "averaged over words")):
            yield (
                f"accepted length on minus off at T = {one['temperature']}, {said}: "
                f"{one[name]['mean']:+.3f}, {_interval(one[name], found)}"
            )
    part, producer = found["part"], found["producer"]
    yield (
        f"replayed: {part['blocks']} of {part['of']} blocks, documents: {part['documents']}, "
        f"by the exact verifier as well: {part['exact']}"
    )
    yield f"producer: {producer['device']}, {producer['name']}"
    for name, digest in found["digests"].items():
        yield f"sha256 of {name}: {digest}"


def _interval(difference: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    rule = found["interval"]
    if difference["interval"] is None:
        return (
            f"no interval: too few documents ({found['part']['documents']}; "
            f"{rule['least_documents']} are needed)"
        )
    low, high = difference["interval"]
    return f"{rule['level']:.0%} interval {low:+.3f} to {high:+.3f}"
