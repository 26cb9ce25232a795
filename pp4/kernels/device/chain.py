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
def retire(counter, count):
    """Count one arrival; -> whether it was the last of ``count``.  Everything stored is published.

    Without the barrier only the first warp's stores would be ordered before the release.
    """
    tl.debug_barrier()
    before = tl.atomic_add(counter, tl.full([], 1, tl.int64), sem="acq_rel", scope="gpu")
    return before % count == count - 1


@triton.jit
def merged(lists, LISTS: tl.constexpr, PADDED: tl.constexpr):
    """The 32 largest keys of all lists, falling.  PADDED: a power of two from LISTS."""
    number = tl.arange(0, PADDED)[:, None]
    keys = tl.load(lists + number * 32 + tl.arange(0, 32)[None, :], mask=number < LISTS, other=0)
    return bitonic.merged32(keys, PADDED)
