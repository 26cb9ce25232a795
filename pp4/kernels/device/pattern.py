"""The data pattern of a link check: one program writes into its peer, one reads what arrived.

Each stores into the other's memory and loads from its own alone, as the exchange does, so no read
crosses the link.  The words and their order are those of :mod:`pp4.kernels.pattern`.
"""

import triton
import triton.language as tl

from pp4.kernels.device import exchange
from pp4.kernels.link import POISON

POINTERS = ["own_error_ptr", "result_ptr"]
SCALARS = [
    "own_workspace", "peer_workspace", "rows", "writer", "seed", "epochs", "flip_at", "budget",
    "max_polls",
]  # fmt: skip

# splitmix64 (Steele, Lea, Flood, OOPSLA'14), its constants as int64 of the same bits: a product of
# 64-bit words has the same low half either way
STEP = 0x9E3779B97F4A7C15 - (1 << 64)
FIRST = 0xBF58476D1CE4E5B9 - (1 << 64)
SECOND = 0x94D049BB133111EB - (1 << 64)
TURN = 32
ANSWER = 33

_STEP = tl.constexpr(STEP)
_FIRST = tl.constexpr(FIRST)
_SECOND = tl.constexpr(SECOND)
_TURN = tl.constexpr(TURN)
_ANSWER = tl.constexpr(ANSWER)
# what a new workspace is filled with, see pp4.kernels.link
_POISON = tl.constexpr(POISON)


@triton.jit
def _pattern(seed, epoch):
    """32 words of an epoch: splitmix64 of the seed, whose state moves on with every word."""
    count = epoch.to(tl.int64) * 32 + 1 + tl.arange(0, 32)
    state = (seed + count * _STEP).to(tl.uint64, bitcast=True)
    state = ((state ^ (state >> 30)).to(tl.int64, bitcast=True) * _FIRST).to(
        tl.uint64, bitcast=True
    )
    state = ((state ^ (state >> 27)).to(tl.int64, bitcast=True) * _SECOND).to(
        tl.uint64, bitcast=True
    )
    return (state ^ (state >> 31)).to(tl.int64, bitcast=True)


# One binary for both ranks: which of them writes is a value like any other.
@triton.jit(do_not_specialize=SCALARS, do_not_specialize_on_alignment=POINTERS)
def exchange_pattern(
    own_error_ptr, result_ptr,
    own_workspace: tl.int64, peer_workspace: tl.int64, rows: tl.int32, writer: tl.int32,
    seed: tl.int64, epochs: tl.int64, flip_at: tl.int64, budget: tl.int64, max_polls: tl.int64,
    INTERPRETED: tl.constexpr,
):  # fmt: skip
    """Write or read the pattern of every epoch; result: [mismatches, epochs done, fault].

    Turn and answer are put back to the fill of a new workspace by the rank that polled them, before
    the peer can go on: a later check on the same link finds no turn of this one.
    """
    place = tl.arange(0, 32)
    told = exchange.error_at(own_workspace, rows)
    deadline = exchange.deadline_after(budget, INTERPRETED)
    bounds = (deadline, max_polls)
    own = exchange.as_words(own_workspace)
    peer = exchange.as_words(peer_workspace)
    epoch = tl.full([], 0, tl.int64)
    wrong = tl.full([], 0, tl.int64)
    fault = 0
    while (epoch < epochs) & (fault == 0):
        words = _pattern(seed, epoch)
        turn = epoch + 1
        last = turn == epochs
        if writer != 0:
            flipped = (epoch == flip_at) & (place == epoch % 32)
            bit = tl.full([], 1, tl.int64) << (epoch % 63)
            tl.store(peer + place, tl.where(flipped, words ^ bit, words))
            exchange.release(peer + _TURN, turn, INTERPRETED)
            fault, _, _ = exchange.wait(
                own + _ANSWER, turn, turn, own_error_ptr, told, bounds, INTERPRETED
            )
            if last & (fault == 0):
                tl.store(own + _ANSWER, tl.full([], _POISON, tl.int64))
        else:
            fault, _, _ = exchange.wait(
                own + _TURN, turn, turn, own_error_ptr, told, bounds, INTERPRETED
            )
            if fault == 0:
                found = tl.load(own + place, volatile=True)
                wrong += tl.max((found != words).to(tl.int64), 0)
                if last:
                    # every warp has read the words before one of them is overwritten
                    tl.debug_barrier()
                    tl.store(own + place, tl.full([32], _POISON, tl.int64))
                    tl.store(own + _TURN, tl.full([], _POISON, tl.int64))
                exchange.release(peer + _ANSWER, turn, INTERPRETED)
        epoch += (fault == 0).to(tl.int64)
    tl.store(result_ptr, wrong)
    tl.store(result_ptr + 1, epoch)
    tl.store(result_ptr + 2, tl.full([], 0, tl.int64) + fault)
