"""Gate 1: both specialisations are compiled and loaded before either launches, and none after."""

from __future__ import annotations

from pp4.errors import Code, WrongError
from pp4.qualify import judge
from pp4.qualify.arms import Finding, must_catch, must_pass
from pp4.qualify.context import Context
from pp4.qualify.gates import looking
from pp4.qualify.session import code_of, facts_of
from pp4.wire.facts import Primed, read

GATE = 1
_DELAYED = 1
_NOBODY_WAITS = "not exercised: nobody waits for a peer, or the interpreter holds no blocks"
_NOT_SEEN = "not exercised: the interpreter compiles nothing"


def _unprimed_capture(context: Context) -> Finding:
    """Both ranks have compiled, but neither knows it of the other: no barrier was passed."""
    session, settings = context.session, context.settings
    session.start()
    session.link(settings.rows, (settings.patient, settings.patient))
    for rank in session.both("prime", {"shape": settings.shape.model_dump()}):
        facts_of(rank)
    case = context.case(1, 2, 100)
    ranks = session.both("capture", {"name": "early", "case": case.model_dump()})
    refusals = [rank["refusal"] for rank in ranks]
    places = tuple("none" if one is None else str(one["where"]) for one in refusals)
    return Finding(judge.unprimed(refusals), {"refused_at": places})


def _held_back(context: Context) -> Finding:
    """Rank 1 compiles late; a launch is tried meanwhile, then both launch."""
    session, settings = context.session, context.settings
    session.start()
    case = context.case(1, 2, 101)
    facts = session.ask(
        "prime",
        limit_s=240.0,
        shape=settings.shape.model_dump(),
        delayed=_DELAYED,
        probe={"case": case.model_dump()},
    )
    ones = tuple(read(Primed, one) for one in facts["primed"])
    context.record.primed = ones
    context.record.solo = tuple(read(Primed, one) for one in facts["solo"])
    waiting = () if settings.solo else ones
    crowded = _crowded(context, waiting)
    session.link(settings.rows, (settings.patient, settings.patient))
    exchange = session.block(case)
    first = min(block.launched_ns for block in exchange.blocks)
    code = judge.primed(ones, first, facts["meanwhile"]) or judge.healthy(exchange)
    code = code or judge.crowded(waiting, settings.rows, crowded)
    unlike = context.unlike(kernels=_named("solo", context.record.solo))
    return Finding(
        Code.EVIDENCE_MISMATCH if unlike else code,
        {
            "unlike_evidence": unlike,
            "specialisations": (ones[0].key, context.record.solo[0].key),
            "target": ones[0].target,
            "delayed_rank": _DELAYED,
            "launch_meanwhile": facts["meanwhile"],
            "resident_blocks": tuple(one.resident or 0 for one in waiting),
            "rendezvous_of_as_many_rows": crowded or _NOBODY_WAITS,
            "launched_after_primed_ns": str(first - max(one.primed_ns for one in ones)),
        },
    )


def _crowded(context: Context, ones: tuple[Primed, ...]) -> Code | None:
    """Ask for as many rows as blocks are resident; -> the refusal, None where nothing is asked."""
    resident = [one.resident for one in ones if one.resident is not None]
    if not resident:
        return None
    waits = context.settings.patient
    try:
        context.session.link(min(resident), (waits, waits))
    except WrongError as error:
        return error.refusal.code
    return Code.INCOMPLETE


def _named(name: str, ones: tuple[Primed, ...]) -> dict[str, str]:
    """Digests of kernels by the names that receipts have for them."""
    return {
        f"sampled_fused.{name}/{one.rank}/{one.target}": f"{one.ptx_sha256}:{one.cubin_sha256}"
        for one in ones
    }


def _one_specialisation(context: Context) -> Finding:
    """Batches, positions, keys, epochs and cached rows change; the specialisation does not.

    The ranks accept every case with the one key that they primed, and a compilation for the same
    shape afterwards gives the primed digests, out of the cache.  That no launch compiles anything
    is counted where launches can; the interpreter's cannot.
    """
    cases = [
        context.case(batch, n_out, 110 + batch, cached=cached)
        for batch, n_out, cached in ((1, 2, "all"), (2, 1, "none"), (3, 1, "mixed"))
    ]
    for case in cases:
        wrong = judge.healthy(context.session.block(case))
        if wrong:
            return Finding(wrong, {"batch": case.batch})
    before = looking.compiled(context.compiled)
    shape = context.settings.shape.model_dump()
    ranks = context.session.both("prime", {"shape": shape})
    ones = [read(Primed, facts_of(rank)) for rank in ranks]
    cached = (before, looking.compiled(context.compiled))
    counted = [facts_of(rank)["compilations"] for rank in context.session.both("compilations", {})]
    if any(counted):
        return Finding(Code.COMPILED_AFTER_PRIMING, {"compilations": str(counted)})
    seen = counted != [None, None]
    return Finding(
        judge.one_specialisation(ones, context.record.primed, None if seen else cached),
        {
            "launched_shapes": len(cases),
            "cached_before_and_after": cached,
            "compilation_at_launch": "none" if seen else _NOT_SEEN,
        },
        repetitions=len(cases),
    )


def _too_late(context: Context) -> Finding:
    shape = context.settings.late_shape.model_dump()
    ranks = context.session.both("prime", {"shape": shape})
    codes = [code_of(rank) for rank in ranks]
    wanted = codes[0] if codes[0] is codes[1] else None
    where = ranks[0]["refusal"]["found"] if ranks[0]["refusal"] else "compiled"
    return Finding(wanted, {"specialisation": where})


ARMS = (
    must_catch(
        GATE,
        "unprimed-capture",
        Code.UNPRIMED,
        "a graph is captured before the ranks have told each other that they are primed",
        _unprimed_capture,
    ),
    must_pass(
        GATE,
        "both-primed-before-launch",
        "a compilation that is late on one rank holds the launches of both",
        _held_back,
        limit_s=300.0,
    ),
    must_pass(
        GATE,
        "one-specialisation",
        "other batches, positions and cached rows run with the primed key; its digests stay",
        _one_specialisation,
    ),
    must_catch(
        GATE,
        "late-compilation",
        Code.COMPILED_AFTER_PRIMING,
        "another specialisation is asked for after priming",
        _too_late,
    ),
)
