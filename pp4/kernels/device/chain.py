"""The retirement chain: who comes last merges what the others left, and nobody waits."""

import triton
import triton.language as tl

from pp4.kernels.device import bitonic


@triton.jit
def leave(lists, number, keys):
    """Store 32 falling keys as list ``number``; every other list rises, as a merge takes them."""
    place = tl.arange(0, 32)
    tl.store(lists + number * 32 + tl.where(number % 2 == 0, place, 31 - place), keys)


@triton.jit
def leave_two(lists, number, one, two, a_row, keys):
    """Store list ``number`` of two rows, whose lists are ``a_row`` keys apart each.

    lists: those of row 0; keys: [2, 32], of one falling and of the other rising.  Both can be the
    same row with the same keys.
    """
    second = tl.arange(0, 2)[:, None] == 1
    place = tl.arange(0, 32)[None, :]
    row = tl.where(second, two, one) * a_row
    falling = second == (number % 2 == 1)
    tl.store(lists + row + number * 32 + tl.where(falling, place, 31 - place), keys)


@triton.jit
def retire(counter, count):
    """Count one arrival; -> whether it was the last of ``count``.  Everything stored is published.

    Without the barrier only the first warp's stores would be ordered before the release.
    """
    tl.debug_barrier()
    before = tl.atomic_add(counter, tl.full([], 1, tl.int64), sem="acq_rel", scope="gpu")
    return before % count == count - 1


@triton.jit
def lists_of(lists, LISTS: tl.constexpr, PADDED: tl.constexpr):
    """All lists of a row.  PADDED: a power of two from LISTS.  -> [PADDED, 32], padded with 0."""
    number = tl.arange(0, PADDED)[:, None]
    return tl.load(lists + number * 32 + tl.arange(0, 32)[None, :], mask=number < LISTS, other=0)


@triton.jit
def nth(PADDED: tl.constexpr):
    """The place of each word of sorted lists if all fell, one list after the other.

    -> [PADDED, 32] int32.  It is its own inverse: the word that is nth lies at the same place.
    """
    number = tl.arange(0, PADDED)[:, None]
    place = tl.arange(0, 32)[None, :]
    return number * 32 + tl.where(number % 2 == 0, place, 31 - place)


@triton.jit
def merged_of_two(lists, one, two, a_row, LISTS: tl.constexpr):
    """The 32 largest keys of all lists of each of two rows, as :func:`leave_two` takes them.

    LISTS: a power of two from 2.
    """
    number = tl.arange(0, 2 * LISTS)[:, None]
    row = tl.where(number < LISTS, one, two) * a_row
    keys = tl.load(lists + row + (number % LISTS) * 32 + tl.arange(0, 32)[None, :])
    return bitonic.merged32_of_two(keys, 2 * LISTS)
