"""Faults of time, life and memory: budgets that run out, ranks that die, stray writers."""

from __future__ import annotations

from collections.abc import Iterator

from pp4.qualify.host_model import world as w
from pp4.qualify.host_model.protocol import Property
from pp4.qualify.host_model.turn import Move, Turn, fail


def run_out(turn: Turn) -> Iterator[Move]:
    """Yield the end of this rank's wait by its budget, if it waits and its waits are bounded."""
    me, peer = turn.me, turn.peer
    if not turn.protocol.bounded or me.pc not in (w.WAIT_ACK, w.WAIT_FLAG):
        return
    for_ack = me.pc == w.WAIT_ACK
    if for_ack and me.epoch <= turn.protocol.slots:
        return  # nothing was sent into this slot before: no wait
    # in a quiet world a budget runs out only when nothing else can end the wait
    hopeless = not turn.world.rough
    if turn.world.rough and not for_ack and peer.pc != w.DEAD and peer.row > me.row:
        ends = any(
            s.kind == w.ERROR or (s.kind, s.where) == (w.FLAG, turn.slot) for s in peer.queue
        )
        hopeless = not (ends or me.told or me.flags[turn.slot] == me.epoch)
    twice = me.own & w.PEER_TIMEOUT
    broken = (Property.BUDGET,) if hopeless or twice else ()
    if not turn.world.rough and turn.world.fault[0] == w.NO_FAULT:
        broken = ()  # fail() says that a healthy run failed
    what = "acknowledgement" if for_ack else "flag"
    yield fail(turn, f"the wait for the {what} runs out", w.PEER_TIMEOUT, *broken)


def stray(turn: Turn) -> Iterator[Move]:
    """Yield the store of a writer from another run into the flag that this rank waits for."""
    me = turn.me
    if me.pc != w.WAIT_FLAG or turn.world.fault[0] != w.NO_FAULT:
        return
    if not (turn.protocol.demands_equal or turn.protocol.device_epoch):
        return  # with epochs that repeat, the replay has to show the damage without outside help
    flags = list(me.flags)
    flags[turn.slot] = w.STRAY_EPOCH
    fault = (w.FAULT_STRAY, 1 << turn.who, me.row)
    struck = turn._replace(world=turn.world._replace(fault=fault))
    yield struck.move("a stray writer sets its flag", me._replace(flags=tuple(flags)))


def death(turn: Turn) -> Iterator[Move]:
    """Yield the end of a rank at this very place; its stores in flight may land or not."""
    me, world = turn.me, turn.world
    if not world.rough or world.fault[0] != w.NO_FAULT or me.pc in (w.DONE, w.DEAD):
        return
    fault = (w.FAULT_DEATH, 1 << turn.who, me.row)
    never = me.row == 1 and me.pc == w.CHECK
    broken = (Property.RELEASE,) if world.released[len(me.reports)] else ()
    dead = turn._replace(world=world._replace(fault=fault))
    yield dead.move("never starts" if never else "dies", me._replace(pc=w.DEAD), *broken)
