"""The fused kernel: one launch selects, allocates and draws one position of every row of a batch.

Per row, every tile keeps the 32 best groups of its columns and retires; the tile that retires last
takes the 32 best groups of all and looks for the 32 best columns in them.  Nobody spins for a block
that may not run.  On a pair the finisher then exchanges 32 words with the peer and unites both;
solo, where one launch holds both shards, what was found is the union already.  From there both go
the same way: tickets, draw, outputs, completion stamp.

Grid: (shards here * tiles, batch).
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
    outcome,
    sharing,
    tile,
    words,
)
from pp4.kernels.layout import HELPED

INACTIVE = 0
SAMPLED = 1
GREEDY = 2

_INACTIVE = tl.constexpr(INACTIVE)
_SAMPLED = tl.constexpr(SAMPLED)
_OWN = tl.constexpr(1 << HELPED)


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
    "index", "n_out", "stride128", "budget", "max_polls", "epoch_limit",
]  # fmt: skip

ALIGNED = ("logits_ptr", "w1_ptr", "w2_ptr", "bias_ptr", "candidates_ptr")
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
    slots: tl.int32, rows: tl.int32, index: tl.int32, n_out: tl.int32, stride128: tl.int32,
    budget: tl.int64, max_polls: tl.int64, epoch_limit: tl.int64,
    SHARDS: tl.constexpr, TILES: tl.constexpr, PADDED_LISTS: tl.constexpr, TILE: tl.constexpr,
    GROUP: tl.constexpr, SPAN: tl.constexpr, BITS: tl.constexpr, RANK_DIM: tl.constexpr,
    HAS_MAP: tl.constexpr, INTERPRETED: tl.constexpr,
):  # fmt: skip
    number = tl.program_id(0)
    row = tl.program_id(1)
    batch = tl.num_programs(1)
    LISTS: tl.constexpr = SHARDS * TILES
    GROUPS: tl.constexpr = TILE // GROUP
    stride = stride128.to(tl.int64) * 128
    shard = number // TILES
    offset = (number % TILES) * TILE
    size = tl.where((rank + shard) > 0, vocab - split, split)
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
    w2 = w2_ptr + shard * stride * RANK_DIM

    # scratch, in keys: of each row 32 words of the peer and the lists of all tiles, then the best
    # of all groups of the shared rows; Geometry.scratch_words
    IN_A_WORD: tl.constexpr = 2 if BITS == tile.NARROW else 1
    A_ROW: tl.constexpr = (IN_A_WORD + LISTS) * 32
    scratch = candidates_ptr
    if BITS == tile.NARROW:
        scratch = candidates_ptr.to(tl.pointer_type(tl.int32))
    lists = scratch + 32 * IN_A_WORD
    maxima = scratch + batch * A_ROW

    SPANS: tl.constexpr = TILE // SPAN
    none = sharing.NO_ROW + 0
    shared = (none, none, none, none)
    slices = sharing.slices_of(batch, SPANS)
    if slices > 1:
        shared = sharing.shared_rows(mode_ptr, tokens, slot_ptr, batch, step, target_vocab)
    mine = (row != shared[0]) & (row != shared[1]) & (row != shared[2]) & (row != shared[3])
    # what this block was the last of: a bit for each shared row, and one for its own
    ends = 0
    if mine:
        if (mode != _INACTIVE) & known:
            bias_row = bias_ptr + (shard * slots + tl.maximum(slot, 0)) * stride
            w1_row = w1_ptr + previous.to(tl.int64) * RANK_DIM
            best = tile.best_groups(
                base, here + row * next_logits, (slot >= 0, bias_row, w1_row, w2), size, stride,
                offset, TILE, GROUP, SPAN, RANK_DIM, INTERPRETED,
            )  # fmt: skip
            keys = tile.group_keys(best, number * GROUPS, BITS)
            chain.leave(lists + row * A_ROW, number, bitonic.top32(keys, GROUPS))
        if chain.retire(retired_ptr + row, LISTS):
            ends = _OWN
    if (shared[0] < none) & (row < slices):
        for place in range(sharing.HELPED):
            other = sharing.nth(shared, place)
            if other < none:
                token = tl.load(tokens + other * step).to(tl.int64)
                left = sharing.take_slice(
                    maxima + (place * LISTS + number) * GROUPS,
                    retired_ptr + batch + place * LISTS + number,
                    lists + other * A_ROW, number, row, slices,
                    here + other * next_logits, (False, bias_ptr, w1_ptr + token * RANK_DIM, w2),
                    size, offset, TILE, GROUP, SPAN, BITS, RANK_DIM, INTERPRETED,
                )  # fmt: skip
                if left:  # noqa: SIM102 - "and" would retire in any case
                    if chain.retire(retired_ptr + other, LISTS):
                        ends = ends | (1 << place)

    link = (own_workspace, peer_workspace, epoch_ptr, own_error_ptr)
    outputs = (ids_ptr, q_ptr, token_ptr, error_ptr, stamp_ptr, waited_ptr)
    while ends > 0:
        place = sharing.lowest(ends)
        other = sharing.nth(shared, place)
        one, kind, token, cached, now = row, mode, previous, slot, epoch
        counter = (key, position + index, round)
        if (ends != _OWN) & ((ends < _OWN) | (other < row)):
            # another row than the one that this block has looked up
            one, cached = other, -1
            kind = tl.load(mode_ptr + other)
            token = tl.load(tokens + other * step)
            position_of_other = tl.load(position_ptr + other) + index
            counter = (tl.load(key_ptr + other), position_of_other, tl.load(round_ptr + other))
            now = tl.load(epoch_ptr + other) + 1
            ends = ends ^ (1 << place)
        else:
            ends = ends ^ _OWN
        at = one.to(tl.int64) * n_out + index
        copy = candidates_ptr + one * (A_ROW // IN_A_WORD)
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
                keys = chain.merged(lists + one * A_ROW, LISTS, PADDED_LISTS)
                bias_row = bias_ptr + tl.maximum(cached, 0) * stride
                w1_row = w1_ptr + token.to(tl.int64) * RANK_DIM
                union = columns.top32(
                    keys, scratch + one * A_ROW,
                    (all_logits + one * next_logits, batch * next_logits, slots, stride),
                    (cached >= 0, bias_row, w1_row, w2_ptr), (rank, split, vocab),
                    TILES, TILE, GROUP, SPAN, BITS, RANK_DIM,
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
