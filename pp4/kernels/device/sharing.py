"""Rows without a cached bias row are shared by all blocks of a launch.

Such a row multiplies all of W2, which takes a tile's own block many times as long as a cached tile,
while the blocks of the other rows have nothing to do.  So the block of row b takes the b-th slice
of its tile in each such row, and whoever is last of a tile's slices leaves the tile's list.

A block first takes its part in every row, and only then finishes those that it was the last of,
the lower row first: of all blocks that wait for the peer the one with the lowest row can go on, on
both ranks, so nobody waits for what is not under way.
"""

import triton
import triton.language as tl

from pp4.kernels import layout
from pp4.kernels.device import bitonic, chain, tile

HELPED = tl.constexpr(layout.HELPED)
NO_ROW = tl.constexpr(64)
"""Stands for no row; rows from this one on are not shared."""


@triton.jit
def _next(rows, after):
    """The first of some rows after one of them."""
    return tl.min(tl.where(rows > after, rows, NO_ROW), 0)


@triton.jit
def shared_rows(mode_ptr, chain_ptr, slot_ptr, batch, step, target_vocab):
    """The active rows with a known token and no cached bias row, rising; none if there are more.

    chain_ptr: previous token of row 0; step: to that of the next row.
    -> four int32, NO_ROW where there is none.
    """
    row = tl.arange(0, NO_ROW)
    mode = tl.load(mode_ptr + row, mask=row < batch, other=0)
    previous = tl.load(chain_ptr + row * step, mask=row < batch, other=-1)
    known = (previous >= 0) & (previous < target_vocab)
    slot = tl.load(slot_ptr + previous, mask=known, other=0)
    rows = tl.where((mode != 0) & (slot < 0), row, NO_ROW)
    first = tl.min(rows, 0)
    second, third, fourth = NO_ROW + 0, NO_ROW + 0, NO_ROW + 0
    if first < NO_ROW:
        second = _next(rows, first)
        third = _next(rows, second)
        fourth = _next(rows, third)
        if _next(rows, fourth) < NO_ROW:
            # the blocks of the others have as much to do: nobody is there to help
            first, second, third, fourth = NO_ROW + 0, NO_ROW + 0, NO_ROW + 0, NO_ROW + 0
    return first, second, third, fourth


@triton.jit
def nth(rows, index):
    """One of the shared rows."""
    first, second, third, fourth = rows
    early = tl.where(index == 0, first, second)
    return tl.where(index < 2, early, tl.where(index == 2, third, fourth))


@triton.jit
def lowest(ends):
    """The place of the lowest bit of some shared rows; any place where no bit is set."""
    early = tl.where((ends & 1) > 0, 0, 1)
    return tl.where((ends & 3) > 0, early, tl.where((ends & 4) > 0, 2, 3))


@triton.jit
def slices_of(batch, SPANS: tl.constexpr):
    """How many slices a tile has: a power of two, of at least a span, a block for each."""
    slices = 1
    for power in tl.static_range(1, 6):
        fits = (batch >= (1 << power)) & ((1 << power) <= SPANS)
        slices = tl.where(fits, 1 << power, slices)
    return slices


@triton.jit
def take_slice(
    maxima,
    counter,
    lists,
    number,
    slice,
    slices,
    logits,
    head,
    size,
    offset,
    TILE: tl.constexpr,
    GROUP: tl.constexpr,
    SPAN: tl.constexpr,
    BITS: tl.constexpr,
    RANK_DIM: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """Do one slice of a tile of a shared row; -> whether the tile's list was left with it.

    maxima: pointer to the [TILE / GROUP] keys of the tile; counter: of its slices; lists: of the
    row; number: of the tile; slice: which of ``slices``; logits, head: of the row in this shard;
    size: columns of the shard; offset: first column of the tile.
    """
    GROUPS: tl.constexpr = SPAN // GROUP
    spans = (TILE // SPAN) // slices
    span = slice * spans
    # a while: the interpreter of Triton 3.6 does not count to a number that is no constant
    while span < (slice + 1) * spans:
        first = offset + span * SPAN
        best = tile.best_of_span(logits, head, size, first, GROUP, SPAN, RANK_DIM, INTERPRETED)
        keys = tile.group_keys(best, number * (TILE // GROUP) + span * GROUPS, BITS)
        tl.store(maxima + span * GROUPS + tl.arange(0, GROUPS), keys)
        span += 1
    last = chain.retire(counter, slices)
    if last:
        keys = tl.load(maxima + tl.arange(0, TILE // GROUP))
        chain.leave(lists, number, bitonic.top32(keys, TILE // GROUP))
    return last
