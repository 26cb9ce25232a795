"""The part of gate 2 that goes through many rows, and that the references are one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

from pp4.errors import Code
from pp4.qualify import judge
from pp4.qualify.arms import Arm, Fact, Finding, must_catch, must_pass
from pp4.qualify.context import Context
from pp4.qualify.session import Session, facts_of
from pp4.wire.facts import BUCKETS, Cached, Content, Flaw, Source, Stream, Streamed, read

GATE = 2
_STREAM_S = 500.0
_CACHED: tuple[Cached, ...] = ("none", "mixed", "most", "all")
_CONTENTS: tuple[Content, ...] = (
    "constant",
    "tile-ties",
    "shard-ties",
    "two-finite",
    "extremes",
)
_WAYS: tuple[Source, ...] = ("reference", "vectorised")
_FLAWS: tuple[Flaw, ...] = ("nan", "inf", "empty")


def asked(
    context: Context, batch: int, n_out: int, cached: Cached, blocks: int, number: int
) -> Stream:
    """A stream of blocks; the number keeps its seeds apart from those of others."""
    settings = context.settings
    return Stream(
        batch=batch,
        n_out=n_out,
        cached=cached,
        seed=settings.seed + number,
        blocks=blocks,
        skew_ns=settings.skew_ns,
    )


def streamed(
    context: Context, session: Session, stream: Stream
) -> tuple[tuple[Streamed, ...], Code | None]:
    """Run a stream on both ranks and judge it; -> (what each rank saw, what is wrong).

    It goes past the owner, whose count of epochs is right no more then: streams may follow each
    other on a pair, and nothing else may follow them.  Solo, one rank is enough: two would share
    the device.
    """
    solo = context.settings.solo
    if solo:
        ranks = [session.one(0, "stream", stream.model_dump(), limit_s=_STREAM_S)]
    else:
        ranks = list(session.both("stream", stream.model_dump(), limit_s=_STREAM_S))
    found = tuple(read(Streamed, facts_of(rank)) for rank in ranks)
    return found, judge.streamed(found, stream, solo=solo)


def facts(found: Sequence[Streamed]) -> dict[str, Fact]:
    """What a receipt keeps of one stream."""
    return {
        "rows": tuple(one.rows for one in found),
        "mismatches": tuple(one.mismatches for one in found),
        "first_mismatch": str([one.first_mismatch for one in found]),
    }


def _many(context: Context) -> Finding:
    """Every vocabulary and batch size; all, most, half and none of the bias rows; random skew."""
    settings = context.settings
    shapes, n_out = (settings.shape, *settings.more_shapes), settings.streamed_n_out
    kinds = list(product(settings.batches, _CACHED))
    blocks = -(-settings.streamed_rows // (len(shapes) * sum(batch * n_out for batch, _ in kinds)))
    total, waits = 0, [0] * BUCKETS
    for shape in shapes:
        session = context.fresh(shape=shape)
        for batch, cached in kinds:
            stream = asked(context, batch, n_out, cached, blocks, 1_000_000 + total)
            found, wrong = streamed(context, session, stream)
            total += min(one.rows for one in found)
            waits = [
                sum(counts) for counts in zip(waits, *(one.waits for one in found), strict=True)
            ]
            if wrong:
                where: dict[str, Fact] = {"vocab": shape.vocab, "batch": batch, "cached": cached}
                return Finding(wrong, {**where, **facts(found)}, total)
    return Finding(
        None,
        {
            "rows": total,
            "mismatches": 0,
            "vocabularies": tuple(shape.vocab for shape in shapes),
            "waits_below_2_to": tuple(waits),
            "unit": settings.unit,
        },
        total,
    )


def _spoiled(control: str) -> Callable[[Context], Finding]:
    """A few blocks of a mutant: a comparison that sees none of it would see no race either."""

    def run(context: Context) -> Finding:
        session = context.fresh(controls=(control,))
        stream = asked(context, 2, 2, "mixed", 2, 900_000)
        stream = stream.model_copy(update={"control": control})
        found, code = streamed(context, session, stream)
        return Finding(code, {"mutant": control, **facts(found)}, found[0].rows)

    return run


def _references(context: Context) -> Finding:
    """The reference that checks many rows is the one in Python integers, at every shape."""
    settings, rows = context.settings, 0
    for place, shape in enumerate((settings.shape, *settings.more_shapes)):
        session = context.fresh(shape=shape)
        cases = [context.case(1, 2, 370 + place)]
        if shape is settings.shape:
            cases += [context.case(1, 1, 380, content=content) for content in _CONTENTS]
            cases += [context.case(1, 1, 381, flaw=flaw) for flaw in _FLAWS]
            cases += [context.case(2, 1, 382, modes=(2, 0))]
        for case in cases:
            wrong = judge.agree(session.expect(case, *_WAYS), _WAYS)
            if wrong:
                return Finding(wrong, {"vocab": shape.vocab, "content": case.content}, rows)
            rows += case.batch * case.n_out
    return Finding(None, {"rows": rows}, rows)


ARMS: tuple[Arm, ...] = (
    must_pass(
        GATE,
        "vectorised-agrees",
        "the reference in tensors gives the bits of the one in Python integers",
        _references,
        limit_s=300.0,
    ),
    must_pass(
        GATE,
        "many-rows",
        "row after row with random skew equals the reference on both ranks",
        _many,
        limit_s=900.0,
    ),
    must_catch(
        GATE,
        "many-rows-of-a-mutant",
        Code.OUTPUT_MISMATCH,
        "the same comparison while equal values are ordered the other way round",
        _spoiled("tie_other_way"),
    ),
    must_catch(
        GATE,
        "many-rows-unstamped",
        Code.OUTPUT_MISMATCH,
        "the same comparison while no row is stamped as complete",
        _spoiled("missing_stamp"),
    ),
)
