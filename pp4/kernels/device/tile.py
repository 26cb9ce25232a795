"""The first phase: the 32 best groups of neighbours in one tile.

A group stands for its best column.  Every column of the 32 best lies in one of the 32 best groups,
since each group before its own holds a column before it, so a tile leaves groups, and whoever
finishes the row looks into the 32 that are left.

A group's key is ``image << BITS | ~number``: the image of its best value, and its number over all
tiles here, so that of equal values the lower column comes first.  0 is no group.  A group with NaN
or +inf has a key above all finite ones, and is among the best whatever else there is; one of -inf
alone lies below them.
"""

import triton
import triton.language as tl

from pp4.kernels import layout
from pp4.kernels.device import bf16, markov

NARROW = tl.constexpr(layout.NARROW_BITS)
WIDE = tl.constexpr(layout.WIDE_BITS)


@triton.jit
def group_keys(ordered, first, BITS: tl.constexpr):
    """Keys of groups of which ``first`` is the number of the first one.

    ordered: ``[N]`` int32, the best value of each as :func:`bf16.order` has it.
    """
    image = bf16.image_of(ordered)
    number = first + tl.arange(0, ordered.shape[0])
    if BITS == WIDE:
        image = image.to(tl.int64)
        number = number.to(tl.int64)
    return (image << BITS) | (((1 << BITS) - 1) - number)


@triton.jit
def group_numbers(keys, BITS: tl.constexpr):
    """The groups that keys are of, int32; any number for a key of 0."""
    return (((1 << BITS) - 1) - (keys & ((1 << BITS) - 1))).to(tl.int32)


@triton.jit
def _best_of_groups(base, added, GROUP: tl.constexpr, INTERPRETED: tl.constexpr):
    """Best conditioned value of every group, before it is rounded.  [N] patterns -> [N / GROUP]."""
    ordered = bf16.order(bf16.widen(base) + bf16.widen(added), INTERPRETED)
    return tl.max(tl.reshape(ordered, [ordered.shape[0] // GROUP, GROUP]), 1)


@triton.jit
def load(logits, offset, size, stride, TILE: tl.constexpr):
    """The logits of a tile, ``[TILE]`` int16; what lies past the shard is masked.

    Rows are padded, so all but the last tile are loaded by 16 bytes without a look at the columns.
    """
    columns = offset + tl.arange(0, TILE)
    base = tl.load(logits + columns, mask=columns < stride, other=bf16.MASKED)
    if offset + TILE > size:
        base = tl.where(columns < size, base, bf16.MASKED)
    return base


@triton.jit
def best_of_span(
    logits,
    head,
    size,
    first,
    GROUP: tl.constexpr,
    SPAN: tl.constexpr,
    RANK_DIM: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """Best value of every group of SPAN columns from ``first`` on, of a row that is not cached.

    logits: pointer to the row's; head: of :func:`markov.bias`; size: columns of the shard.
    -> [SPAN / GROUP] int32 as :func:`bf16.order` has them.
    """
    columns = first + tl.arange(0, SPAN)
    inside = columns < size
    base = tl.load(logits + columns, mask=inside, other=bf16.MASKED)
    added = markov.bias(head, columns, inside, RANK_DIM, False)
    return _best_of_groups(base, added, GROUP, INTERPRETED)


@triton.jit
def best_groups(
    base,
    logits,
    head,
    size,
    stride,
    offset,
    TILE: tl.constexpr,
    GROUP: tl.constexpr,
    SPAN: tl.constexpr,
    RANK_DIM: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """Best value of every group of a tile.

    A cached row takes the tile at once; past the shard a bias row is padded with zeros.  An
    uncached row takes it in spans, or its products would not fit the registers.

    base: of :func:`load`; logits: pointer to the row's; head: of :func:`markov.bias`; size: columns
    of the shard; stride: those of a padded row; offset: first column of the tile.
    -> [TILE / GROUP] int32 as :func:`bf16.order` has them.
    """
    SPANS: tl.constexpr = TILE // SPAN
    if head[0]:
        columns = offset + tl.arange(0, TILE)
        added = tl.load(head[1] + columns, mask=columns < stride, other=0)
        best = _best_of_groups(base, added, GROUP, INTERPRETED)
    else:
        spans = tl.full([SPANS, SPAN // GROUP], 0, tl.int32)
        for span in range(SPANS):
            first = offset + span * SPAN
            found = best_of_span(logits, head, size, first, GROUP, SPAN, RANK_DIM, INTERPRETED)
            spans = tl.where(tl.arange(0, SPANS)[:, None] == span, found[None, :], spans)
        best = tl.reshape(spans, [TILE // GROUP])
    return best
