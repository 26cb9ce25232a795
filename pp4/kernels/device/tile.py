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
from pp4.kernels.device import bf16

NARROW = tl.constexpr(layout.NARROW_BITS)
WIDE = tl.constexpr(layout.WIDE_BITS)


@triton.jit
def keys_at(words, BITS: tl.constexpr):
    """Pointer to keys where words are.

    Only an argument of a launch keeps what the compiler knows of its alignment, so places are
    counted from there.
    """
    if BITS == NARROW:
        return words.to(tl.pointer_type(tl.int32))
    else:
        return words


@triton.jit
def group_keys(ordered, first, BITS: tl.constexpr):
    """Keys of groups of which ``first`` is the number of the first one.

    ordered: ``[N]`` int32, the best value of each as :func:`bf16.order` has it.
    """
    return keys_of(bf16.image_of(ordered), first + tl.arange(0, ordered.shape[0]), BITS)


@triton.jit
def keys_of(image, number, BITS: tl.constexpr):
    """Keys of images and numbers, both int32; of equal images the lower number is the larger."""
    if BITS == WIDE:
        image = image.to(tl.int64)
        number = number.to(tl.int64)
    return (image << BITS) | (((1 << BITS) - 1) - number)


@triton.jit
def numbers_of(keys, BITS: tl.constexpr):
    """The numbers of keys, int32; any number for a key of 0."""
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
def best_groups(
    base, bias_row, stride, offset,
    TILE: tl.constexpr, GROUP: tl.constexpr, INTERPRETED: tl.constexpr,
):  # fmt: skip
    """Best value of every group of a tile of a row with a cached bias row.

    base: of :func:`load`; bias_row: pointer to the row's, padded with zeros past the shard; stride:
    columns of a padded row; offset: first column of the tile.
    -> [TILE / GROUP] int32 as :func:`bf16.order` has them.
    """
    columns = offset + tl.arange(0, TILE)
    added = tl.load(bias_row + columns, mask=columns < stride, other=0)
    return _best_of_groups(base, added, GROUP, INTERPRETED)
