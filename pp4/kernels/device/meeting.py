"""Where two shards meet: over the link on a pair, by a second retirement in one launch."""

import triton
import triton.language as tl

from pp4.kernels.device import bitonic, chain, exchange, words
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
def _open_epoch(word, low, epoch, link, told, bounds, INTERPRETED: tl.constexpr):
    """Look at the sticky words, wait for ``word`` in low..epoch - 1, check the range; -> fault."""
    _, _, _, own_error = link
    budget, max_polls, epoch_limit = bounds
    fault = exchange.wait(word, low, epoch - 1, own_error, told, budget, max_polls, INTERPRETED)
    if (fault == 0) & (epoch > epoch_limit):
        fault = _EPOCH_EXHAUSTED
    return fault


@triton.jit
def exchanged(own, row, rows, link, bounds, first_id, last_id, INTERPRETED: tl.constexpr):
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
def later_shard(own, both, counter, shard):
    """Leave this shard's list and retire it; -> whether the other shard was there before."""
    tl.store(both + shard * 32 + tl.arange(0, 32), own)
    return chain.retire(counter, 2)


@triton.jit
def joined(both, row, rows, link, bounds, INTERPRETED: tl.constexpr):
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
