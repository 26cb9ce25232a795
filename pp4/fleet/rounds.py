"""Rounds of disjoint pairs of a node's GPUs, numbered from 0.

Round-robin by the circle method: one GPU stands still, the others move on by one place each round,
and whoever stand opposite each other are a pair.  An odd number gets an empty place, whose
partner has a bye.
"""

from __future__ import annotations

from typing import Final

from pp4.errors import BadInputError

Pair = tuple[int, int]
"""Two GPUs of one node, the lower number first."""
Round = tuple[Pair, ...]

MOST_GPUS: Final = 64
"""Most GPUs of a node."""


def exhaustive(gpus: int) -> tuple[Round, ...]:
    """Return rounds that hold every pair exactly once.

    Args:
        gpus: of the node, 2 to :data:`MOST_GPUS`.

    Returns:
        ``gpus - 1`` rounds of ``gpus / 2`` pairs; for an odd number ``gpus`` rounds of
        ``(gpus - 1) / 2``.  No fewer rounds can hold all pairs.

    Raises:
        BadInputError: a number of GPUs that has no pair, or too many.
    """
    if not 2 <= gpus <= MOST_GPUS:
        raise BadInputError.of("GPUs of a node", f"2 to {MOST_GPUS}", str(gpus))
    places = gpus + gpus % 2
    moving = places - 1
    rounds = []
    for turn in range(moving):
        circle = [moving, *((turn + step) % moving for step in range(moving))]
        opposite = zip(circle[: places // 2], reversed(circle[places // 2 :]), strict=True)
        pairs = sorted((min(two), max(two)) for two in opposite)
        rounds.append(tuple(pair for pair in pairs if pair[1] < gpus))
    return tuple(rounds)


def quick(gpus: int) -> tuple[Round, ...]:
    """Return the fewest rounds in which every GPU has two different partners, where it can.

    Two rounds for an even number: the first two of :func:`exhaustive` are one ring through all
    GPUs.  An odd number has a bye in each round, and three rounds; two GPUs have one pair.

    Args:
        gpus: of the node, 2 to :data:`MOST_GPUS`.

    Raises:
        BadInputError: as for :func:`exhaustive`.
    """
    return exhaustive(gpus)[: 3 if gpus % 2 else 2]


def all_pairs(gpus: int) -> int:
    """Return how many pairs so many GPUs have."""
    return gpus * (gpus - 1) // 2
