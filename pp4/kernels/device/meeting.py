"""Where two shards meet: over the link on a pair, or in the one launch that holds both."""

import triton
import triton.language as tl

from pp4.kernels.device import bitonic, exchange, words
from pp4.kernels.faults import Fault

_PROTOCOL = tl.constexpr(int(Fault.PROTOCOL))
_EPOCH_EXHAUSTED = tl.constexpr(int(Fault.EPOCH_EXHAUSTED))


@triton.jit
def _possible(found, below, place, first_id, last_id):
    """Whether 32 words of a peer can be what they claim: falling, finite, of the peer's shard.

    found: [32]; below: the word that follows each in the peer's list; place: of each in that list.
    """
    key = found >> 32
    token = (found & words.ALL_ONES) ^ words.ALL_ONES
    fine = (key >= 0x80) & (key <= 0xFF7F) & (token >= first_id) & (token < last_id)
    falling = (found > below) | (place == 31) | ((found == 0) & (below == 0))
    usual = tl.min((((found == 0) | fine) & falling).to(tl.int32), 0) == 1
    top = tl.max(found, 0)
    control = (top == words.BAD) | (top == words.PROTOCOL)
    return usual | control


@triton.jit
def _open_epoch(word, low, epoch, link, told, limits, INTERPRETED: tl.constexpr):
    """Look at the sticky words, at the range, and wait for ``word`` in low..epoch - 1.

    Beyond the range nothing is waited for: every word below ``epoch`` will do.
    limits: (deadline, polls at most, highest epoch).  -> (fault, polls left).
    """
    _, _, _, own_error = link
    deadline, polls, epoch_limit = limits
    exhausted = epoch > epoch_limit
    low = tl.where(exhausted, -epoch, low)
    bounds = (deadline, polls)
    fault, polls, _ = exchange.wait(word, low, epoch - 1, own_error, told, bounds, INTERPRETED)
    if (fault == 0) & exhausted:
        fault = _EPOCH_EXHAUSTED
    return fault, polls


@triton.jit
def _received(inbox, copy):
    """Take a message into memory of this block; -> (rising, the word after each in its list).

    Every warp loads for itself.  From the inbox, which the peer can write at any time, two warps
    could read different words and part ways before a barrier; the copy is the same for all.
    """
    place = tl.arange(0, 32)
    tl.store(copy + place, tl.load(inbox + place, volatile=True))
    tl.debug_barrier()
    rising = tl.load(copy + 31 - place)
    return rising, tl.load(copy + tl.minimum(32 - place, 31))


@triton.jit
def exchanged(
    own, copy, epoch, row, rows, link, limits, first_id, last_id, INTERPRETED: tl.constexpr
):
    """Swap 32 words with the peer; -> (union of both, fault, int64 waited for the peer's flag).

    The epoch of the row moves on to ``epoch``.  What was waited is 0 where nothing was sent.

    copy: 32 words of scratch for the peer's message.
    link: (own workspace, peer workspace, epochs, own error word).
    limits: (deadline, polls at most, highest epoch).
    """
    own_workspace, peer_workspace, epochs, own_error = link
    deadline, _, _ = limits
    told = exchange.error_at(own_workspace, rows)
    union = own
    waited = tl.full([], 0, tl.int64)
    # the slot was used two epochs ago: it is free once that message is acknowledged
    ack = exchange.ack_at(own_workspace, rows, row)
    fault, polls = _open_epoch(ack, epoch - 2, epoch, link, told, limits, INTERPRETED)
    if fault == 0:
        place = tl.arange(0, 32)
        tl.store(exchange.inbox_at(peer_workspace, row, epoch) + place, own)
        peer_flag = exchange.flag_at(peer_workspace, rows, row, epoch)
        exchange.release(peer_flag, epoch, INTERPRETED)
        flag = exchange.flag_at(own_workspace, rows, row, epoch)
        bounds = (deadline, polls)
        fault, _, spent = exchange.wait(flag, epoch, epoch, own_error, told, bounds, INTERPRETED)
        waited += spent
        if fault == 0:
            inbox = exchange.inbox_at(own_workspace, row, epoch)
            rising, below = _received(inbox, copy)
            if _possible(rising, below, 31 - place, first_id, last_id):
                union = bitonic.union32(own, rising)
                tl.store(epochs + row, epoch)
                peer_ack = exchange.ack_at(peer_workspace, rows, row)
                exchange.release(peer_ack, epoch, INTERPRETED)
            else:
                fault = _PROTOCOL
    return union, fault, waited


@triton.jit
def alone(epoch, row, rows, link, limits, INTERPRETED: tl.constexpr):
    """What stands in for the exchange where one launch holds both shards; -> its fault.

    The row's own epoch stands in for the acknowledgement, so it never waits.
    """
    own_workspace, _, epochs, _ = link
    told = exchange.error_at(own_workspace, rows)
    fault, _ = _open_epoch(epochs + row, epoch - 1, epoch, link, told, limits, INTERPRETED)
    if fault == 0:
        tl.store(epochs + row, epoch)
    return fault
