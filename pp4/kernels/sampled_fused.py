"""The fused kernel: one launch selects, allocates and draws one position of every row of a batch.

Per row, every tile keeps its top 32 and retires; the tile that retires last finishes the shard, and
nobody spins for a block that may not run.  On a pair the finisher then exchanges 32 words with the
peer; solo, where one launch holds both shards, the shard that retires last finishes the row.  From
there both go the same way: union, tickets, draw, outputs, completion stamp.

Grid: (shards here * tiles, batch).
"""

from typing import Any

import triton
import triton.language as tl

from pp4.kernels.device import chain, exchange, meeting, outcome, tile, words

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
    SHARDS: tl.constexpr, TILES: tl.constexpr, PADDED_TILES: tl.constexpr, TILE: tl.constexpr,
    GROUP: tl.constexpr, RANK_DIM: tl.constexpr, HAS_MAP: tl.constexpr,
    INTERPRETED: tl.constexpr,
):  # fmt: skip
    shard = tl.program_id(0) // TILES
    number = tl.program_id(0) % TILES
    row = tl.program_id(1).to(tl.int64)
    batch = tl.num_programs(1)
    stride = stride128.to(tl.int64) * 128
    upper = (rank + shard) > 0
    first_id = tl.where(upper, split, 0)
    size = tl.where(upper, vocab - split, split)
    mode = tl.load(mode_ptr + row)
    place = tl.arange(0, 32)

    found = tl.full([32], 0, tl.int64)
    if mode != _INACTIVE:
        previous = tl.load(chain_ptr + row * (n_out + 1) + index)
        if (previous < 0) | (previous >= target_vocab):
            found = tl.full([32], words.PROTOCOL, tl.int64)
        else:
            slot = tl.load(slot_ptr + previous)
            logits = logits_ptr + ((shard * batch + row) * n_out + index) * stride
            bias_row = bias_ptr + (shard.to(tl.int64) * slots + tl.maximum(slot, 0)) * stride
            w1_row = w1_ptr + previous.to(tl.int64) * RANK_DIM
            w2 = w2_ptr + shard.to(tl.int64) * stride * RANK_DIM
            head = (slot >= 0, bias_row, w1_row, w2)
            keys, bad = tile.tile_top32(logits, head, size, number * TILE, TILE, GROUP, RANK_DIM)
            found = tile.tile_words(first_id, number * TILE, keys, TILE)
            found = tl.where(bad != 0, words.BAD, found)
    # scratch of a row: [SHARDS][TILES][32] lists of tiles, then [SHARDS][32] lists of shards
    scratch = candidates_ptr + row * (SHARDS * (TILES + 1) * 32)
    tl.store(scratch + (shard * TILES + number) * 32 + place, found)

    if chain.retire(retired_ptr + row * 3 + shard, TILES):
        own = chain.row_top32(scratch + shard * (TILES * 32), TILES, PADDED_TILES)
        both = scratch + SHARDS * TILES * 32
        mine = True
        if SHARDS == 2:
            mine = meeting.later_shard(own, both, retired_ptr + row * 3 + 2, shard)
        if mine:
            link = (own_workspace, peer_workspace, epoch_ptr, own_error_ptr)
            deadline = exchange.deadline_after(budget, INTERPRETED)
            limits = (deadline, max_polls, epoch_limit)
            outputs = (ids_ptr, q_ptr, token_ptr, error_ptr, stamp_ptr, waited_ptr)
            waited = tl.full([], 0, tl.int64)
            at = row * n_out + index
            next_token = chain_ptr + row * (n_out + 1) + index + 1
            if mode == _INACTIVE:
                outcome.write(outputs, at, place * 0, place * 0, 0, 0)
                tl.store(next_token, 0)
                outcome.stamp(outputs, at, tl.load(epoch_ptr + row), waited)
            else:
                if SHARDS == 2:
                    union, fault = meeting.joined(both, row, rows, link, limits, INTERPRETED)
                    told = exchange.error_at(own_workspace, rows)
                else:
                    peer_first = tl.where(rank == 0, split, 0)
                    peer_last = tl.where(rank == 0, vocab, split)
                    union, fault, waited = meeting.exchanged(
                        own, both, row, rows, link, limits, peer_first, peer_last, INTERPRETED
                    )
                    told = exchange.error_at(peer_workspace, rows)
                position = tl.load(position_ptr + row) + index
                counter = (tl.load(key_ptr + row), position, tl.load(round_ptr + row))
                fault = outcome.finish(
                    union, fault, mode == _SAMPLED, counter, outputs, at, next_token, map_ptr,
                    link, told, SHARDS == 1, HAS_MAP, INTERPRETED,
                )  # fmt: skip
                epoch = tl.load(epoch_ptr + row)
                outcome.stamp(outputs, at, tl.where(fault == 0, epoch, 0), waited)
