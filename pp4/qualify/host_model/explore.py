"""Breadth-first search through every state of the model, and what it found."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from pp4.qualify.host_model import world as w
from pp4.qualify.host_model.faults import death, run_out, stray
from pp4.qualify.host_model.owner import report_moves
from pp4.qualify.host_model.protocol import CONTRACT, Property, Protocol
from pp4.qualify.host_model.steps import row_moves
from pp4.qualify.host_model.turn import Move, Turn
from pp4.qualify.host_model.world import Rank, World

_Parents = dict[World, tuple[World, str] | None]


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken property and a shortest way to break it.

    Attributes:
        property: what was broken.
        trace: one line per move, from the rendezvous to the move that breaks the property.
    """

    property: Property
    trace: tuple[str, ...]

    def __str__(self) -> str:
        """The trace with numbered lines, for a person."""
        lines = [f"broken: {self.property.value}"]
        lines += [f"{number:3}. {line}" for number, line in enumerate(self.trace, start=1)]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Exploration:
    """What a search saw.

    Attributes:
        protocol: name of the variant that was searched.
        states: number of different states reached.
        moves: number of transitions followed.
        violations: the first violation of each broken property, shortest trace first.
        complete: False if the search ended early, at the property that it was asked for.
    """

    protocol: str
    states: int
    moves: int
    violations: tuple[Violation, ...]
    complete: bool


def moves_from(world: World, protocol: Protocol, positions: int) -> Iterator[Move]:
    """Yield every transition out of a state.

    In a quiet world waits run out only if nothing else can happen.
    """
    quiet = not world.rough
    idle = True
    turns = [Turn(protocol, positions, world, who) for who in (0, 1)]
    for turn in turns:
        # a rank that died does nothing more, not even in its second warp
        if turn.me.pc in (w.DONE, w.DEAD):
            continue
        for move in report_moves(turn) if turn.me.pc == w.REPORT else row_moves(turn):
            idle = False
            yield move
        # a stray writer is no progress that a waiting rank could count on: it leaves idle alone
        yield from stray(turn)
        if not quiet:
            yield from run_out(turn)
            yield from death(turn)
    if quiet and idle:
        for turn in turns:
            yield from run_out(turn)


def _at_the_end(world: World, protocol: Protocol) -> Iterator[tuple[str, Property]]:
    """Yield what is wrong with a state out of which nothing leads."""
    ranks = world.ranks
    if any(rank.pc not in (w.DONE, w.DEAD) for rank in ranks):
        yield "nothing can happen any more and a live rank still waits", Property.TERMINATES
        return
    if not world.rough and world.fault[0] == w.NO_FAULT and not all(world.released):
        yield "the run ends without a fault, a reply was not released", Property.HEALTHY
    if all(rank.pc == w.DONE for rank in ranks):
        shared = not protocol.own_and_peer_words
        codes = [_final_code(ranks[who], ranks[1 - who], shared_word=shared) for who in (0, 1)]
        if codes[0] != codes[1]:
            names = " and ".join(w.CODES[code] for code in codes)
            yield f"all stores have landed, the ranks name {names}", Property.SAME_CODE


def _final_code(me: Rank, peer: Rank, *, shared_word: bool) -> int:
    """Return the code that a rank names once every message of its peer has landed."""
    for store in peer.queue:
        if store.kind == w.ERROR:
            me = w.land(me, store, shared_word=shared_word)
    return w.worst(me.own | me.told)


class _Search:
    """The bookkeeping of one search; parents double as the set of visited states."""

    def __init__(self, starts: tuple[World, ...]) -> None:
        self.parents: _Parents = dict.fromkeys(starts)
        self.frontier = deque(starts)
        self.moves = 0
        self.found: dict[Property, Violation] = {}

    def visit(self, before: World, move: Move) -> None:
        self.moves += 1
        for broken in move.broken:
            self.record(broken, before, move.text)
        if move.world not in self.parents:
            self.parents[move.world] = (before, move.text)
            self.frontier.append(move.world)

    def record(self, broken: Property, last: World, text: str) -> None:
        if broken in self.found:
            return
        lines = [text]
        step = self.parents[last]
        while step is not None:
            last, line = step
            lines.append(line)
            step = self.parents[last]
        self.found[broken] = Violation(broken, tuple(reversed(lines)))


def explore(
    protocol: Protocol = CONTRACT,
    *,
    positions: int = 3,
    launches: int = 2,
    until: Property | None = None,
) -> Exploration:
    """Search all interleavings of two ranks, with at most one injected fault per run.

    Args:
        protocol: the variant to search.
        positions: rows that one launch exchanges; one more than the slots shows slot reuse.
        launches: the first launch and its replays on the same workspace.
        until: end the search as soon as this property is broken; None searches everything.

    Returns:
        Counts and, per broken property, a shortest trace.

    Raises:
        ValueError: ``positions`` or ``launches`` is below 1.
    """
    if positions < 1 or launches < 1:
        raise ValueError(f"positions and launches start at 1, got {positions} and {launches}")
    search = _Search(
        tuple(w.first_world(protocol.slots, launches, rough=rough) for rough in (False, True))
    )
    while search.frontier and until not in search.found:
        world = search.frontier.popleft()
        stuck = True
        for move in moves_from(world, protocol, positions):
            stuck = False
            search.visit(world, move)
        if stuck:
            for text, broken in _at_the_end(world, protocol):
                search.record(broken, world, text)
    return Exploration(
        protocol=protocol.name,
        states=len(search.parents),
        moves=search.moves,
        violations=tuple(sorted(search.found.values(), key=lambda v: len(v.trace))),
        complete=not search.frontier,
    )
