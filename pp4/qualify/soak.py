"""The soak: exchanges with random skew, for as long as asked, every row against the reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle, product

from pp4.clock import Deadline
from pp4.qualify.arms import Arm, Finding, must_pass
from pp4.qualify.context import Context
from pp4.qualify.gates import Gate, streams
from pp4.qualify.pair_qualify import ArmResult
from pp4.wire.facts import BUCKETS, Cached

GATE = 2
_ARM = "soak"
_BLOCKS = 200
"""Blocks of one stream; each stream has a rendezvous of its own."""
_CACHED: tuple[Cached, ...] = ("none", "mixed", "most", "all")
_SEEDS = 1_000_000
"""Seeds of two streams are this far apart: none has so many blocks."""
_FIRST = 100
"""Streams of the gates have the seeds below."""
_SLACK_S = 120.0
"""How long the last stream may take after the time is over."""


def with_soak(gates: tuple[Gate, ...], minutes: int) -> tuple[Gate, ...]:
    """The gates, with a soak at the end of gate 2 where minutes are asked for."""
    if not minutes:
        return gates
    return tuple(
        replace(gate, arms=(*gate.arms, _arm(minutes))) if gate.number == GATE else gate
        for gate in gates
    )


def _arm(minutes: int) -> Arm:
    return must_pass(
        GATE,
        _ARM,
        f"{minutes} minutes of exchanges with random skew, every row held against the reference",
        lambda context: _soak(context, minutes),
        limit_s=minutes * 60.0 + _SLACK_S,
    )


def result(results: Sequence[ArmResult]) -> dict[str, object] | None:
    """Member ``soak`` of a receipt; None where no soak came to its end."""
    for one in results:
        facts = one.finding.facts
        waits = facts.get("waits_below_2_to")
        if (one.step.gate, one.step.arm) == (GATE, _ARM) and isinstance(waits, tuple):
            return {
                "positions": str(facts["rows"]),
                "mismatches": str(facts["mismatches"]),
                "wait_histogram": list(waits),
            }
    return None


def _soak(context: Context, minutes: int) -> Finding:
    """Repeat streams of every vocabulary, batch size and kind of row until the time is over."""
    settings = context.settings
    deadline = Deadline.after(context.hold.clock, minutes * 60.0)
    shapes = (settings.shape, *settings.more_shapes)
    kinds = cycle(product(shapes, settings.batches, _CACHED))
    positions, mismatches, waits, streams_run = 0, 0, [0] * BUCKETS, 0
    wrong = None
    while not (wrong or deadline.expired()):
        shape, batch, cached = next(kinds)
        streams_run += 1
        seed = _SEEDS * (_FIRST + streams_run)
        stream = streams.asked(context, batch, settings.streamed_n_out, cached, _BLOCKS, seed)
        found, wrong = streams.streamed(context, context.fresh(shape=shape), stream)
        positions += min(one.rows for one in found)
        mismatches += sum(one.mismatches for one in found)
        waits = [sum(counts) for counts in zip(waits, *(one.waits for one in found), strict=True)]
    return Finding(
        wrong,
        {
            "minutes": minutes,
            "streams": streams_run,
            "rows": positions,
            "mismatches": mismatches,
            "waits_below_2_to": tuple(waits),
            "unit": settings.unit,
        },
        positions,
    )
