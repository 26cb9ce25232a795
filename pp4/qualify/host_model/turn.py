"""A turn: whose move it is, in which world, by which rules; and the ways to leave a row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pp4.qualify.host_model import world as w
from pp4.qualify.host_model.protocol import Property, Protocol
from pp4.qualify.host_model.world import Rank, Store, World


class Move(NamedTuple):
    """One transition: a line for a person, the state after it, and what it broke."""

    text: str
    world: World
    broken: tuple[Property, ...] = ()


class Turn(NamedTuple):
    """Whose move it is, in which world, by which rules."""

    protocol: Protocol
    positions: int
    world: World
    who: int

    @property
    def me(self) -> Rank:
        """The rank that moves."""
        return self.world.ranks[self.who]

    @property
    def peer(self) -> Rank:
        """The other rank."""
        return self.world.ranks[1 - self.who]

    @property
    def slot(self) -> int:
        """The inbox slot of the epoch that is under way."""
        return self.me.epoch % self.protocol.slots

    @property
    def shared_word(self) -> bool:
        """Whether own and peer's errors fall into one word (a planted bug)."""
        return not self.protocol.own_and_peer_words

    def faulted(self, kind: int) -> bool:
        """Whether the injected fault is of this kind and hits the current row."""
        return self.world.fault[0] == kind and self.world.fault[2] == self.me.row

    def at(self, me: Rank, peer: Rank | None = None) -> Turn:
        """Return the same turn with one or both ranks moved on."""
        other = self.peer if peer is None else peer
        ranks = (me, other) if self.who == 0 else (other, me)
        return self._replace(world=self.world._replace(ranks=ranks))

    def move(self, text: str, me: Rank, *broken: Property) -> Move:
        """Return the move that leaves this rank as ``me``."""
        place = "" if self.me.pc == w.REPORT else f", row {self.me.row}"
        return Move(f"rank {self.who}{place}: {text}", self.at(me).world, broken)


def barrier(me: Rank) -> Rank:
    """All stores of warp 1 are now ordered before whatever thread 0 releases next."""
    return me._replace(queue=me.queue + me.loose, loose=()) if me.loose else me


def next_row(turn: Turn, me: Rank) -> Rank:
    """Close the row, whatever became of it."""
    last = me.row % turn.positions == 0
    pc = w.REPORT if last else w.CHECK
    return barrier(me)._replace(pc=pc, row=me.row + 1, got=(w.UNREAD, w.UNREAD), reading=False)


def fail(turn: Turn, text: str, bit: int, *broken: Property) -> Move:
    """Write the own word, tell the peer by its word, and leave the row."""
    own = bit if turn.shared_word else turn.me.own | bit
    me = turn.me._replace(own=own, told=0 if turn.shared_word else turn.me.told)
    if turn.protocol.tells_peer:
        me = me._replace(queue=(*barrier(me).queue, Store(w.ERROR, 0, bit)), loose=())
        text += f", own word {w.CODES[bit]}, tells the peer"
    else:
        text += f", own word {w.CODES[bit]}, tells nobody"
    if not turn.world.rough and turn.world.fault[0] == w.NO_FAULT:
        broken = (*broken, Property.HEALTHY)
    return turn.move(text, next_row(turn, me), *broken)


def echo(turn: Turn, me: Rank, *, known: bool = False) -> Rank:
    """Pass on the gravest error of this rank, if the protocol does so; ``known`` if it is its own.

    A second store of the same code would change nothing and is left out.
    """
    bit = w.worst(me.own | me.told)
    if not turn.protocol.echoes or (me.own & bit and not known):
        return me
    me = barrier(me)
    return me._replace(own=me.own | bit, queue=(*me.queue, Store(w.ERROR, 0, bit)))


def told(turn: Turn, text: str) -> Iterator[Move]:
    """Yield the moves of a rank that finds the word of its peer set: it leaves the row."""
    if turn.me.told:
        yield turn.move(text, next_row(turn, echo(turn, turn.me)))
    for index, store in enumerate(turn.peer.queue):
        if store.kind == w.ERROR:
            me, peer = w.arrive(turn.me, turn.peer, index, shared_word=turn.shared_word)
            yield turn.at(me, peer).move(text, next_row(turn, echo(turn, me)))
