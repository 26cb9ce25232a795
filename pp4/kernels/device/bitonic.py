"""Exact top 32 of integer words by an explicit bitonic network.

Words are distinct where they are not 0, so the order is total and the network's result is the one
possible result.  A block that must fall the other way is complemented before its stage and back
after it: ``~a < ~b`` exactly where ``a > b``, and every exchange then puts the larger first.

The exchanges stand inside static loops, not in a function of their own: the interpreter pays about
a millisecond for every call of a jit function.  An exchange at distance D reads [M, 32] as
[pairs, 2, D] and orders the middle axis.
"""

import triton
import triton.language as tl


@triton.jit
def _merge(x, M: tl.constexpr):
    """Bitonic lists -> lists that fall in even rows and rise in odd ones.  [M, 32] -> [M, 32]."""
    turned = (0 - (tl.arange(0, M)[:, None] & 1)).to(x.dtype)
    x = x ^ turned
    for step in tl.static_range(5):
        a, b = tl.split(tl.permute(tl.reshape(x, [M << step, 2, 16 >> step]), (0, 2, 1)))
        pairs = tl.join(tl.maximum(a, b), tl.minimum(a, b))
        x = tl.reshape(tl.permute(pairs, (0, 2, 1)), [M, 32])
    return x ^ turned


@triton.jit
def _sort_lists(x, M: tl.constexpr):
    """Any lists -> lists that fall in even rows and rise in odd ones.  [M, 32] -> [M, 32]."""
    place = tl.arange(0, 32)[None, :]
    for stage in tl.static_range(4):
        turned = (0 - ((place >> (stage + 1)) & 1)).to(x.dtype)
        x = x ^ turned
        for step in tl.static_range(stage + 1):
            pairs = tl.reshape(x, [M * 16 >> (stage - step), 2, 1 << (stage - step)])
            a, b = tl.split(tl.permute(pairs, (0, 2, 1)))
            pairs = tl.join(tl.maximum(a, b), tl.minimum(a, b))
            x = tl.reshape(tl.permute(pairs, (0, 2, 1)), [M, 32])
        x = x ^ turned
    return _merge(x, M)


@triton.jit
def _reduce(x, M: tl.constexpr):
    """Falling/rising lists -> the falling top 32 of all.  [M, 32] -> [1, 32], M a power of two.

    The larger of a falling and a rising list, place by place, are the 32 largest of both.
    """
    if M == 1:
        return x
    else:
        even, odd = tl.split(tl.permute(tl.reshape(x, [M // 2, 2, 32]), (0, 2, 1)))
        return _reduce(_merge(tl.maximum(even, odd), M // 2), M // 2)


@triton.jit
def top32(x, N: tl.constexpr):
    """The 32 largest words in falling order.  [N] integers, N a power of two >= 32 -> [32]."""
    lists = _sort_lists(tl.reshape(x, [N // 32, 32]), N // 32)
    return tl.reshape(_reduce(lists, N // 32), [32])


@triton.jit
def union32(falling, rising):
    """The 32 largest of two sorted lists, one falling and one rising, in falling order."""
    return tl.reshape(_merge(tl.reshape(tl.maximum(falling, rising), [1, 32]), 1), [32])
