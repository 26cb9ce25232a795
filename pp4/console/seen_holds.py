"""HOLDs and GPUs of a host as rows for a person."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

HOLDS = ("HOLD", "state", "why", "fence", "for", "user", "since", "left", "alive", "GPUs")
GPUS = ("GPU", "lock", "fence", "quarantine")
_LOCK = {True: "taken", False: "free", None: "unknown"}


def holds(seen: Sequence[Mapping[str, Any]]) -> list[tuple[object, ...]]:
    """A row for each HOLD; members of :class:`pp4.hold.overview.SeenHold`."""
    return [
        (
            one["hold"],
            one["state"],
            one["why"],
            one["fence"],
            f"child of {one['parent']}" if one["parent"] else one["command"],
            one["user"],
            one["since"],
            "" if one["left_s"] is None else f"{one['left_s']} s",
            len(one["alive"]),
            ", ".join(one["gpus"]),
        )
        for one in seen
    ]


def gpus(seen: Sequence[Mapping[str, Any]]) -> list[tuple[object, ...]]:
    """A row for each GPU; members of :class:`pp4.hold.overview.SeenGpu`."""
    return [
        (
            one["gpu"],
            _LOCK[one["taken"]],
            one["fault"] or one["fence"],
            "" if one["quarantine"] is None else f"HOLD {one['quarantine']['hold']}",
        )
        for one in seen
    ]
