"""The second phase: the best columns of a row's best groups, as candidate words."""

import triton
import triton.language as tl

from pp4.kernels.device import bf16, bitonic, markov, tile, words


@triton.jit
def _words(
    keys,
    row,
    head,
    bounds,
    TILES: tl.constexpr,
    TILE: tl.constexpr,
    GROUP: tl.constexpr,
    BITS: tl.constexpr,
    RANK_DIM: tl.constexpr,
    CACHED: tl.constexpr,
):
    """Words of all columns of some groups.  ``[N]`` keys of groups -> ``[N * GROUP]`` int64."""
    logits, next_logits, slots, stride = row
    rank, split, vocab = bounds
    N: tl.constexpr = keys.shape[0] * GROUP
    A_SHARD: tl.constexpr = TILES * (TILE // GROUP)
    beside = tl.arange(0, GROUP)[None, :]
    number = tile.group_numbers(keys, BITS)[:, None]
    column = tl.reshape((number % A_SHARD) * GROUP + beside, [N])
    shard = tl.reshape(number // A_SHARD + beside * 0, [N]).to(tl.int64)
    upper = (shard + rank) > 0
    real = tl.reshape((keys > 0)[:, None] & (beside >= 0), [N])
    inside = real & (column < tl.where(upper, vocab - split, split))
    base = tl.load(logits + shard * next_logits + column, mask=inside, other=bf16.MASKED)
    # bias rows of a shard, or rows of W2
    at = shard * stride * (slots if CACHED else 1) + column
    pattern = markov.conditioned(base, markov.bias(head, at, inside, RANK_DIM, CACHED))
    token = column + tl.where(upper, split, 0)
    word = (bf16.image(pattern).to(tl.int64) << 32) | (token.to(tl.int64) ^ words.ALL_ONES)
    word = tl.where(bf16.is_finite(pattern), word, 0)
    return tl.where(inside & bf16.is_bad(pattern), words.BAD, word)


@triton.jit
def top32(
    keys,
    copy,
    row,
    head,
    bounds,
    TILES: tl.constexpr,
    TILE: tl.constexpr,
    GROUP: tl.constexpr,
    SPAN: tl.constexpr,
    BITS: tl.constexpr,
    RANK_DIM: tl.constexpr,
):
    """The 32 best columns of 32 groups, as words that fall; a bad column stands above all others.

    keys: [32], the best groups of the row.
    copy: pointer to 32 keys of scratch; a row without a bias row takes its groups from there.
    row: (logits of the first shard here, elements to those of the next, slots of the cache,
    elements of a bias row); head: of :func:`markov.bias`, of the first shard here; bounds: (rank,
    first id of the second shard, columns of both).
    """
    if head[0]:
        found = _words(keys, row, head, bounds, TILES, TILE, GROUP, BITS, RANK_DIM, True)
    else:
        GROUPS: tl.constexpr = SPAN // GROUP if SPAN // GROUP < 32 else 32
        SPANS: tl.constexpr = 32 // GROUPS
        tl.store(copy + tl.arange(0, 32), keys)
        tl.debug_barrier()
        spans = tl.full([SPANS, GROUPS * GROUP], 0, tl.int64)
        for span in range(SPANS):
            some = tl.load(copy + span * GROUPS + tl.arange(0, GROUPS))
            part = _words(some, row, head, bounds, TILES, TILE, GROUP, BITS, RANK_DIM, False)
            spans = tl.where(tl.arange(0, SPANS)[:, None] == span, part[None, :], spans)
        found = tl.reshape(spans, [32 * GROUP])
    return bitonic.top32(found, 32 * GROUP)
