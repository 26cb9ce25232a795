"""A drafter's checkpoint as rows and lines for a person."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

HEAD = ("tensor", "shape", "type", "bytes", "rank 0", "rank 1")


def rows(tensors: Sequence[Mapping[str, Any]]) -> list[tuple[object, ...]]:
    """A row for each tensor: members of what :mod:`pp4.drafter.inspection` lists."""
    return [
        (
            one["name"],
            " x ".join(str(size) for size in one["shape"]),
            one["dtype"],
            one["bytes"],
            *(_part(one, part) for part in one["ranks"]),
        )
        for one in tensors
    ]


def _part(tensor: Mapping[str, Any], part: Mapping[str, Any]) -> str:
    """What a rank gets of a tensor."""
    if part["rows"] is None:
        return "not read"
    first, last = part["rows"]
    whole = last - first == tensor["shape"][0]
    return "all" if whole else f"rows {first} to {last - 1}"


def lines(checkpoint: Mapping[str, Any]) -> Iterator[str]:
    """What else there is to say: the config as understood, sizes, and what can be drafted."""
    for name, value in checkpoint["config"].items():
        text = ", ".join(str(one) for one in value) if isinstance(value, list) else value
        yield f"{name.replace('_', ' ')}: {'none' if value is None else text}"
    yield f"bytes of all tensors: {checkpoint['file_bytes']}"
    for rank, (size, bounds) in enumerate(
        zip(checkpoint["rank_bytes"], checkpoint["bounds"], strict=True)
    ):
        yield (
            f"rank {rank} of 2: {size} bytes of weights, draft ids {bounds[0]} to {bounds[1] - 1}"
        )
    for depth in checkpoint["depths"]:
        why_not = depth["why_not"]
        said = f"no: {'; '.join(why_not)}" if why_not else "yes"
        yield f"sampled path at depth {depth['n_out']}: {said}"
