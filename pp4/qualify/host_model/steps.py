"""The moves of one rank: from one look at shared memory to the next.

Everything between two such looks (issuing stores, block barriers, arithmetic) happens inside one
move: it cannot be told from outside in which order it happened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pp4.qualify.host_model import world as w
from pp4.qualify.host_model.protocol import Property
from pp4.qualify.host_model.turn import Move, Turn, barrier, echo, fail, next_row, told
from pp4.qualify.host_model.world import Rank, Store, World


def _check(turn: Turn) -> Iterator[Move]:
    """Look at the sticky words, take the next epoch."""
    words = turn.me.own | turn.me.told
    if turn.protocol.looks_first:
        if words:
            code = w.CODES[w.worst(words)]
            yield turn.move(f"finds {code}, skips the row", next_row(turn, echo(turn, turn.me)))
            return
        yield from told(turn, "sees the peer's error word, skips the row")
    broken = (Property.NO_RETRY,) if words else ()
    for text, kind, world in _fates(turn):
        yield _enter(turn._replace(world=world), text, kind, broken)


def _fates(turn: Turn) -> Iterator[tuple[str, int, World]]:
    """Yield what may befall this row: nothing, or one of the faults that are still possible."""
    world, row, bit = turn.world, turn.me.row, 1 << turn.who
    kind, mask, where = world.fault
    if kind == w.FAULT_LOST and where == row:
        yield "is lost as on the peer", kind, world
        return
    yield "is clean", w.NO_FAULT, world
    fresh = kind == w.NO_FAULT
    for one, text in ((w.FAULT_BAD, "has bad logits"), (w.FAULT_EXHAUSTED, "has no epoch left")):
        if fresh or (kind == one and where == row and not mask & bit):
            yield text, one, world._replace(fault=(one, mask | bit, row))
    # what both ranks have in common is decided by the one that comes first
    first = turn.peer.row < row or (turn.peer.row == row and turn.peer.pc == w.CHECK)
    if fresh and first:
        yield "is empty on both", w.FAULT_EMPTY, world._replace(fault=(w.FAULT_EMPTY, 3, row))
        if not world.rough:
            yield "is lost", w.FAULT_LOST, world._replace(fault=(w.FAULT_LOST, 3, row))


def _enter(turn: Turn, text: str, kind: int, broken: tuple[Property, ...]) -> Move:
    """Take the epoch and go to the wait for the acknowledgement, unless the row ends here."""
    me, protocol = turn.me, turn.protocol
    masked = not protocol.equal_masks and turn.who == 1 and me.row == 2
    if kind == w.FAULT_LOST or masked:
        text = "is masked on this rank alone, skips it" if masked else f"{text}, nothing runs"
        return turn.move(text, next_row(turn, me), *broken)
    if kind == w.FAULT_EXHAUSTED:
        return fail(turn, text, w.EPOCH_EXHAUSTED, *broken)
    if kind == w.FAULT_BAD:
        own = w.BAD_LOGITS if turn.shared_word else me.own | w.BAD_LOGITS
        me = me._replace(own=own)
        if not protocol.sends_bad_row:
            return turn.move(f"{text}, keeps it to itself", next_row(turn, me), *broken)
    counted = me.epoch + 1
    epoch = counted if protocol.device_epoch else (me.row - 1) % turn.positions + 1
    me = me._replace(pc=w.WAIT_ACK, epoch=epoch)
    if not protocol.ack_barrier:
        half = Store(w.DATA, 2 * (epoch % protocol.slots) + 1, me.row)
        me = me._replace(loose=(*me.loose, half))
        text += ", warp 1 stores its half"
        if epoch > protocol.slots:
            broken = (*broken, Property.REUSE)
    return turn.move(f"{text}, takes epoch {epoch}", me, *broken)


def _wait_ack(turn: Turn) -> Iterator[Move]:
    """Wait until the last message of the slot was acknowledged, then send."""
    me, protocol = turn.me, turn.protocol
    need = me.epoch - protocol.slots
    if not protocol.waits_ack:
        yield _send(turn, "sends without a look at the acknowledgement", seen=0)
        return
    if protocol.polls_error:
        yield from told(turn, "waits for the acknowledgement, sees the peer's error word, stops")
    bogus = f"sees an acknowledgement above {me.epoch - 1}"
    if protocol.demands_equal and me.ack >= me.epoch:
        yield fail(turn, bogus, w.PROTOCOL)
        return
    passed = me.ack >= need
    if passed:
        yield _send(turn, "may send", seen=me.ack)
    for index, store in enumerate(turn.peer.queue):
        if store.kind != w.ACK:
            continue
        landed = turn.at(*w.arrive(me, turn.peer, index, shared_word=turn.shared_word))
        if protocol.demands_equal and store.value >= me.epoch:
            yield fail(landed, bogus, w.PROTOCOL)
        elif store.value >= need and not passed:
            # a later acknowledgement adds nothing: the earliest leaves most in flight
            passed = True
            yield _send(landed, f"sees acknowledgement {store.value}", seen=store.value)


def _send(turn: Turn, text: str, *, seen: int) -> Move:
    """Store both halves and the flag, in the order and with the barriers of the protocol.

    ``seen`` is the acknowledgement that a load of this rank returned, 0 if it never looked.
    """
    me, protocol, slot = turn.me, turn.protocol, turn.slot
    half0, half1 = (Store(w.DATA, 2 * slot + half, me.row) for half in (0, 1))
    flag = Store(w.FLAG, slot, me.epoch, plain=not protocol.flag_release)
    loose = (half1,) if protocol.ack_barrier else me.loose
    if not protocol.flag_after_data:
        me = me._replace(queue=(*me.queue, flag, half0, *loose), loose=())
        text += f": stores flag {me.epoch}, then both halves"
    elif protocol.store_barrier:
        me = me._replace(queue=(*me.queue, half0, *loose, flag), loose=())
        text += f": both warps store, barrier, flag {me.epoch}"
    else:
        me = me._replace(queue=(*me.queue, half0, flag), loose=loose)
        text += f": both warps store, no barrier, flag {me.epoch}"
    me = me._replace(pc=w.WAIT_FLAG, reading=not protocol.read_barrier)
    broken = (Property.REUSE,) if seen < me.epoch - protocol.slots else ()
    return turn.move(text, me, *broken)


def _wait_flag(turn: Turn) -> Iterator[Move]:
    """Wait for the epoch of the peer, its error word, or something impossible."""
    me, protocol = turn.me, turn.protocol
    if protocol.polls_error:
        yield from told(turn, "waits for the flag, sees the peer's error word, stops")
    landed = [(me.flags[turn.slot], turn)]
    for index, store in enumerate(turn.peer.queue):
        if store.kind == w.FLAG and store.where == turn.slot:
            both = w.arrive(me, turn.peer, index, shared_word=turn.shared_word)
            landed.append((store.value, turn.at(*both)))
    for value, seen in landed:
        if value == me.epoch or (value > me.epoch and not protocol.demands_equal):
            after = seen.me._replace(pc=w.READ)
            if protocol.read_barrier:
                after = barrier(after)._replace(reading=True)
            yield seen.move(f"sees flag {value}", after)
        elif value > me.epoch:
            yield fail(seen, f"sees flag {value} where {me.epoch} is due", w.PROTOCOL)


def _read(turn: Turn) -> Iterator[Move]:
    """Warp 0 reads its half."""
    for value, me, peer in w.readings(turn.me, turn.peer, 2 * turn.slot):
        me = me._replace(pc=w.JOIN, got=(value, me.got[1]))
        if not turn.protocol.consumed_barrier:
            me = _acknowledge(turn, me)
        yield _join(turn.at(me, peer), f"warp 0 reads {_named(value)}")


def _read_second(turn: Turn) -> Iterator[Move]:
    """Warp 1 reads its half, as soon as no barrier holds it."""
    for value, me, peer in w.readings(turn.me, turn.peer, 2 * turn.slot + 1):
        me = me._replace(got=(me.got[0], value), reading=False)
        yield _join(turn.at(me, peer), f"warp 1 reads {_named(value)}")


def _named(value: int) -> str:
    return f"its half of row {value}" if value else "its half before anything landed there"


def _acknowledge(turn: Turn, me: Rank) -> Rank:
    if not turn.protocol.sends_ack:
        return me
    return me._replace(queue=(*me.queue, Store(w.ACK, 0, me.epoch)))


def _join(turn: Turn, text: str) -> Move:
    """When both halves were read: acknowledge, reduce, write outputs, stamp, next row."""
    me, who = turn.me, turn.who
    if me.pc != w.JOIN or w.UNREAD in me.got:
        return turn.move(text, me)
    me = barrier(me)
    if turn.protocol.consumed_barrier:
        me = _acknowledge(turn, me)
    good = me.got == (me.row, me.row)
    if turn.faulted(w.FAULT_BAD) and turn.world.fault[1] & (2 >> who):
        me = me._replace(own=w.BAD_LOGITS if turn.shared_word else me.own | w.BAD_LOGITS)
        text += ", the peer's row is bad"
    if turn.faulted(w.FAULT_EMPTY):
        me = me._replace(own=w.EMPTY_ROW if turn.shared_word else me.own | w.EMPTY_ROW)
        text += ", the union is empty"
    if me.own:
        me = echo(turn, me, known=True)
    expected = me.row if turn.protocol.device_epoch else (me.row - 1) % turn.positions + 1
    me = me._replace(
        stamps=me.stamps + (me.epoch == expected), right=me.right + (good and not me.own)
    )
    broken = () if good else (Property.UNION,)
    return turn.move(f"{text}; both read, consumed", next_row(turn, me), *broken)


MOVES: dict[int, Callable[[Turn], Iterator[Move]]] = {
    w.CHECK: _check,
    w.WAIT_ACK: _wait_ack,
    w.WAIT_FLAG: _wait_flag,
    w.READ: _read,
}
"""What a rank does at each place; reports are the owner's part, in :mod:`.owner`."""


def row_moves(turn: Turn) -> Iterator[Move]:
    """Yield the moves of a rank inside its rows, without faults of time and life."""
    step = MOVES.get(turn.me.pc)
    if step is not None:
        yield from step(turn)
    if turn.me.reading:
        yield from _read_second(turn)
