"""The fused kernel: one launch selects, allocates and draws one position of every row of a batch.

Per row, every tile keeps the 32 best groups of its columns and retires; the block that retires last
takes the 32 best groups of all and looks for the 32 best columns in them.  Rows without a cached
bias row are taken by all blocks, panel by panel of W2 and two rows at a time.  Nobody spins for a
block that may not run.  On a pair the finisher then exchanges 32 words with the peer and unites
both; solo, where one launch holds both shards, what was found is the union already.  From there
both go the same way: tickets, draw, outputs, completion stamp.

Grid: :meth:`pp4.kernels.geometry.Geometry.grid`.

A block first takes its part in every row, and only then finishes those that it was the last of, the
lower row first: of all blocks that wait for the peer the one with the lowest row can go on, on both
ranks, so nobody waits for what is not under way.
"""

from typing import Any

import triton
import triton.language as tl

from pp4.kernels.device import (
    bitonic,
    chain,
    columns,
    exchange,
    meeting,
    missing,
    outcome,
    tile,
    uncached,
    words,
)

INACTIVE = 0
SAMPLED = 1
GREEDY = 2

_INACTIVE = tl.constexpr(INACTIVE)
_SAMPLED = tl.constexpr(SAMPLED)


def interpreted(kernel: Any) -> bool:
    """Whether a kernel runs in Triton's interpreter, which has no inline assembly."""
    return not isinstance(kernel, triton.runtime.JITFunction)


POINTERS = [
    "logits_ptr", "w1_ptr", "w2_ptr", "bias_ptr", "slot_ptr", "map_ptr", "mode_ptr", "key_ptr",
    "position_ptr", "round_ptr", "chain_ptr", "ids_ptr", "q_ptr", "token_ptr", "error_ptr",
    "stamp_ptr", "waited_ptr", "candidates_ptr", "retired_ptr", "epoch_ptr", "own_error_ptr",
]  # fmt: skip
SCALARS = [
    "own_workspace", "peer_workspace", "rank", "vocab", "split", "target_vocab", "slots", "rows",
    "batch", "index", "n_out", "stride128", "budget", "max_polls", "epoch_limit",
]  # fmt: skip

ALIGNED = ("logits_ptr", "w2_ptr", "bias_ptr", "candidates_ptr")
"""Start on 16 bytes, which the host checks, so that loads may take 16 bytes at once."""


# Nothing that varies at run time makes another binary: no scalar is specialised on its value, and
# no pointer on its alignment but those that always have it.
@triton.jit(
    do_not_specialize=SCALARS,
    do_not_specialize_on_alignment=[name for name in POINTERS if name not in ALIGNED],
)
def _kernel(
    logits_ptr, w1_ptr, w2_ptr, bias_ptr, slot_ptr, map_ptr,  # head
    mode_ptr, key_ptr, position_ptr, round_ptr, chain_ptr,  # requests
    ids_ptr, q_ptr, token_ptr, error_ptr, stamp_ptr, waited_ptr,  # outputs
    candidates_ptr, retired_ptr,  # scratch of this graph
    epoch_ptr, own_error_ptr,  # state of this rank
    own_workspace: tl.int64, peer_workspace: tl.int64,  # addresses
    rank: tl.int32, vocab: tl.int32, split: tl.int32, target_vocab: tl.int32,  # bounds
    slots: tl.int32, rows: tl.int32, batch: tl.int32, index: tl.int32, n_out: tl.int32,
    stride128: tl.int32, budget: tl.int64, max_polls: tl.int64, epoch_limit: tl.int64,
    SHARDS: tl.constexpr, TILES: tl.constexpr, PADDED_LISTS: tl.constexpr, TILE: tl.constexpr,
    PANEL: tl.constexpr, GROUP: tl.constexpr, BITS: tl.constexpr, WORDS: tl.constexpr,
    HAS_MAP: tl.constexpr, INTERPRETED: tl.constexpr,
):  # fmt: skip
    number = tl.program_id(0)
    # of blocks beyond the batch there is no row: they look at one, and leave it alone
    row = tl.minimum(tl.program_id(1), batch - 1)
    PANELS: tl.constexpr = TILE // PANEL
    LISTS: tl.constexpr = SHARDS * TILES
    stride = stride128.to(tl.int64) * 128
    shard = number // TILES
    offset = (number % TILES) * TILE
    upper = (rank + shard) > 0
    size = tl.where(upper, vocab - split, split)
    next_logits = n_out * stride  # of the next row; the next shard's are a batch further on
    all_logits = logits_ptr + index * stride
    here = all_logits + shard * batch * next_logits
    # under way while the token and the place of its bias row are looked up
    base = tile.load(here + row * next_logits, offset, size, stride, TILE)
    step = n_out + 1
    tokens = chain_ptr + index
    mode = tl.load(mode_ptr + row)
    previous = tl.load(tokens + row * step)
    position = tl.load(position_ptr + row)
    key = tl.load(key_ptr + row)
    round = tl.load(round_ptr + row)
    epoch = tl.load(epoch_ptr + row) + 1
    known = (previous >= 0) & (previous < target_vocab)
    slot = tl.load(slot_ptr + previous, mask=known, other=-1)
    lacking = missing.rows(mode_ptr, tokens, slot_ptr, batch, step, target_vocab)

    # scratch, of each row: 32 words of the peer, a list of each tile, and one of each panel where
    # its bias row is not cached; Geometry.scratch_words
    A_ROW: tl.constexpr = (1 + LISTS * (1 + PANELS if PANELS > 1 else 1)) * 32
    lists = candidates_ptr + 32
    IN_A_WORD: tl.constexpr = 2 if BITS == tile.NARROW else 1
    groups = tile.keys_at(candidates_ptr, BITS) + 32 * IN_A_WORD

    # the rows that this block was the last of, a bit each
    ends = tl.full([], 0, tl.int64)
    if (tl.program_id(1) < batch) & (((lacking >> row) & 1) == 0):
        if (mode != _INACTIVE) & known:
            bias_row = bias_ptr + (shard * slots + tl.maximum(slot, 0)) * stride
            best = tile.best_groups(base, bias_row, stride, offset, TILE, GROUP, INTERPRETED)
            keys = tile.group_keys(best, number * (TILE // GROUP), BITS)
            keys = bitonic.top32(keys, TILE // GROUP)
            chain.leave(groups + row * (A_ROW * IN_A_WORD), number, keys)
        if chain.retire(retired_ptr + row, LISTS):
            ends = ends | (tl.full([], 1, tl.int64) << row)
    if lacking != 0:
        first_id = tl.where(upper, split, 0)
        of_tile = (shard * TILES + number % TILES).to(tl.int64) * (PANELS * WORDS * PANEL)
        ends = ends | uncached.take_panels(
            lacking, lists, (here, next_logits), (tokens, step), (w1_ptr, w2_ptr + of_tile),
            (retired_ptr, retired_ptr + batch), number, (offset, size, stride, first_id),
            LISTS, PANELS, PANEL, WORDS, A_ROW,
        )  # fmt: skip

    link = (own_workspace, peer_workspace, epoch_ptr, own_error_ptr)
    outputs = (ids_ptr, q_ptr, token_ptr, error_ptr, stamp_ptr, waited_ptr)
    while ends != 0:
        one = missing.lowest(ends)
        ends = ends & (ends - 1)
        kind, token, cached, now = mode, previous, slot, epoch
        counter = (key, position + index, round)
        if one != row:
            # another one than this block has looked up, so it has no cached bias row
            kind, cached = tl.load(mode_ptr + one), -1
            token = tl.load(tokens + one * step)
            position_of_it = tl.load(position_ptr + one) + index
            counter = (tl.load(key_ptr + one), position_of_it, tl.load(round_ptr + one))
            now = tl.load(epoch_ptr + one) + 1
        at = one.to(tl.int64) * n_out + index
        copy = candidates_ptr + one * A_ROW
        next_token = tokens + one * step + 1
        limits = (exchange.deadline_after(budget, INTERPRETED), max_polls, epoch_limit)
        waited = tl.full([], 0, tl.int64)
        if kind == _INACTIVE:
            nothing = tl.full([32], 0, tl.int32)
            outcome.write(outputs, at, nothing, nothing, 0, 0)
            tl.store(next_token, 0)
            outcome.stamp(outputs, at, now - 1, waited)
        else:
            union = tl.full([32], words.PROTOCOL, tl.int64)
            if (token >= 0) & (token < target_vocab):
                words_of_it = lists + one * A_ROW
                if cached < 0:
                    keys = uncached.keys_of_lists(words_of_it, LISTS, PADDED_LISTS, BITS)
                else:
                    keys_of_it = groups + one * (A_ROW * IN_A_WORD)
                    keys = chain.lists_of(keys_of_it, LISTS, PADDED_LISTS)
                keys = bitonic.merged32(keys, PADDED_LISTS)
                if cached < 0:
                    union = uncached.words_of(keys, words_of_it, LISTS, BITS)
                else:
                    union = columns.top32(
                        keys,
                        (all_logits + one * next_logits, batch * next_logits, slots, stride),
                        bias_ptr + cached * stride, (rank, split, vocab),
                        TILES, TILE, GROUP, BITS,
                    )  # fmt: skip
            if SHARDS == 2:
                fault = meeting.alone(now, one, rows, link, limits, INTERPRETED)
                told = exchange.error_at(own_workspace, rows)
            else:
                peer_first = tl.where(rank == 0, split, 0)
                peer_last = tl.where(rank == 0, vocab, split)
                union, fault, waited = meeting.exchanged(
                    union, copy, now, one, rows, link, limits, peer_first, peer_last, INTERPRETED
                )
                told = exchange.error_at(peer_workspace, rows)
            fault = outcome.finish(
                union, fault, kind == _SAMPLED, counter, outputs, at, next_token, map_ptr,
                link, told, SHARDS == 1, HAS_MAP, INTERPRETED,
            )  # fmt: skip
            outcome.stamp(outputs, at, tl.where(fault == 0, now, 0), waited)
