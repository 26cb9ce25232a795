"""The retirement chain: who comes last merges what the others left, and nobody waits."""

import triton
import triton.language as tl

from pp4.kernels.device import bitonic


@triton.jit
def retire(counter, count):
    """Count one arrival; -> whether it was the last of ``count``.  Everything stored is published.

    Without the barrier only the first warp's stores would be ordered before the release.
    """
    tl.debug_barrier()
    before = tl.atomic_add(counter, tl.full([], 1, tl.int64), sem="acq_rel", scope="gpu")
    return before % count == count - 1


@triton.jit
def _merge_lists(lists, LISTS: tl.constexpr, PADDED: tl.constexpr):
    """Falling lists [LISTS, 32] in memory -> their falling top 32.

    Exact in two steps: an element of the top 32 lies in a group of four whose head is among the 32
    largest heads, since every larger head is itself a larger element.
    """
    group = tl.arange(0, PADDED * 8)
    head = tl.load(lists + group * 4, mask=group < LISTS * 8, other=0)
    # the shift keeps a control word below 2**63 for up to 1024 lists
    tagged = bitonic.top32((head << 13) | group.to(tl.int64), PADDED * 8)
    chosen = (tagged & 8191).to(tl.int32)
    # a group whose head is empty holds nothing, and it may lie past the last list
    real = ((tagged >> 13) > 0)[:, None] & (tl.arange(0, 4) >= 0)[None, :]
    words = tl.load(lists + chosen[:, None] * 4 + tl.arange(0, 4)[None, :], mask=real, other=0)
    return bitonic.top32(tl.reshape(words, [128]), 128)


@triton.jit
def row_top32(lists, LISTS: tl.constexpr, PADDED: tl.constexpr):
    """Top 32 of a shard: its only list as it is, several merged."""
    if LISTS == 1:
        return tl.load(lists + tl.arange(0, 32))
    else:
        return _merge_lists(lists, LISTS, PADDED)
