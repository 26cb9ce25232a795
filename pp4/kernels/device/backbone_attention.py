"""Attention of a block over the feature cache where it lies, split by place, and its merging.

All queries of a row see the same places: the cached ones below the row's length, and the block's
own.  Split 0 has the block's own; the others are dealt the chunks of cached places in turn,
whatever else is in the batch, and all are merged in one order: the bits of a row depend on the row
alone.  Nothing beyond a length is read.
"""

import triton
import triton.language as tl

from pp4.kernels.device.rounding import narrow, product


@triton.jit
def _has_places(split, length, CHUNK: tl.constexpr):
    """Whether a split has anything to look at."""
    return (split == 0) | ((split - 1) * CHUNK < length)


@triton.jit
def _seen(
    state, query, key_places, value_places, inside, SCALE: tl.constexpr, INTERPRETED: tl.constexpr
):
    """Go on with some places.

    state: (largest score [ROWS], sum of weights [ROWS], weighted values [ROWS, HEAD_DIM]) float32;
    query: [ROWS, HEAD_DIM] BF16; places: [N, HEAD_DIM] pointers; inside: [N] bool, of the first
    places not all false.  Scores are exponents of two: SCALE has the logarithm's base in it.
    """
    largest, total, found = state
    keys = tl.load(key_places, mask=inside[:, None], other=0)
    scores = product(query, tl.trans(keys), INTERPRETED) * SCALE
    scores = tl.where(inside[None, :], scores, float("-inf"))
    higher = tl.maximum(largest, tl.max(scores, 1))
    kept = tl.exp2(largest - higher)
    weights = tl.exp2(scores - higher[:, None])
    values = tl.load(value_places, mask=inside[:, None], other=0)
    more = product(narrow(weights, INTERPRETED), values, INTERPRETED)
    return higher, total * kept + tl.sum(weights, 1), found * kept[:, None] + more


@triton.jit
def _tile_seen(
    state, before, turn, CHUNK: tl.constexpr, TILE: tl.constexpr, SPLITS: tl.constexpr,
    SCALE: tl.constexpr, INTERPRETED: tl.constexpr,
):  # fmt: skip
    """Go on with the next tile of a split's chunks.

    before: (query, pointers to the keys and to the values of place 0, split, length).
    """
    query, keys_ptr, values_ptr, split, length = before
    HEAD_DIM: tl.constexpr = query.shape[1]
    TILES: tl.constexpr = CHUNK // TILE
    chunk = split - 1 + turn // TILES * (SPLITS - 1)
    first = chunk * CHUNK + turn % TILES * TILE
    place = tl.arange(0, TILE)
    at = place[:, None] * HEAD_DIM + tl.arange(0, HEAD_DIM)[None, :]
    begin = first.to(tl.int64) * HEAD_DIM
    return _seen(
        state, query, keys_ptr + begin + at, values_ptr + begin + at, first + place < length,
        SCALE, INTERPRETED,
    )  # fmt: skip


# slots and lengths are parts of the inputs' buffer and start anywhere in it
@triton.jit(
    do_not_specialize=["context"], do_not_specialize_on_alignment=["slots_ptr", "lengths_ptr"]
)
def attended(
    qkv_ptr, keys_ptr, values_ptr, slots_ptr, lengths_ptr,
    found_ptr, largest_ptr, total_ptr, context: tl.int32,
    BLOCK: tl.constexpr, HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr,
    ROWS: tl.constexpr, OWN: tl.constexpr, CHUNK: tl.constexpr, TILE: tl.constexpr,
    SPLITS: tl.constexpr, SCALE: tl.constexpr, INTERPRETED: tl.constexpr,
):  # fmt: skip
    """One split of one key head of one row."""
    GROUP: tl.constexpr = HEADS // KV_HEADS
    TOKEN: tl.constexpr = (HEADS + 2 * KV_HEADS) * HEAD_DIM
    shared, split = tl.program_id(0), tl.program_id(1)
    row = tl.program_id(2).to(tl.int64)
    length = tl.load(lengths_ptr + row).to(tl.int32)
    if _has_places(split, length, CHUNK):
        at = tl.arange(0, HEAD_DIM)[None, :]
        own = qkv_ptr + row * (BLOCK * TOKEN)

        # the queries that share the key head, token by token
        place = tl.arange(0, ROWS)
        used = place < BLOCK * GROUP
        token, head = place // GROUP, shared * GROUP + place % GROUP
        lying = (token * TOKEN + head * HEAD_DIM)[:, None] + at
        query = tl.load(own + lying, mask=used[:, None], other=0)

        largest = tl.full([ROWS], float("-inf"), tl.float32)
        total = tl.zeros([ROWS], tl.float32)
        found = tl.zeros([ROWS, HEAD_DIM], tl.float32)
        if split == 0:
            mine = tl.arange(0, OWN)
            keys = own + (HEADS + shared) * HEAD_DIM + mine[:, None] * TOKEN + at
            largest, total, found = _seen(
                (largest, total, found), query, keys, keys + KV_HEADS * HEAD_DIM, mine < BLOCK,
                SCALE, INTERPRETED,
            )  # fmt: skip
        slot = tl.load(slots_ptr + row)
        cached = (slot * KV_HEADS + shared) * context * HEAD_DIM
        before = (query, keys_ptr + cached, values_ptr + cached, split, length)
        turns = tl.cdiv(length - (split - 1) * CHUNK, CHUNK * (SPLITS - 1)) * (CHUNK // TILE)
        turns = tl.where(split == 0, 0, turns)
        if INTERPRETED:
            # the interpreter of Triton 3.6 takes no bound that was computed
            turn = 0
            while turn < turns:
                largest, total, found = _tile_seen(
                    (largest, total, found), before, turn, CHUNK, TILE, SPLITS, SCALE, INTERPRETED
                )
                turn += 1
        else:
            for turn in range(turns):
                largest, total, found = _tile_seen(
                    (largest, total, found), before, turn, CHUNK, TILE, SPLITS, SCALE, INTERPRETED
                )

        # [B, BLOCK, HEADS, SPLITS], and HEAD_DIM behind that
        out = ((row * BLOCK + token) * HEADS + head) * SPLITS + split
        tl.store(largest_ptr + out, largest, mask=used)
        tl.store(total_ptr + out, total, mask=used)
        tl.store(found_ptr + out[:, None] * HEAD_DIM + at, found, mask=used[:, None])


@triton.jit(do_not_specialize_on_alignment=["lengths_ptr"])
def merged(
    found_ptr, largest_ptr, total_ptr, lengths_ptr, out_ptr,
    BLOCK: tl.constexpr, HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, CHUNK: tl.constexpr,
    SPLITS: tl.constexpr, INTERPRETED: tl.constexpr,
):  # fmt: skip
    """One head of one token: its splits that have a place, joined."""
    row = tl.program_id(1).to(tl.int64)
    head = row * (BLOCK * HEADS) + tl.program_id(0)
    length = tl.load(lengths_ptr + row).to(tl.int32)
    split, at = tl.arange(0, SPLITS), tl.arange(0, HEAD_DIM)
    used = _has_places(split, length, CHUNK)
    lying = head * SPLITS + split
    largest = tl.load(largest_ptr + lying, mask=used, other=float("-inf"))
    total = tl.load(total_ptr + lying, mask=used, other=0)
    places = found_ptr + lying[:, None] * HEAD_DIM + at[None, :]
    found = tl.load(places, mask=used[:, None], other=0)
    weights = tl.exp2(largest - tl.max(largest, 0))
    joined = tl.sum(found * weights[:, None], 0) / tl.sum(total * weights, 0)
    tl.store(out_ptr + head * HEAD_DIM + at, narrow(joined, INTERPRETED))
