"""The soak: exchanges with random skew, for as long as asked, every row against the reference."""

from __future__ import annotations

from itertools import cycle, product

from pp4.clock import Deadline
from pp4.qualify import judge
from pp4.qualify.context import Context
from pp4.qualify.gates import streams
from pp4.qualify.progress import Progress
from pp4.wire.facts import BUCKETS, Cached

_BLOCKS = 200
"""Blocks of one stream; a pair is made anew between streams, so that rendezvous are tried too."""
_CACHED: tuple[Cached, ...] = ("none", "mixed", "all")


def soak(context: Context, minutes: int, progress: Progress) -> dict[str, object]:
    """Repeat streams of every vocabulary, batch size and kind of row until the time is over.

    Returns:
        ``soak`` of the receipt, and ``verdict`` where a row was wrong.
    """
    settings = context.settings
    deadline = Deadline.after(context.hold.clock, minutes * 60.0)
    shapes = (settings.shape, *settings.more_shapes)
    kinds = cycle(product(shapes, settings.batches, _CACHED))
    positions, mismatches, waits = 0, 0, [0] * BUCKETS
    wrong = None
    number = 100
    while not (wrong or deadline.expired()):
        shape, batch, cached = next(kinds)
        number += 1
        n_out = settings.streamed_n_out
        stream = streams.asked(context, batch, n_out, cached, _BLOCKS, 1_000_000 * number)
        found = streams.streamed(context.fresh(shape=shape), stream)
        positions += min(one.rows for one in found)
        mismatches += sum(one.mismatches for one in found)
        waits = [a + b for a, b in zip(waits, found[0].waits, strict=True)]
        wrong = judge.streamed(found, stream)
        progress.note(f"soak: {positions} rows, {mismatches} mismatches")
    context.session.teardown()
    result = {
        "positions": str(positions),
        "mismatches": str(mismatches),
        "wait_histogram": waits,
    }
    return {"soak": result, **({"verdict": "wrong"} if wrong else {})}
