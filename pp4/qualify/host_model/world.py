"""The state of the model: what each rank holds, and the stores that are still in flight.

Words are small integers and a state is a tuple of tuples, so that it hashes fast and two equal
states are the same key.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from pp4.errors import Code

# Where a rank stands; a rank stops only where it looks at memory that its peer can write.
CHECK: Final = 0
WAIT_ACK: Final = 1
WAIT_FLAG: Final = 2
READ: Final = 3
JOIN: Final = 4  # warp 0 has read its half and waits for warp 1
REPORT: Final = 5
DONE: Final = 6
DEAD: Final = 7

# Error bits, so ordered that the highest one that is set is the code that counts.
EMPTY_ROW: Final = 1
BAD_LOGITS: Final = 2
PEER_TIMEOUT: Final = 4
PROTOCOL: Final = 8
EPOCH_EXHAUSTED: Final = 16

CODES: Final = {
    0: "clean",
    EMPTY_ROW: Code.EMPTY_ROW.value,
    BAD_LOGITS: Code.BAD_LOGITS.value,
    PEER_TIMEOUT: Code.PEER_TIMEOUT.value,
    PROTOCOL: Code.PROTOCOL.value,
    EPOCH_EXHAUSTED: Code.EPOCH_EXHAUSTED.value,
}

# Faults; at most one is injected in a run (on one rank or on both where that makes sense).
NO_FAULT: Final = 0
FAULT_BAD: Final = 1
FAULT_EXHAUSTED: Final = 2
FAULT_EMPTY: Final = 3
FAULT_LOST: Final = 4
FAULT_STRAY: Final = 5
FAULT_DEATH: Final = 6

# Kinds of stores into the peer's memory.
DATA: Final = 0
FLAG: Final = 1
ACK: Final = 2
ERROR: Final = 3

UNREAD: Final = -1
STRAY_EPOCH: Final = 99  # what a writer of an earlier run leaves: above every epoch of this one


class Store(NamedTuple):
    """A store that was issued and that the peer may not see yet.

    ``where`` is the slot of a flag, ``2 * slot + half`` of data and 0 otherwise; ``value`` is an
    epoch, an error bit or, for data, the serial number of the row (what the data really is).
    A store that is not ``plain`` is a release: all stores before it in the queue land with it.
    """

    kind: int
    where: int
    value: int
    plain: bool = False


class Rank(NamedTuple):
    """One rank: its program counter, its memory, and its stores in flight.

    ``flags``, ``ack``, ``inbox`` and ``told`` are what has landed from the peer.  ``queue`` holds
    stores that thread 0 is ordered behind; ``loose`` those of warp 1 since the last block barrier.
    ``reading``: warp 1 may read its half now.  ``right`` counts rows of this launch that were
    truly good, ``stamps`` those that say so.
    """

    pc: int
    row: int
    epoch: int
    own: int
    told: int
    flags: tuple[int, ...]
    ack: int
    inbox: tuple[int, ...]
    got: tuple[int, int]
    reading: bool
    queue: tuple[Store, ...]
    loose: tuple[Store, ...]
    stamps: int
    right: int
    reports: tuple[bool, ...]


class World(NamedTuple):
    """Both ranks and their surroundings.

    In a ``rough`` world a wait may run out at any time and a rank may die; in a quiet one time
    is so slow that a wait runs out only when nothing else can happen.  ``fault`` is kind, mask of
    ranks, row.
    """

    rough: bool
    fault: tuple[int, int, int]
    ranks: tuple[Rank, Rank]
    released: tuple[bool, ...]


def first_world(slots: int, launches: int, *, rough: bool) -> World:
    """Return the state right after the rendezvous: everything zero, nothing in flight."""
    rank = Rank(
        pc=CHECK,
        row=1,
        epoch=0,
        own=0,
        told=0,
        flags=(0,) * slots,
        ack=0,
        inbox=(0,) * (2 * slots),
        got=(UNREAD, UNREAD),
        reading=False,
        queue=(),
        loose=(),
        stamps=0,
        right=0,
        reports=(),
    )
    return World(rough, (NO_FAULT, 0, 0), (rank, rank), (False,) * launches)


def worst(mask: int) -> int:
    """Return the bit of highest precedence in an error mask, 0 for a clean one."""
    return 1 << (mask.bit_length() - 1) if mask else 0


def _set(cells: tuple[int, ...], index: int, value: int) -> tuple[int, ...]:
    return (*cells[:index], value, *cells[index + 1 :])


def land(rank: Rank, store: Store, *, shared_word: bool) -> Rank:
    """Return the receiving rank with one store landed in its memory."""
    if store.kind == DATA:
        return rank._replace(inbox=_set(rank.inbox, store.where, store.value))
    if store.kind == FLAG:
        return rank._replace(flags=_set(rank.flags, store.where, store.value))
    if store.kind == ACK:
        return rank._replace(ack=store.value)
    if shared_word:  # the planted single word: whoever writes last wins
        return rank._replace(own=0, told=store.value)
    return rank._replace(told=rank.told | store.value)


def arrive(me: Rank, peer: Rank, index: int, *, shared_word: bool) -> tuple[Rank, Rank]:
    """Let ``peer.queue[index]`` land in ``me``: a release with all before it, a plain one alone.

    Returns:
        The receiving and the sending rank afterwards.
    """
    chosen = peer.queue[index]
    if not chosen.plain:
        for store in peer.queue[: index + 1]:
            me = land(me, store, shared_word=shared_word)
        return me, peer._replace(queue=peer.queue[index + 1 :])
    # stores to one place keep their order: an older one that comes later must not win
    spot = (chosen.kind, chosen.where)
    older = [s for s in peer.queue[:index] if (s.kind, s.where) != spot]
    me = land(me, chosen, shared_word=shared_word)
    return me, peer._replace(queue=(*older, *peer.queue[index + 1 :]))


def readings(me: Rank, peer: Rank, where: int) -> Iterator[tuple[int, Rank, Rank]]:
    """Yield every value that a load of one inbox half may return, with both ranks afterwards.

    A store in flight to that half may have landed just before the load, or not yet.
    """
    yield me.inbox[where], me, peer
    for index, store in enumerate(peer.queue):
        if store.kind == DATA and store.where == where:
            mine, theirs = arrive(me, peer, index, shared_word=False)
            yield store.value, mine, theirs
    for index, store in enumerate(peer.loose):
        if store.where == where:
            mine = land(me, store, shared_word=False)
            loose = peer.loose[:index] + peer.loose[index + 1 :]
            # the older ones of the same place, wherever they wait, can no longer win
            queue = tuple(s for s in peer.queue if (s.kind, s.where) != (DATA, where))
            yield store.value, mine, peer._replace(loose=loose, queue=queue)
