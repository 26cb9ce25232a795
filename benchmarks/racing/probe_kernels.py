"""Small kernels that each do one step of the fused kernel, with the product's device functions.

Loops are whiles: the interpreter of Triton 3.6 does not count to an argument.
"""

import triton
import triton.language as tl

from pp4.kernels.device import bitonic, chain, columns, exchange, outcome, panels, tile
from pp4.kernels.faults import Fault

_PROTOCOL = tl.constexpr(int(Fault.PROTOCOL))
_TIMEOUT = tl.constexpr(int(Fault.PEER_TIMEOUT))
_EPOCH = tl.constexpr(0x7FFFFFFF)


@triton.jit(do_not_specialize=["index"])
def relay(tokens, index: tl.int32, LOADS: tl.constexpr, PDL: tl.constexpr):
    """An empty kernel, or one that reads a word and leaves the next one.

    With programmatic dependent launch the wait comes before any load, and dependents are let go
    only after it: what the kernel before the last wrote would not be there otherwise.
    """
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    if LOADS:
        tl.store(tokens + index + 1, tl.load(tokens + index) + 1)


@triton.jit
def retire(counter, last):
    """Every block of a row retires; the last one counts."""
    row = tl.program_id(1)
    if chain.retire(counter + row, tl.num_programs(0)):
        tl.store(last + row, tl.load(last + row) + 1)


@triton.jit(do_not_specialize=["steps"])
def dependent(table, at, steps: tl.int32, WIDTH: tl.constexpr):
    """Row after row, each named by the one before; a row is a tile's part of a bias row."""
    token = tl.load(at)
    step = 0
    while step < steps:
        row = tl.load(table + token.to(tl.int64) * WIDTH + tl.arange(0, WIDTH))
        token = tl.max(row, 0)
        step += 1
    tl.store(at, token)


@triton.jit(do_not_specialize=["size", "stride128"])
def select(logits, bias, out, size: tl.int32, stride128: tl.int32, TILE: tl.constexpr,
           GROUP: tl.constexpr, BITS: tl.constexpr, INTERPRETED: tl.constexpr):  # fmt: skip
    """The 32 best groups of each tile of each row, of a cached bias row."""
    row = tl.program_id(1).to(tl.int64)
    number = tl.program_id(0)
    offset = number * TILE
    stride = stride128.to(tl.int64) * 128
    here = logits + row * stride
    base = tile.load(here, offset, size, stride, TILE)
    best = tile.best_groups(base, bias + row * stride, stride, offset, TILE, GROUP, INTERPRETED)
    keys = tile.group_keys(best, number * (TILE // GROUP), BITS)
    place = (row * tl.num_programs(0) + number) * 32 + tl.arange(0, 32)
    tl.store(out + place, bitonic.top32(keys, TILE // GROUP))


@triton.jit
def products(tokens, w1, w2, out, PANEL: tl.constexpr, WORDS: tl.constexpr):
    """The bias of the columns of each panel, after two tokens a block."""
    panel = tl.program_id(0)
    pair = tl.program_id(1)
    one = w1 + tl.load(tokens + 2 * pair).to(tl.int64) * WORDS
    two = w1 + tl.load(tokens + 2 * pair + 1).to(tl.int64) * WORDS
    here = w2 + panel.to(tl.int64) * (WORDS * PANEL)
    first, second = panels.bias(one, two, here, PANEL, WORDS)
    a_row = tl.num_programs(0) * PANEL
    at = out + 2 * pair * a_row + panel * PANEL + tl.arange(0, PANEL)
    tl.store(at, first.to(tl.int16))
    tl.store(at + a_row, second.to(tl.int16))


@triton.jit
def merge(lists, out, LISTS: tl.constexpr, PADDED: tl.constexpr):
    """The 32 best keys of the lists of a row's tiles."""
    row = tl.program_id(0).to(tl.int64)
    keys = chain.lists_of(lists + row * LISTS * 32, LISTS, PADDED)
    tl.store(out + row * 32 + tl.arange(0, 32), bitonic.merged32(keys, PADDED))


@triton.jit(do_not_specialize=["size", "stride"])
def look_into(logits, bias, keys, out, size: tl.int32, stride: tl.int64, TILE: tl.constexpr,
              TILES: tl.constexpr, GROUP: tl.constexpr, BITS: tl.constexpr):  # fmt: skip
    """The 32 best columns of 32 groups of a cached row."""
    row = tl.program_id(0).to(tl.int64)
    place = tl.arange(0, 32)
    words = columns.top32(
        tl.load(keys + row * 32 + place), (logits + row * stride, stride, 1, stride),
        bias + row * stride, (0, size, 2 * size), TILES, TILE, GROUP, BITS,
    )  # fmt: skip
    tl.store(out + row * 32 + place, words)


@triton.jit
def draw(both, keys, out):
    """The union of two lists of a row, its tickets and the place that is drawn."""
    row = tl.program_id(0).to(tl.int64)
    place = tl.arange(0, 32)
    lists = both + row * 64
    union = bitonic.union32(tl.load(lists + place), tl.load(lists + 63 - place))
    position = tl.full([], 5, tl.int32)
    round = tl.full([], 9, tl.int32)
    counter = (tl.load(keys + row), position, round)
    count, chosen = outcome._drawn(union, tl.max(union, 0), union > 0, counter)
    tl.store(out + row * 33 + place, count)
    tl.store(out + row * 33 + 32, chosen)


@triton.jit
def _message(epoch):
    """What a rank sends in a round."""
    return epoch.to(tl.int64) * 64 + tl.arange(0, 32)


@triton.jit
def _send(peer_workspace, rows, epoch, INTERPRETED: tl.constexpr):
    """32 words and then the flag, released."""
    tl.store(exchange.inbox_at(peer_workspace, 0, epoch) + tl.arange(0, 32), _message(epoch))
    exchange.release(exchange.flag_at(peer_workspace, rows, 0, epoch), epoch, INTERPRETED)


@triton.jit(
    do_not_specialize=[
        "own_workspace", "peer_workspace", "rows", "rank", "start", "rounds", "budget", "max_polls",
    ]
)  # fmt: skip
def ping_pong_flag(
    own_error, fault_out, own_workspace: tl.int64, peer_workspace: tl.int64, rows: tl.int32,
    rank: tl.int32, start: tl.int64, rounds: tl.int32, budget: tl.int64, max_polls: tl.int64,
    INTERPRETED: tl.constexpr,
):  # fmt: skip
    """Rank 0 sends and waits, rank 1 waits and answers; words, then a flag by release and acquire.

    All rounds together have one budget.  What the words say is told at the end: each warp reads
    them for itself, and warps that part ways before a barrier would never end.
    """
    deadline = exchange.deadline_after(budget, INTERPRETED)
    told = exchange.error_at(own_workspace, rows)
    fault = tl.full([], 0, tl.int32)
    same = tl.full([], 1, tl.int32)
    epoch = start
    while epoch < start + rounds:
        if fault == 0:
            if rank == 0:
                _send(peer_workspace, rows, epoch, INTERPRETED)
            flag = exchange.flag_at(own_workspace, rows, 0, epoch)
            bounds = (deadline, max_polls)
            fault, _, _ = exchange.wait(flag, epoch, epoch, own_error, told, bounds, INTERPRETED)
            inbox = exchange.inbox_at(own_workspace, 0, epoch)
            found = tl.load(inbox + tl.arange(0, 32), volatile=True)
            same = tl.minimum(same, tl.min((found == _message(epoch)).to(tl.int32), 0))
            tl.debug_barrier()
            if (rank == 1) & (fault == 0):
                _send(peer_workspace, rows, epoch, INTERPRETED)
        epoch += 1
    tl.store(fault_out, tl.where((fault == 0) & (same == 0), _PROTOCOL, fault))


@triton.jit
def _send_tagged(peer_workspace, epoch):
    """32 words with the epoch below the value; there is no flag."""
    word = ((tl.arange(0, 32).to(tl.int64) + epoch) << 31) | (epoch & _EPOCH)
    tl.store(exchange.inbox_at(peer_workspace, 0, epoch) + tl.arange(0, 32), word)


@triton.jit(
    do_not_specialize=["own_workspace", "peer_workspace", "rank", "start", "rounds", "max_polls"]
)
def ping_pong_word(
    fault_out, own_workspace: tl.int64, peer_workspace: tl.int64, rank: tl.int32, start: tl.int64,
    rounds: tl.int32, max_polls: tl.int64,
):  # fmt: skip
    """The same with the epoch inside the words, for one warp: each lane waits for its own word.

    A wait is bounded by its polls; after one that ran out, no further one is begun.
    """
    place = tl.arange(0, 32)
    fault = tl.full([], 0, tl.int32)
    epoch = start
    while epoch < start + rounds:
        if fault == 0:
            if rank == 0:
                _send_tagged(peer_workspace, epoch)
            inbox = exchange.inbox_at(own_workspace, 0, epoch) + place
            found = tl.load(inbox, volatile=True)
            polls = max_polls
            while (tl.min(((found & _EPOCH) == epoch).to(tl.int32), 0) == 0) & (polls > 0):
                found = tl.load(inbox, volatile=True)
                polls -= 1
            if polls == 0:
                fault = _TIMEOUT
            elif tl.min(((found >> 31) == place + epoch).to(tl.int32), 0) == 0:
                fault = _PROTOCOL
            if (rank == 1) & (fault == 0):
                _send_tagged(peer_workspace, epoch)
        epoch += 1
    tl.store(fault_out, fault)
