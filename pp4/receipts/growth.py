"""Whether failed rounds or memory of an arm grew: what its verdict follows from.

Failed rounds may not grow at all over the baseline.  Memory is judged by source, twice.

**In total.**  No snapshot may be above the baseline by more than the larger of 1 % and 16 MiB.  A
source that the baseline has and a later snapshot or round lacks, or the other way round, cannot be
judged, and what cannot be judged counts as growth.

**Its slope**, so that a leak is found before it has used that allowance up.  What is looked at is
the lower envelope of the last quarter of the rounds: the quarter is cut into eight parts, and of
each part the lowest value is taken.  A high value may be an allocator's that has not freed yet;
the lowest one of a while is what is not given back.  Of the 28 pairs of parts those are counted
in which the later part is higher, or lower, by more than a 512th of the allowance (32 KiB, eight
pages, for a source below 1.6 GiB).  A source slopes where at least 22 pairs rise and at most one
falls:

* a leak rises from every part to the next: 28 pairs;
* one late allocation that stays is at most 16 pairs (four parts below, four above), and two are at
  most 21 (three, three, two);
* a sawtooth falls where it frees: each part that has a foot is below the parts before it.  No
  teeth up to half the quarter slope, and equal ones not up to seven eighths; longer ones need not
  fall in the quarter, and are judged as the leak that they look like;
* noise: of all orders of eight different parts 8 in 40,320 have at most one falling pair.

What leaks less than that 512th from part to part is not seen.  Fewer than 29 rounds have no eight
parts, and only the total judges them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise
from typing import Final, Literal

from pp4.receipts.runs import Round, Snapshot

GROWTH_FLOOR: Final = 16 * 1024 * 1024
"""Memory may grow by this many bytes or by one percent, whichever is more."""
PARTS: Final = 8
_SAME: Final = 512
"""Lowest values that differ by no more than this part of the allowance count as the same."""
_RISING: Final = 22
_FALLING: Final = 1

Growth = Literal["complete", "failed_rounds_grew", "memory_grew"]


def arm_verdict(snapshots: Sequence[Snapshot], rounds: Sequence[Round]) -> Growth:
    """Judge an arm by what there is of it; ``complete`` means that nothing has grown so far.

    Args:
        snapshots: the baseline first.
        rounds: of the arm, in their order.  The slope is about the last quarter of all of them:
            give none while rounds are still to come.
    """
    baseline, *later = snapshots
    if any(failed_rounds_grew(baseline, one) for one in later):
        return "failed_rounds_grew"
    if any(memory_grew(baseline, one) for one in later) or sloping(baseline, rounds):
        return "memory_grew"
    return "complete"


def failed_rounds_grew(baseline: Snapshot, later: Snapshot) -> bool:
    """Say whether any cause of failed rounds counts more than in the baseline."""
    return bool(more_failures(baseline, later))


def memory_grew(baseline: Snapshot, later: Snapshot) -> bool:
    """Say whether a source of memory grew past its allowance, or cannot be judged."""
    return bool(heavier(baseline, later))


def more_failures(baseline: Snapshot, later: Snapshot) -> tuple[str, ...]:
    """Return each cause that counts more rows than in the baseline, sorted."""
    before = baseline.failed_rounds
    return tuple(
        cause
        for cause, count in sorted(later.failed_rounds.items())
        if int(count) > int(before.get(cause, "0"))
    )


def heavier(baseline: Snapshot, later: Snapshot) -> tuple[str, ...]:
    """Return each source that grew past its allowance or has no number to compare, sorted."""
    before, after = baseline.memory_bytes, later.memory_bytes
    grown = {
        source
        for source in before.keys() & after.keys()
        if int(after[source]) - int(before[source]) > allowance(int(before[source]))
    }
    return tuple(sorted(grown | before.keys() ^ after.keys()))


def sloping(baseline: Snapshot, rounds: Sequence[Round]) -> tuple[str, ...]:
    """Return each source that slopes over the rounds, or that some of them lack, sorted."""
    before = baseline.memory_bytes
    odd = {source for one in rounds for source in before.keys() ^ one.memory_bytes.keys()}
    steep = {
        source
        for source in before.keys() - odd
        if slopes([int(one.memory_bytes[source]) for one in rounds], int(before[source]))
    }
    return tuple(sorted(odd | steep))


def allowance(baseline: int) -> int:
    """Return by how many bytes a source may grow over so many."""
    return max(baseline // 100, GROWTH_FLOOR)


def slopes(sizes: Sequence[int], baseline: int) -> bool:
    """Say whether what is not given back rises through the last quarter, as said above.

    Args:
        sizes: bytes at the end of each round of an arm.
        baseline: bytes in its baseline.
    """
    lows = envelope(sizes)
    same = allowance(baseline) // _SAME
    rising = sum(later - earlier > same for earlier, later in combinations(lows, 2))
    falling = sum(earlier - later > same for earlier, later in combinations(lows, 2))
    return rising >= _RISING and falling <= _FALLING


def envelope(sizes: Sequence[int]) -> list[int]:
    """Return the lowest value of each part of the last quarter; nothing where it is too short."""
    count = -(-len(sizes) // 4)
    if count < PARTS:
        return []
    last = sizes[-count:]
    edges = [part * count // PARTS for part in range(PARTS + 1)]
    return [min(last[begin:end]) for begin, end in pairwise(edges)]
