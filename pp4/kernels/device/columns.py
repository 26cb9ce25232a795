"""The second phase: the best columns of a row's best groups, as candidate words."""

import triton
import triton.language as tl

from pp4.kernels.device import bf16, bitonic, markov, tile, words


@triton.jit
def top32(
    keys,
    row,
    bias_row,
    bounds,
    TILES: tl.constexpr,
    TILE: tl.constexpr,
    GROUP: tl.constexpr,
    BITS: tl.constexpr,
):
    """The 32 best columns of 32 groups, as words that fall; a bad column stands above all others.

    keys: [32], the best groups of the row.
    row: (logits of the first shard here, elements to those of the next, slots of the cache,
    elements of a bias row); bias_row: pointer to the cached one of the first shard here; bounds:
    (rank, first id of the second shard, columns of both).
    """
    logits, next_logits, slots, stride = row
    rank, split, vocab = bounds
    N: tl.constexpr = 32 * GROUP
    A_SHARD: tl.constexpr = TILES * (TILE // GROUP)
    beside = tl.arange(0, GROUP)[None, :]
    number = tile.numbers_of(keys, BITS)[:, None]
    column = tl.reshape((number % A_SHARD) * GROUP + beside, [N])
    shard = tl.reshape(number // A_SHARD + beside * 0, [N]).to(tl.int64)
    upper = (shard + rank) > 0
    real = tl.reshape((keys > 0)[:, None] & (beside >= 0), [N])
    inside = real & (column < tl.where(upper, vocab - split, split))
    base = tl.load(logits + shard * next_logits + column, mask=inside, other=bf16.MASKED)
    added = tl.load(bias_row + shard * stride * slots + column, mask=inside, other=0)
    pattern = markov.conditioned(base, added.to(tl.int32))
    token = column + tl.where(upper, split, 0)
    word = (bf16.image(pattern).to(tl.int64) << 32) | (token.to(tl.int64) ^ words.ALL_ONES)
    word = tl.where(bf16.is_finite(pattern), word, 0)
    found = tl.where(inside & bf16.is_bad(pattern), words.BAD, word)
    return bitonic.top32(found, N)
