"""The last phase of a row: verdict, tickets, draw, outputs, completion stamp."""

import triton
import triton.language as tl

from pp4.kernels.device import bf16, exchange, tickets, words
from pp4.kernels.faults import Fault
from pp4.kernels.purposes import Purpose

_DRAFT = tl.constexpr(int(Purpose.DRAFT))
_EMPTY_ROW = tl.constexpr(int(Fault.EMPTY_ROW))
_BAD_LOGITS = tl.constexpr(int(Fault.BAD_LOGITS))
_PROTOCOL = tl.constexpr(int(Fault.PROTOCOL))


@triton.jit
def _verdict(top, fault):
    """The fault of a row: that of the exchange, else what the largest word of the union says."""
    if fault == 0:
        if top == words.PROTOCOL:
            fault = _PROTOCOL
        elif top == words.BAD:
            fault = _BAD_LOGITS
        elif top == 0:
            fault = _EMPTY_ROW
    return fault


@triton.jit
def _drawn(union, top, used, counter):
    """Tickets of the union and the index that the DRAFT stream draws; -> ([32] int32, scalar).

    top: the largest word; counter: (key, absolute position, round).
    """
    key, position, round = counter
    values = bf16.value_of((union >> 32).to(tl.int32))
    count = tickets.allocate(values, used, bf16.value_of((top >> 32).to(tl.int32)))
    word, _, _, _ = tl.philox(key, position, round, _DRAFT, 0)
    return count, tickets.draw(count, (word.to(tl.uint32) >> 8).to(tl.int32))


@triton.jit
def write(outputs, at, ids, count, token, fault):
    """Store the outputs of a row at its place in the block."""
    ids_ptr, q_ptr, token_ptr, error_ptr, _, _ = outputs
    place = tl.arange(0, 32)
    tl.store(ids_ptr + at * 32 + place, ids)
    tl.store(q_ptr + at * 32 + place, count.to(tl.float32) * (1.0 / 16777216.0))
    tl.store(token_ptr + at, token)
    tl.store(error_ptr + at, fault)


@triton.jit
def finish(
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
    top = tl.max(union, 0)
    fault = _verdict(top, fault)
    if fault != 0:
        exchange.raise_fault(fault, own_error, told, PAIRED, INTERPRETED)
    place = tl.arange(0, 32)
    used = (union > 0) & (fault == 0)
    ids = ((union & words.ALL_ONES) ^ words.ALL_ONES).to(tl.int32)
    if HAS_MAP:
        ids = tl.load(map_ptr + ids, mask=used, other=-1)
    ids = tl.where(used, ids, -1)
    count = place * 0
    chosen = 0
    if sampled & (fault == 0):
        count, chosen = _drawn(union, top, used, counter)
    picked = tl.sum(tl.where(place == chosen, ids, 0), 0)
    write(outputs, at, ids, count, tl.where(fault == 0, picked, -1), fault)
    tl.store(next_token, tl.where(fault == 0, picked, 0))
    return fault


@triton.jit
def stamp(outputs, at, epoch, waited):
    """Leave what was waited, then say that every output of the row was written."""
    _, _, _, _, stamp_ptr, waited_ptr = outputs
    tl.store(waited_ptr + at, waited)
    tl.debug_barrier()
    tl.store(stamp_ptr + at, epoch)
