"""The owner's part of the model: reports of the ranks, release or discard."""

from __future__ import annotations

from collections.abc import Iterator

from pp4.qualify.host_model import world as w
from pp4.qualify.host_model.protocol import Property
from pp4.qualify.host_model.turn import Move, Turn


def report_moves(turn: Turn) -> Iterator[Move]:
    """Yield the reports that a rank at the end of a launch may give to the owner."""
    yield _post(turn)
    if turn.me.told:
        return
    for index, store in enumerate(turn.peer.queue):
        if store.kind == w.ERROR:
            both = w.arrive(turn.me, turn.peer, index, shared_word=turn.shared_word)
            yield _post(turn.at(*both))


def _post(turn: Turn) -> Move:
    """Give words and stamps to the owner; it releases once it has all that it demands."""
    me, peer, protocol = turn.me, turn.peer, turn.protocol
    launch = len(me.reports)
    stamped = me.stamps == turn.positions or not protocol.demands_stamps
    clean = not (me.own | me.told)
    ok = clean and stamped
    # the owner goes by words and stamps; whether the rows are right only the model knows
    mine_right = me.right == turn.positions and not me.own
    released = list(turn.world.released)
    if protocol.judges_both:
        release = ok and len(peer.reports) > launch and peer.reports[launch]
    else:
        release = ok and turn.who == 0
    wrong = (released[launch] or release) and not mine_right
    released[launch] = released[launch] or release
    text = f"reports launch {launch + 1} {w.CODES[w.worst(me.own | me.told)]}"
    text += "" if stamped else ", a stamp missing"
    text += ", the owner releases the reply" if release else ""
    last = launch + 1 == len(released)
    cleared = not protocol.keeps_words and not last and not clean
    if cleared:
        me = me._replace(own=0, told=0)
        text += ", the next launch clears the words"
    me = me._replace(pc=w.DONE if last else w.CHECK, stamps=0, right=0, reports=(*me.reports, ok))
    after = turn._replace(world=turn.world._replace(released=tuple(released)))
    broken = (Property.RELEASE,) * wrong + (Property.STICKY,) * cleared
    return after.move(text, me, *broken)
