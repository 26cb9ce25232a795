"""A draw from ``max(P - Q, 0)`` without a second pass: Q is zero but for 32 ids.

So the sum over any span of ids is the sum of the floors there, and a change for each taken id and
for the largest floor.  The draw goes down three levels: tiles, whose sums are known, parts of one
tile, ids of one part.
"""

import triton
import triton.language as tl

from pp4.verifier.device import columns, words
from pp4.verifier.units import TICKET_WEIGHT, TOTAL, Mode

_SAMPLED = tl.constexpr(int(Mode.SAMPLED))
_DELTA = tl.constexpr(int(Mode.DELTA))
_TOTAL = tl.constexpr(TOTAL)
_TICKET_WEIGHT = tl.constexpr(TICKET_WEIGHT)


@triton.jit
def changes(proposal, stop, rejected, p, largest):
    """What a residual changes, nothing for a bonus; -> (ids [32] int32, changes [32] int64 <= 0).

    p: the distribution at stop, in memory; largest: (its first, rest).
    """
    ids_ptr, tickets_ptr, tokens_ptr, mode = proposal
    first, rest = largest
    slot = tl.arange(0, 32)
    listed = rejected & (mode == _SAMPLED) & (slot >= 0)
    ids = tl.load(ids_ptr + stop * 32 + slot, mask=listed, other=-1)
    tickets = tl.load(tickets_ptr + stop * 32 + slot, mask=listed, other=0)
    # a delta takes everything off its token
    alone = rejected & (mode == _DELTA) & (slot == 0)
    ids = tl.where(alone, tl.load(tokens_ptr + stop, mask=rejected, other=-1), ids)
    amounts = tl.where(alone, _TOTAL, tickets.to(tl.int64) * _TICKET_WEIGHT)
    taken = amounts > 0
    weights = columns.floors(tl.load(p + ids, mask=taken, other=0.0))
    weights += tl.where(ids == first, rest, 0)
    return ids, tl.where(taken, tl.maximum(weights - amounts, 0) - weights, 0)


@triton.jit
def _changed(sums, base, taken, largest, WIDTH: tl.constexpr, COUNT: tl.constexpr):
    """Sums [COUNT] of floors over spans of WIDTH ids from base on -> those of the residual."""
    ids, differences = taken
    first, rest = largest
    lower = base + tl.arange(0, COUNT) * WIDTH
    # over the first axis: what a thread has of it, it adds up by itself
    here = (ids[:, None] >= lower[None, :]) & (ids[:, None] < lower[None, :] + WIDTH)
    sums += tl.sum(tl.where(here, differences[:, None], 0), 0)
    return sums + tl.where((first >= lower) & (first < lower + WIDTH), rest, 0)


@triton.jit
def _entered(sums, place, COUNT: tl.constexpr):
    """The first span whose running sum exceeds a place; -> (its index, the place inside of it)."""
    span = tl.sum((tl.cumsum(sums, 0) <= place).to(tl.int32), 0)
    before = tl.sum(tl.where(tl.arange(0, COUNT) < span, sums, 0), 0)
    return span, place - before


@triton.jit
def drawn(
    sums_ptr, tiles, target, taken, largest, u,
    TILES: tl.constexpr, TILE: tl.constexpr, PART: tl.constexpr,
):  # fmt: skip
    """The id that a word draws, and the sum of all weights; no id where that is not above 0.

    sums_ptr: [tiles] sums of floors; target: (p, vocabulary), p [vocabulary] in memory.
    """
    p, vocabulary = target
    PARTS: tl.constexpr = TILE // PART
    tile = tl.arange(0, TILES)
    sums = tl.load(sums_ptr + tile, mask=tile < tiles, other=0)
    sums = _changed(sums, 0, taken, largest, TILE, TILES)
    total = tl.sum(sums, 0)
    span, left = _entered(sums, words.share(u, total), TILES)

    base = span * TILE
    inner = tl.arange(0, PART)
    at = base + tl.arange(0, PARTS)[:, None] * PART + inner[None, :]
    sums = tl.sum(columns.floors(tl.load(p + at, mask=at < vocabulary, other=0.0)), 1)
    span, left = _entered(_changed(sums, base, taken, largest, PART, PARTS), left, PARTS)

    base += span * PART
    at = base + inner
    weights = columns.floors(tl.load(p + at, mask=at < vocabulary, other=0.0))
    span, _ = _entered(_changed(weights, base, taken, largest, 1, PART), left, PART)
    return base + span, total
