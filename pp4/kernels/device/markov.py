"""The Markov bias of a previous token and the conditioned logit, bit for bit by a fixed tree."""

import triton
import triton.language as tl

from pp4.kernels.device import bf16

_AT_ONCE = tl.constexpr(2048)
"""Products of a block at once, 16 a thread of four warps."""


@triton.jit
def _fold(x, N: tl.constexpr, WIDTH: tl.constexpr):
    """Halving tree over the last axis: x[:W/2] + x[W/2:] down to one value.  [N, WIDTH] -> [N]."""
    if WIDTH == 1:
        return tl.reshape(x, [N])
    else:
        low, high = tl.split(tl.permute(tl.reshape(x, [N, 2, WIDTH // 2]), (0, 2, 1)))
        return _fold(low + high, N, WIDTH // 2)


@triton.jit
def _strided(
    w1_row,
    w2,
    columns,
    inside,
    FIRST: tl.constexpr,
    STRIDE: tl.constexpr,
    CHUNK: tl.constexpr,
    RANK_DIM: tl.constexpr,
):
    """Partial sums over the chunks FIRST, FIRST + STRIDE, ... in the order of the halving tree.

    The tree adds r and r + R/2 first, then r and r + R/4, and so on, so the sum over one stride is
    the sum of the two sums over twice that stride.  -> [N, CHUNK] float32.
    """
    if STRIDE * CHUNK == RANK_DIM:
        r = FIRST * CHUNK + tl.arange(0, CHUNK)
        left = bf16.widen(tl.load(w1_row + r))
        at = columns.to(tl.int64)[:, None] * RANK_DIM + r[None, :]
        right = bf16.widen(tl.load(w2 + at, mask=inside[:, None], other=0))
        return left[None, :] * right
    else:
        near = _strided(w1_row, w2, columns, inside, FIRST, STRIDE * 2, CHUNK, RANK_DIM)
        far = _strided(w1_row, w2, columns, inside, FIRST + STRIDE, STRIDE * 2, CHUNK, RANK_DIM)
        return near + far


@triton.jit
def bias(w1_row, w2, columns, inside, RANK_DIM: tl.constexpr):
    """BF16 pattern of the bias of each column by the tree.

    w1_row: pointer to [RANK_DIM], w2: to [columns, RANK_DIM] int16 patterns; columns: [N] ints;
    inside: [N] bool.  -> [N] int32.
    """
    # Few columns in long pieces: a warp's load touches fewer lines of memory.
    N: tl.constexpr = columns.shape[0]
    MOST: tl.constexpr = 64 if N <= _AT_ONCE // 64 else (_AT_ONCE + N - 1) // N
    CHUNK: tl.constexpr = MOST if RANK_DIM > MOST else RANK_DIM
    partial = _strided(w1_row, w2, columns, inside, 0, 1, CHUNK, RANK_DIM)
    return bf16.round_to_bf16(_fold(partial, N, CHUNK))


@triton.jit
def conditioned(base, added):
    """BF16 pattern of base + bias.  [N] int16 and [N] int32 patterns -> [N] int32, 0..0xFFFF."""
    return bf16.round_to_bf16(bf16.widen(base) + bf16.widen(added))
