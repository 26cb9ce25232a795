"""Rows without a cached bias row: all blocks of a launch take part in them.

Such a row multiplies all of W2, which would take a tile's own block many times as long as a cached
tile, while the blocks of the other rows have nothing to do.  So the blocks of a tile share its
panels, each for two rows that take the same words of W2, and leave the 32 best columns of each as
candidate words.  Whoever is last of a tile's panels merges their lists, and retires for the tile in
both rows.
"""

import triton
import triton.language as tl

from pp4.kernels.device import bf16, bitonic, chain, markov, missing, panels, tile, words


@triton.jit
def _keys_of_panel(base, added, PANEL: tl.constexpr):
    """Image of each conditioned logit above its place, of which the lower one comes first."""
    image = bf16.image(markov.conditioned(base, added))
    return image * PANEL + (PANEL - 1 - tl.arange(0, PANEL))


@triton.jit
def _words(keys, first_id, PANEL: tl.constexpr):
    """Keys of a panel -> candidate words; a bad column stands above all others, -inf is none."""
    image = (keys // PANEL).to(tl.int64)
    token = first_id + (PANEL - 1 - keys % PANEL)
    word = (image << 32) | (token.to(tl.int64) ^ words.ALL_ONES)
    return tl.where(image > 0xFF7F, words.BAD, tl.where(image < 0x80, 0, word))


@triton.jit
def _of_panel(
    one, two, logits, tokens, pairs, bounds, PANEL: tl.constexpr, WORDS: tl.constexpr
):  # fmt: skip
    """The 32 best columns of a panel in two rows, of one falling and of the other rising.

    pairs: pointers (W1, W2 of the panel); bounds: (first column of the panel, columns of the shard,
    those of a padded row, first id of the shard); the others are of :func:`take_panels`.
    -> [2, 32] words.
    """
    first, size, stride, first_id = bounds
    found = tl.full([2, 32], 0, tl.int64)
    if first < size:
        row_0, next_logits = logits
        previous, step = tokens
        w1, w2 = pairs
        # under way while the products are made
        upper = tile.load(row_0 + one * next_logits, first, size, stride, PANEL)
        lower = tile.load(row_0 + two * next_logits, first, size, stride, PANEL)
        added, beside = panels.bias(
            w1 + tl.load(previous + one * step).to(tl.int64) * WORDS,
            w1 + tl.load(previous + two * step).to(tl.int64) * WORDS,
            w2, PANEL, WORDS,
        )  # fmt: skip
        keys = tl.join(_keys_of_panel(upper, added, PANEL), _keys_of_panel(lower, beside, PANEL))
        best = bitonic.top32_of_two(tl.permute(keys, (1, 0)), PANEL)
        found = _words(best, first_id + first, PANEL)
    return found


@triton.jit
def _retire_both(counters, one, two, first_one, LISTS: tl.constexpr):
    """Retire a tile in two rows, in either order; -> the rows that it was the last of."""
    ends = tl.full([], 0, tl.int64)
    for turn in range(2):
        row = tl.where((turn == 0) == first_one, one, two)
        if (turn == 0) | (two != one):  # noqa: SIM102 - "and" would retire in any case
            if chain.retire(counters + row, LISTS):
                ends = ends | (tl.full([], 1, tl.int64) << row)
    return ends


@triton.jit
def take_panels(
    rows, lists, logits, tokens, pairs, retired, place, bounds,
    LISTS: tl.constexpr, PANELS: tl.constexpr, PANEL: tl.constexpr, WORDS: tl.constexpr,
    A_ROW: tl.constexpr,
):  # fmt: skip
    """Take this block's part of the panels of a tile, in all rows of some.

    rows: of :func:`missing.rows`; lists: pointer to the lists of the tiles of row 0, those of their
    panels behind them, A_ROW words to the next row; logits: (pointer to row 0 in this shard,
    elements to the next row); tokens: (pointer to the previous one of row 0, elements to the next);
    pairs: pointers (W1, W2 of the tile); retired: counters (of the rows, of the panels of each tile
    of each row); place: of the tile over all shards; bounds: (first column of the tile, columns of
    the shard, those of a padded row, first id of the shard).
    -> the rows that this block was the last of, a bit each.
    """
    offset, size, stride, first_id = bounds
    of_rows, of_panels = retired
    w1, w2 = pairs
    ends = tl.full([], 0, tl.int64)
    units = PANELS * ((missing.count(rows) + 1) // 2)
    unit = tl.program_id(1)
    while unit < units:
        both = missing.without(rows, unit // PANELS * 2)
        one = missing.lowest(both)
        # an odd row is its own second
        others = both & (both - 1)
        two = tl.where(others != 0, missing.lowest(others), one)
        panel = unit % PANELS
        found = _of_panel(
            one, two, logits, tokens, (w1, w2 + panel * (WORDS * PANEL)),
            (offset + panel * PANEL, size, stride, first_id), PANEL, WORDS,
        )  # fmt: skip
        last = True
        if PANELS > 1:
            of_tile = lists + (LISTS + place * PANELS) * 32
            chain.leave_two(of_tile, panel, one, two, A_ROW, found)
            last = chain.retire(of_panels + one * LISTS + place, PANELS)
            if last:
                found = chain.merged_of_two(of_tile, one, two, A_ROW, PANELS)
        if last:
            chain.leave_two(lists, place, one, two, A_ROW, found)
            # tiles take turns, so that not one block is last in both rows
            ends = ends | _retire_both(of_rows, one, two, place % 2 == 0, LISTS)
        unit += tl.num_programs(1)
    return ends


@triton.jit
def keys_of_lists(lists, LISTS: tl.constexpr, PADDED: tl.constexpr, BITS: tl.constexpr):
    """Keys of the words of a row's lists, so that they are merged as those of groups are.

    A key holds the word's place in place of its id, which is the same order: lists lie in the
    order of their ids.  -> [PADDED, 32]
    """
    # a control word, of 17 bits, stays above all others
    image = tl.minimum(chain.lists_of(lists, LISTS, PADDED) >> 32, 0xFFFF).to(tl.int32)
    return tile.keys_of(image, chain.nth(PADDED), BITS)


@triton.jit
def words_of(best, lists, LISTS: tl.constexpr, BITS: tl.constexpr):
    """The words that 32 of these keys are of."""
    nth = tile.numbers_of(best, BITS)
    place = nth % 32
    at = nth - place + tl.where((nth // 32) % 2 == 0, place, 31 - place)
    return tl.load(lists + at, mask=at < LISTS * 32, other=0)
