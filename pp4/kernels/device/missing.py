"""Which rows of a launch have no cached bias row, as the bits of one word.

Every warp finds them for itself: 32 rows are a word of a warp, so nothing meets at a barrier.
"""

import triton
import triton.language as tl


@triton.jit
def _of_half(first, mode_ptr, chain_ptr, slot_ptr, batch, step, target_vocab):
    """The bits of 32 rows from ``first`` on."""
    lane = tl.arange(0, 32)
    row = first + lane
    mode = tl.load(mode_ptr + row, mask=row < batch, other=0)
    previous = tl.load(chain_ptr + row * step, mask=row < batch, other=-1)
    known = (previous >= 0) & (previous < target_vocab)
    slot = tl.load(slot_ptr + previous, mask=known, other=0)
    bits = tl.sum(tl.where((mode != 0) & (slot < 0), 1 << lane, 0), 0)
    return bits.to(tl.int64) & 0xFFFFFFFF


@triton.jit
def rows(mode_ptr, chain_ptr, slot_ptr, batch, step, target_vocab):
    """The active rows with a known token and no cached bias row, a bit each; int64.

    chain_ptr: previous token of row 0; step: to that of the next row.
    """
    found = _of_half(0, mode_ptr, chain_ptr, slot_ptr, batch, step, target_vocab)
    if batch > 32:
        upper = _of_half(32, mode_ptr, chain_ptr, slot_ptr, batch, step, target_vocab)
        found = found | (upper << 32)
    return found


@triton.jit
def count(rows):
    """How many bits are set."""
    found = 0
    while rows != 0:
        rows = rows & (rows - 1)
        found += 1
    return found


@triton.jit
def lowest(rows):
    """The lowest row of some; a negative number of none.

    A power of two is a float32 with nothing but an exponent.
    """
    bit = (rows & -rows).to(tl.float32)
    return ((bit.to(tl.int32, bitcast=True) >> 23) & 0xFF) - 127


@triton.jit
def without(rows, some):
    """Some rows without so many of the lowest."""
    while some > 0:
        rows = rows & (rows - 1)
        some -= 1
    return rows
