"""The first phase: the 32 best columns of one tile, as candidate words."""

import triton
import triton.language as tl

from pp4.kernels.device import bf16, bitonic, markov, words


@triton.jit
def _keys(pattern, place, inside, TILE: tl.constexpr):
    """Conditioned patterns -> keys; 0 where the column is masked or outside."""
    key = bf16.image(pattern) * TILE + (TILE - 1 - place)
    return tl.where(inside & bf16.is_finite(pattern), key, 0)


@triton.jit
def _best_of_groups(
    logits,
    head,
    size,
    offset,
    column,
    TILE: tl.constexpr,
    SPAN: tl.constexpr,
    GROUP: tl.constexpr,
    RANK_DIM: tl.constexpr,
    CACHED: tl.constexpr,
):
    """Best key of every group of neighbours in SPAN columns of a tile; -> ([SPAN / GROUP], bad)."""
    place = column + tl.arange(0, SPAN)
    inside = offset + place < size
    base = tl.load(logits + offset + place, mask=inside, other=0)
    added = markov.bias(head, offset + place, inside, RANK_DIM, CACHED)
    pattern = markov.conditioned(base, added)
    bad = tl.max((inside & bf16.is_bad(pattern)).to(tl.int32), 0)
    keys = _keys(pattern, place, inside, TILE)
    return tl.max(tl.reshape(keys, [SPAN // GROUP, GROUP]), 1), bad


@triton.jit
def _first_level(
    logits, head, size, offset, TILE: tl.constexpr, GROUP: tl.constexpr, RANK_DIM: tl.constexpr
):
    """Best key of every group of a tile; -> ([TILE / GROUP], whether any column is bad).

    A cached row takes the tile at once.  An uncached row takes it in spans, or the products of
    RANK_DIM terms a column would not fit the registers.
    """
    SPAN: tl.constexpr = 128 if TILE > 128 else TILE
    SPANS: tl.constexpr = TILE // SPAN
    if head[0]:
        best, bad = _best_of_groups(
            logits, head, size, offset, 0, TILE, TILE, GROUP, RANK_DIM, True
        )
    else:
        spans = tl.full([SPANS, SPAN // GROUP], 0, tl.int32)
        bad = 0
        for span in range(SPANS):
            some, wrong = _best_of_groups(
                logits, head, size, offset, span * SPAN, TILE, SPAN, GROUP, RANK_DIM, False
            )
            spans = tl.where(tl.arange(0, SPANS)[:, None] == span, some[None, :], spans)
            bad = tl.maximum(bad, wrong)
        best = tl.reshape(spans, [TILE // GROUP])
    return best, bad


@triton.jit
def tile_top32(
    logits, head, size, offset, TILE: tl.constexpr, GROUP: tl.constexpr, RANK_DIM: tl.constexpr
):
    """Top 32 keys of one tile, and whether any of its columns is bad.

    Two exact steps, as in ``chain.py``: the best of every group of neighbours, the 32 best groups,
    their columns again.
    """
    best, bad = _first_level(logits, head, size, offset, TILE, GROUP, RANK_DIM)
    best = bitonic.top32(best, TILE // GROUP)
    group = (TILE - 1 - (best & (TILE - 1))) // GROUP
    place = tl.reshape(group[:, None] * GROUP + tl.arange(0, GROUP)[None, :], [32 * GROUP])
    real = tl.reshape((best > 0)[:, None] & (tl.arange(0, GROUP) >= 0)[None, :], [32 * GROUP])
    inside = real & (offset + place < size)
    base = tl.load(logits + offset + place, mask=inside, other=0)
    if head[0]:
        added = markov.bias(head, offset + place, inside, RANK_DIM, True)
    else:
        added = markov.bias(head, offset + place, inside, RANK_DIM, False)
    pattern = markov.conditioned(base, added)
    return bitonic.top32(_keys(pattern, place, inside, TILE), 32 * GROUP), bad


@triton.jit
def tile_words(base, offset, keys, TILE: tl.constexpr):
    """Keys of a tile (image << log2 TILE | inverted place) -> candidate words."""
    column = offset + (TILE - 1 - (keys & (TILE - 1)))
    word = ((keys // TILE).to(tl.int64) << 32) | ((base + column).to(tl.int64) ^ words.ALL_ONES)
    return tl.where(keys > 0, word, 0)
