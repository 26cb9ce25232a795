"""Gate 3: replays with changed inputs equal eager runs, whatever is replayed in between."""

from __future__ import annotations

from collections.abc import Callable

from pp4.errors import Code
from pp4.qualify import judge
from pp4.qualify.arms import Finding, must_catch, must_pass
from pp4.qualify.context import Context
from pp4.qualify.gates import streams
from pp4.qualify.session import Session, facts_of
from pp4.wire.facts import Case, Exchange, Launch

GATE = 3
_BATCH = 2
_BY_VALUE = "frozen-input"
"""A control of the graph; every other one is a mutant of the kernel."""


def _capture(session: Session, case: Case, control: str | None = None) -> str:
    name = f"graph-{case.batch}-{case.n_out}"
    ranks = session.both("capture", {"name": name, "case": case.model_dump(), "control": control})
    for rank in ranks:
        facts_of(rank)
    return name


def _replay(session: Session, name: str, case: Case) -> Exchange:
    launch = Launch(graph=name)
    return session.block(case, (launch, launch))


def _off(session: Session, case: Case) -> None:
    """Replay the original selector's graph in between."""
    for rank in session.ask("select", case=case.model_dump(), switch=False)["ranks"]:
        facts_of(rank)


def _replays(context: Context) -> Finding:
    """Each replay has new logits, keys, positions and modes, and poisoned outputs before it.

    The first ones stand beside an eager run of the same inputs; the others follow each other on
    the ranks, the original selector's graph between any two.
    """
    settings, done = context.settings, 0
    for depth in settings.depths:
        session = context.fresh()
        name = _capture(session, context.case(_BATCH, depth, 400 + depth))
        for number in range(settings.replays):
            modes = (1, 2) if number % 2 else (1, 1)
            case = context.case(_BATCH, depth, 410 + 100 * depth + number, modes=modes)
            expected = context.expect(case, solo=False)
            replayed = _replay(session, name, case)
            _off(session, case)
            # both equal the reference, whole and on both ranks: so they equal each other
            wrong = judge.equal(replayed, expected) or judge.equal(session.block(case), expected)
            if wrong:
                return Finding(wrong, {"depth": depth, "replay": number}, done)
            done += 1
        blocks = settings.streamed_replays
        asked = streams.asked(context, _BATCH, depth, "mixed", blocks, 4000 + 1000 * depth)
        asked = asked.model_copy(update={"off": True})
        found, wrong = streams.streamed(context, session, asked)
        if wrong:
            return Finding(wrong, {"depth": depth, **streams.facts(found)}, done)
        done += blocks
    return Finding(None, {"depths": settings.depths, "replays": done}, done)


def _padded(control: str | None) -> Callable[[Context], Finding]:
    """Rows beyond the batch are inactive; what stands in them must not be looked at."""

    def run(context: Context) -> Finding:
        session = context.fresh(controls=(control,) if control else ())
        name = _capture(session, context.case(3, 2, 440), control)
        for number, modes in enumerate(((1, 0, 1), (0, 1, 0))):
            padding = tuple(row for row, mode in enumerate(modes) if not mode)
            case = context.case(3, 2, 441 + number, modes=modes, poisoned=padding)
            exchange = _replay(session, name, case)
            wrong = judge.equal(exchange, context.expect(case))
            if wrong:
                return Finding(wrong, {"modes": modes})
        return Finding(None, {"poisoned": "NaN"}, repetitions=2)

    return run


def _control(control: str) -> Callable[[Context], Finding]:
    """A graph with a fault in it, replayed twice with changed inputs.

    Every logit is the same, so that each draw falls on one of 32 ids: two draws seldom agree.
    """

    def run(context: Context) -> Finding:
        planted = () if control == _BY_VALUE else (control,)
        session = context.fresh(controls=planted)
        name = _capture(session, context.case(1, 2, 450, content="constant"), control)
        for number in range(2):
            case = context.case(1, 2, 451 + number, content="constant")
            exchange = _replay(session, name, case)
            wrong = judge.equal(exchange, context.expect(case))
            if wrong:
                return Finding(wrong, {"control": control, "replay": number})
        return Finding(None, {"control": control}, repetitions=2)

    return run


def _reused_epoch(context: Context) -> Finding:
    """What a graph with a stale epoch meets at its second replay, when all words have landed.

    The first replay is a good one that does not count its exchange.  The second would send the same
    epoch again, which the peer has acknowledged.
    """
    control = "reused_epoch"
    session = context.fresh(controls=(control,))
    case = context.case(1, 1, 450)
    name = _capture(session, case, control)
    expected = context.expect(case)
    first, second = (judge.equal(_replay(session, name, case), expected) for _ in range(2))
    facts = {"control": control, "first": first or "released"}
    return Finding(None if first else second, facts, repetitions=2)


ARMS = (
    must_pass(
        GATE,
        "replay-equals-eager",
        "whole blocks replayed with changed inputs, sampled and original graphs in turn",
        _replays,
        limit_s=300.0,
    ),
    must_pass(GATE, "padded-rows", "inactive rows with NaN logits stay silent", _padded(None)),
    must_catch(
        GATE,
        "padded-exchange",
        Code.BAD_LOGITS,
        "inactive rows are tested and exchanged like live ones",
        _padded("padded_exchange"),
    ),
    must_catch(
        GATE,
        "reused-epoch",
        Code.PROTOCOL,
        "a graph whose epoch does not move on",
        _reused_epoch,
    ),
    must_catch(
        GATE,
        "input-by-value",
        Code.OUTPUT_MISMATCH,
        "a graph that kept the request keys of its capture",
        _control(_BY_VALUE),
    ),
    must_catch(
        GATE,
        "missing-stamp",
        Code.INCOMPLETE,
        "a kernel that does not write its completion stamp",
        _control("missing_stamp"),
    ),
)
