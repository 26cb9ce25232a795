"""The fused kernel: one launch selects, allocates and draws one position of every row of a batch.

Per row, every tile keeps its top 32 and retires; the tile that retires last finishes the shard, and
nobody spins for a block that may not run.  On a pair the finisher then exchanges 32 words with the
peer; solo, where one launch holds both shards, the shard that retires last finishes the row.  From
there both go the same way: union, tickets, draw, outputs, completion stamp.

Grid: (shards here * tiles, batch).  Candidate words are ``image << 32 | ~id``; 0 is no candidate
and the two control words lie above every candidate.
"""

from typing import Any

import triton
import triton.language as tl

from pp4.kernels.device import bf16, bitonic, exchange, markov, tickets
from pp4.kernels.faults import Fault
from pp4.kernels.purposes import Purpose

INACTIVE = 0
SAMPLED = 1
GREEDY = 2

_INACTIVE = tl.constexpr(INACTIVE)
_SAMPLED = tl.constexpr(SAMPLED)
_DRAFT = tl.constexpr(int(Purpose.DRAFT))
_EMPTY_ROW = tl.constexpr(int(Fault.EMPTY_ROW))
_BAD_LOGITS = tl.constexpr(int(Fault.BAD_LOGITS))
_PROTOCOL = tl.constexpr(int(Fault.PROTOCOL))
_EPOCH_EXHAUSTED = tl.constexpr(int(Fault.EPOCH_EXHAUSTED))
_ALL_ONES = tl.constexpr(0xFFFFFFFF)
_BAD_WORD = tl.constexpr(0x10000 << 32)
_PROTOCOL_WORD = tl.constexpr(0x10001 << 32)


def interpreted(kernel: Any) -> bool:
    """Whether a kernel runs in Triton's interpreter, which has no inline assembly."""
    return not isinstance(kernel, triton.runtime.JITFunction)


@triton.jit
def _retire(counter, count):
    """Count one arrival; -> whether it was the last of ``count``.  Everything stored is published.

    Without the barrier only the first warp's stores would be ordered before the release.
    """
    tl.debug_barrier()
    before = tl.atomic_add(counter, tl.full([], 1, tl.int64), sem="acq_rel", scope="gpu")
    return before % count == count - 1


@triton.jit
def _merge_lists(lists, LISTS: tl.constexpr, PADDED: tl.constexpr):
    """Falling lists [LISTS, 32] in memory -> their falling top 32.

    Exact in two steps: an element of the top 32 lies in a group of four whose head is among the 32
    largest heads, since every larger head is itself a larger element.
    """
    group = tl.arange(0, PADDED * 8)
    head = tl.load(lists + group * 4, mask=group < LISTS * 8, other=0)
    # the shift keeps a control word below 2**63 for up to 1024 lists
    tagged = bitonic.top32((head << 13) | group.to(tl.int64), PADDED * 8)
    chosen = (tagged & 8191).to(tl.int32)
    # a group whose head is empty holds nothing, and it may lie past the last list
    real = ((tagged >> 13) > 0)[:, None] & (tl.arange(0, 4) >= 0)[None, :]
    words = tl.load(lists + chosen[:, None] * 4 + tl.arange(0, 4)[None, :], mask=real, other=0)
    return bitonic.top32(tl.reshape(words, [128]), 128)


@triton.jit
def _tile_words(base, offset, keys, TILE: tl.constexpr):
    """Keys of a tile (image << log2 TILE | inverted place) -> candidate words."""
    column = offset + (TILE - 1 - (keys & (TILE - 1)))
    word = ((keys // TILE).to(tl.int64) << 32) | ((base + column).to(tl.int64) ^ _ALL_ONES)
    return tl.where(keys > 0, word, 0)


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
def _tile_top32(
    logits, head, size, offset, TILE: tl.constexpr, GROUP: tl.constexpr, RANK_DIM: tl.constexpr
):
    """Top 32 keys of one tile, and whether any of its columns is bad.

    Two exact steps as in :func:`_merge_lists`: the best of every group of neighbours, the 32 best
    groups, their columns again.
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
def _row_top32(lists, LISTS: tl.constexpr, PADDED: tl.constexpr):
    """Top 32 of a shard: its only list as it is, several merged."""
    if LISTS == 1:
        return tl.load(lists + tl.arange(0, 32))
    else:
        return _merge_lists(lists, LISTS, PADDED)


@triton.jit
def _possible(words, below, place, first_id, last_id):
    """Whether 32 words of a peer can be what they claim: falling, finite, of the peer's shard.

    words: [32]; below: the word that follows each in the peer's list; place: of each in that list.
    """
    key = words >> 32
    token = (words & _ALL_ONES) ^ _ALL_ONES
    fine = (key >= 0x80) & (key <= 0xFF7F) & (token >= first_id) & (token < last_id)
    falling = (words > below) | (place == 31) | ((words == 0) & (below == 0))
    usual = tl.min((((words == 0) | fine) & falling).to(tl.int32), 0) == 1
    top = tl.max(words, 0)
    control = (top == _BAD_WORD) | (top == _PROTOCOL_WORD)
    return usual | control


@triton.jit
def _open_epoch(word, low, epoch, link, told, bounds, INTERPRETED: tl.constexpr):
    """Look at the sticky words, wait for ``word`` in low..epoch - 1, check the range; -> fault."""
    _, _, _, own_error = link
    budget, max_polls, epoch_limit = bounds
    fault = exchange.wait(word, low, epoch - 1, own_error, told, budget, max_polls, INTERPRETED)
    if (fault == 0) & (epoch > epoch_limit):
        fault = _EPOCH_EXHAUSTED
    return fault


@triton.jit
def _exchanged(own, row, rows, link, bounds, first_id, last_id, INTERPRETED: tl.constexpr):
    """Swap 32 words with the peer; -> (union of both, fault).  The epoch of the row moves on.

    link: (own workspace, peer workspace, epochs, own error word).
    bounds: (budget in ns, polls at most, highest epoch).
    """
    own_workspace, peer_workspace, epochs, own_error = link
    budget, max_polls, _ = bounds
    told = exchange.error_at(own_workspace, rows)
    epoch = tl.load(epochs + row) + 1
    union = own
    # the slot was used two epochs ago: it is free once that message is acknowledged
    ack = exchange.ack_at(own_workspace, rows, row)
    fault = _open_epoch(ack, epoch - 2, epoch, link, told, bounds, INTERPRETED)
    if fault == 0:
        place = tl.arange(0, 32)
        tl.store(exchange.inbox_at(peer_workspace, row, epoch) + place, own)
        peer_flag = exchange.flag_at(peer_workspace, rows, row, epoch)
        exchange.release(peer_flag, epoch, INTERPRETED)
        flag = exchange.flag_at(own_workspace, rows, row, epoch)
        fault = exchange.wait(flag, epoch, epoch, own_error, told, budget, max_polls, INTERPRETED)
        if fault == 0:
            inbox = exchange.inbox_at(own_workspace, row, epoch)
            rising = tl.load(inbox + 31 - place, volatile=True)
            below = tl.load(inbox + tl.minimum(32 - place, 31), volatile=True)
            if _possible(rising, below, 31 - place, first_id, last_id):
                union = bitonic.union32(own, rising)
                tl.store(epochs + row, epoch)
                peer_ack = exchange.ack_at(peer_workspace, rows, row)
                exchange.release(peer_ack, epoch, INTERPRETED)
            else:
                fault = _PROTOCOL
    return union, fault


@triton.jit
def _later_shard(own, both, counter, shard):
    """Leave this shard's list and retire it; -> whether the other shard was there before."""
    tl.store(both + shard * 32 + tl.arange(0, 32), own)
    return _retire(counter, 2)


@triton.jit
def _joined(both, row, rows, link, bounds, INTERPRETED: tl.constexpr):
    """The stand-in for the exchange where one launch holds both shards; -> (union, fault).

    The row's own epoch stands in for the acknowledgement, so it never waits.
    """
    own_workspace, _, epochs, _ = link
    epoch = tl.load(epochs + row) + 1
    told = exchange.error_at(own_workspace, rows)
    fault = _open_epoch(epochs + row, epoch - 1, epoch, link, told, bounds, INTERPRETED)
    place = tl.arange(0, 32)
    union = bitonic.union32(tl.load(both + place), tl.load(both + 63 - place))
    if fault == 0:
        tl.store(epochs + row, epoch)
    return union, fault


@triton.jit
def _verdict(union, fault):
    """The fault of a row: that of the exchange, else what the union says."""
    top = tl.max(union, 0)
    if fault == 0:
        if top == _PROTOCOL_WORD:
            fault = _PROTOCOL
        elif top == _BAD_WORD:
            fault = _BAD_LOGITS
        elif top == 0:
            fault = _EMPTY_ROW
    return fault


@triton.jit
def _drawn(union, used, counter):
    """Tickets of the union and the index that the DRAFT stream draws; -> ([32] int32, scalar).

    counter: (key, absolute position, round).
    """
    key, position, round = counter
    count = tickets.allocate(bf16.value_of((union >> 32).to(tl.int32)), used)
    word, _, _, _ = tl.philox(key, position, round, _DRAFT, 0)
    return count, tickets.draw(count, (word.to(tl.uint32) >> 8).to(tl.int32))


@triton.jit
def _write(outputs, at, ids, count, token, fault):
    """Store the outputs of a row at its place in the block."""
    ids_ptr, q_ptr, token_ptr, error_ptr, _ = outputs
    place = tl.arange(0, 32)
    tl.store(ids_ptr + at * 32 + place, ids)
    tl.store(q_ptr + at * 32 + place, count.to(tl.float32) * (1.0 / 16777216.0))
    tl.store(token_ptr + at, token)
    tl.store(error_ptr + at, fault)


@triton.jit
def _finish(
    union,
    fault,
    sampled,
    counter,
    outputs,
    at,
    next_token,
    map_ptr,
    link,
    told,
    PAIRED: tl.constexpr,
    HAS_MAP: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """Tickets, draw and outputs of a row that is not padding; -> its fault."""
    _, _, _, own_error = link
    fault = _verdict(union, fault)
    if fault != 0:
        exchange.raise_fault(fault, own_error, told, PAIRED, INTERPRETED)
    place = tl.arange(0, 32)
    used = (union > 0) & (fault == 0)
    ids = ((union & _ALL_ONES) ^ _ALL_ONES).to(tl.int32)
    if HAS_MAP:
        ids = tl.load(map_ptr + ids, mask=used, other=-1)
    ids = tl.where(used, ids, -1)
    count = place * 0
    chosen = 0
    if sampled & (fault == 0):
        count, chosen = _drawn(union, used, counter)
    picked = tl.sum(tl.where(place == chosen, ids, 0), 0)
    _write(outputs, at, ids, count, tl.where(fault == 0, picked, -1), fault)
    tl.store(next_token, tl.where(fault == 0, picked, 0))
    return fault


@triton.jit
def _stamp(outputs, at, epoch):
    """Say that every output of the row was written."""
    _, _, _, _, stamp_ptr = outputs
    tl.debug_barrier()
    tl.store(stamp_ptr + at, epoch)


POINTERS = [
    "logits_ptr", "w1_ptr", "w2_ptr", "bias_ptr", "slot_ptr", "map_ptr", "mode_ptr", "key_ptr",
    "position_ptr", "round_ptr", "chain_ptr", "ids_ptr", "q_ptr", "token_ptr", "error_ptr",
    "stamp_ptr", "candidates_ptr", "retired_ptr", "epoch_ptr", "own_error_ptr",
]  # fmt: skip
SCALARS = [
    "own_workspace", "peer_workspace", "rank", "vocab", "split", "target_vocab", "slots", "rows",
    "index", "n_out", "stride128", "budget", "max_polls", "epoch_limit",
]  # fmt: skip


# Nothing that varies at run time makes another binary: no scalar is specialised on its value, and
# the host checks the alignment that the loads rely on.
@triton.jit(do_not_specialize=SCALARS, do_not_specialize_on_alignment=POINTERS)
def _kernel(
    logits_ptr, w1_ptr, w2_ptr, bias_ptr, slot_ptr, map_ptr,  # head
    mode_ptr, key_ptr, position_ptr, round_ptr, chain_ptr,  # requests
    ids_ptr, q_ptr, token_ptr, error_ptr, stamp_ptr,  # outputs
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
    # every buffer starts on 16 bytes (the host checks it) and every row on 128 elements
    logits_ptr = tl.multiple_of(logits_ptr, 16)
    bias_ptr = tl.multiple_of(bias_ptr, 16)
    w1_ptr = tl.multiple_of(w1_ptr, 16)
    w2_ptr = tl.multiple_of(w2_ptr, 16)
    candidates_ptr = tl.multiple_of(candidates_ptr, 16)
    shard = tl.program_id(0) // TILES
    tile = tl.program_id(0) % TILES
    row = tl.program_id(1).to(tl.int64)
    batch = tl.num_programs(1)
    stride = stride128.to(tl.int64) * 128
    upper = (rank + shard) > 0
    first_id = tl.where(upper, split, 0)
    size = tl.where(upper, vocab - split, split)
    mode = tl.load(mode_ptr + row)
    place = tl.arange(0, 32)

    words = tl.full([32], 0, tl.int64)
    if mode != _INACTIVE:
        previous = tl.load(chain_ptr + row * (n_out + 1) + index)
        if (previous < 0) | (previous >= target_vocab):
            words = tl.full([32], _PROTOCOL_WORD, tl.int64)
        else:
            slot = tl.load(slot_ptr + previous)
            logits = logits_ptr + ((shard * batch + row) * n_out + index) * stride
            bias_row = bias_ptr + (shard.to(tl.int64) * slots + tl.maximum(slot, 0)) * stride
            w1_row = w1_ptr + previous.to(tl.int64) * RANK_DIM
            w2 = w2_ptr + shard.to(tl.int64) * stride * RANK_DIM
            head = (slot >= 0, bias_row, w1_row, w2)
            keys, bad = _tile_top32(logits, head, size, tile * TILE, TILE, GROUP, RANK_DIM)
            words = _tile_words(first_id, tile * TILE, keys, TILE)
            words = tl.where(bad != 0, _BAD_WORD, words)
    # scratch of a row: [SHARDS][TILES][32] lists of tiles, then [SHARDS][32] lists of shards
    scratch = candidates_ptr + row * (SHARDS * (TILES + 1) * 32)
    tl.store(scratch + (shard * TILES + tile) * 32 + place, words)

    if _retire(retired_ptr + row * 3 + shard, TILES):
        own = _row_top32(scratch + shard * (TILES * 32), TILES, PADDED_TILES)
        both = scratch + SHARDS * TILES * 32
        mine = True
        if SHARDS == 2:
            mine = _later_shard(own, both, retired_ptr + row * 3 + 2, shard)
        if mine:
            link = (own_workspace, peer_workspace, epoch_ptr, own_error_ptr)
            bounds = (budget, max_polls, epoch_limit)
            outputs = (ids_ptr, q_ptr, token_ptr, error_ptr, stamp_ptr)
            at = row * n_out + index
            next_token = chain_ptr + row * (n_out + 1) + index + 1
            if mode == _INACTIVE:
                _write(outputs, at, place * 0, place * 0, 0, 0)
                tl.store(next_token, 0)
                _stamp(outputs, at, tl.load(epoch_ptr + row))
            else:
                if SHARDS == 2:
                    union, fault = _joined(both, row, rows, link, bounds, INTERPRETED)
                    told = exchange.error_at(own_workspace, rows)
                else:
                    peer_first = tl.where(rank == 0, split, 0)
                    peer_last = tl.where(rank == 0, vocab, split)
                    union, fault = _exchanged(
                        own, row, rows, link, bounds, peer_first, peer_last, INTERPRETED
                    )
                    told = exchange.error_at(peer_workspace, rows)
                position = tl.load(position_ptr + row) + index
                counter = (tl.load(key_ptr + row), position, tl.load(round_ptr + row))
                fault = _finish(
                    union, fault, mode == _SAMPLED, counter, outputs, at, next_token, map_ptr,
                    link, told, SHARDS == 1, HAS_MAP, INTERPRETED,
                )  # fmt: skip
                epoch = tl.load(epoch_ptr + row)
                _stamp(outputs, at, tl.where(fault == 0, epoch, 0))
