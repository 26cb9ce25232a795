"""Exact top 32 of integer words by an explicit bitonic network.

Words are distinct where they are not 0, so the order is total and the network's result is the one
possible result.

An exchange at distance D reads [M, 32] as [pairs, 2, D].  Each word finds the other of its pair as
the sum of both less itself, which a compiler turns into one shuffle and leaves every word where it
is, and keeps the larger or the smaller of the two.  The exchanges stand inside static loops, not in
a function of their own: the interpreter pays about a millisecond for every call of a jit function.
"""

import triton
import triton.language as tl


@triton.jit
def _merge(x, M: tl.constexpr):
    """Bitonic lists -> lists that fall in even rows and rise in odd ones.  [M, 32] -> [M, 32]."""
    half = tl.arange(0, 2)[None, :, None]
    for step in tl.static_range(5):
        pairs = tl.reshape(x, [M << step, 2, 16 >> step])
        other = tl.sum(pairs, 1, keep_dims=True) - pairs
        larger = ((tl.arange(0, M << step)[:, None, None] >> step) & 1) == half
        kept = tl.where(larger, tl.maximum(pairs, other), tl.minimum(pairs, other))
        x = tl.reshape(kept, [M, 32])
    return x


@triton.jit
def _sort_lists(x, M: tl.constexpr):
    """Any lists -> lists that fall in even rows and rise in odd ones.  [M, 32] -> [M, 32]."""
    half = tl.arange(0, 2)[None, :, None]
    for stage in tl.static_range(4):
        for step in tl.static_range(stage + 1):
            pairs = tl.reshape(x, [M * 16 >> (stage - step), 2, 1 << (stage - step)])
            other = tl.sum(pairs, 1, keep_dims=True) - pairs
            block = tl.arange(0, M * 16 >> (stage - step))[:, None, None] >> step
            larger = (block & 1) == half
            kept = tl.where(larger, tl.maximum(pairs, other), tl.minimum(pairs, other))
            x = tl.reshape(kept, [M, 32])
    return _merge(x, M)


@triton.jit
def _reduce(x, M: tl.constexpr, LEFT: tl.constexpr):
    """Falling/rising lists -> the top 32 of each M / LEFT neighbours.  [M, 32] -> [LEFT, 32].

    M and LEFT are powers of two; of what is left even rows fall and odd ones rise.  The larger of a
    falling and a rising list, place by place, are the 32 largest of both.
    """
    if M == LEFT:
        return x
    else:
        even, odd = tl.split(tl.permute(tl.reshape(x, [M // 2, 2, 32]), (0, 2, 1)))
        return _reduce(_merge(tl.maximum(even, odd), M // 2), M // 2, LEFT)


@triton.jit
def top32(x, N: tl.constexpr):
    """The 32 largest words in falling order.  [N] integers, N a power of two >= 32 -> [32]."""
    lists = _sort_lists(tl.reshape(x, [N // 32, 32]), N // 32)
    return tl.reshape(_reduce(lists, N // 32, 1), [32])


@triton.jit
def top32_of_two(x, N: tl.constexpr):
    """The 32 largest of each row, of the first falling and of the second rising.

    [2, N] -> [2, 32].
    """
    return _reduce(_sort_lists(tl.reshape(x, [N // 16, 32]), N // 16), N // 16, 2)


@triton.jit
def merged32(x, M: tl.constexpr):
    """The 32 largest of M sorted lists, those of even rows falling and the others rising.

    [M, 32], M a power of two -> [32], falling.
    """
    return tl.reshape(_reduce(x, M, 1), [32])


@triton.jit
def merged32_of_two(x, M: tl.constexpr):
    """The same of each half of M lists, of one falling and of the other rising.  -> [2, 32]."""
    return _reduce(x, M, 2)


@triton.jit
def union32(falling, rising):
    """The 32 largest of two sorted lists, one falling and one rising, in falling order."""
    return tl.reshape(_merge(tl.reshape(tl.maximum(falling, rising), [1, 32]), 1), [32])
