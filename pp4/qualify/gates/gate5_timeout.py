"""Gate 5: whatever goes wrong between the ranks ends within its bound, sticks, and lets go."""

from __future__ import annotations

from collections.abc import Callable

from pp4.errors import Code
from pp4.qualify import judge
from pp4.qualify.arms import Finding, must_catch, must_pass
from pp4.qualify.context import Context
from pp4.qualify.session import Session, facts_of
from pp4.wire.facts import Block, Case, Exchange, Launch, read

GATE = 5
_LATE = 1


def _alone(session: Session, rank: int, case: Case) -> Block:
    """Launch one rank past the owner, while its peer stands still."""
    given = {"case": case.model_dump(), "launch": Launch().model_dump()}
    return read(Block, facts_of(session.one(rank, "run", given)))


def _stuck(context: Context, case: Case, fault: Code, ranks: tuple[int, ...]) -> Code | None:
    """The owner refuses the next block, and the kernels themselves keep the error.

    The second part goes past the owner: one rank after the other is launched alone, so a rank that
    waited for its peer again would report how long.
    """
    session = context.session
    if session.refusal("block", case=case.model_dump(), launches=[{}, {}]) is not Code.STICKY:
        return Code.STICKY
    blocks = [_alone(session, rank, case) for rank in ranks]
    return judge.stuck(blocks, ranks, fault, context.settings.failed_block_ns)


def _let_go(context: Context, session: Session) -> Code | None:
    """The pair is gone for certain, and a new one on the same devices serves."""
    gone = session.teardown()
    if not (all(gone["dead"]) and len(gone["dead"]) == 2) or gone["links_left"]:
        return Code.NOT_TORN_DOWN
    if context.hold.gpus and not context.at_rest()[1]:
        return Code.NOT_TORN_DOWN
    healthy = context.fresh(session=session)
    return judge.healthy(healthy.block(context.case(1, 1, 690)))


def _failure(
    context: Context,
    exchange: Exchange,
    case: Case,
    fault: Code,
    *,
    died: tuple[int, ...] = (),
    budget: int | None = None,
) -> Finding:
    """Judge one failed block: its words, that they stick, and that the pair can be replaced.

    budget: how long the wait that ran out was allowed to take, in the unit of the settings.
    """
    session = context.session
    wrong = judge.failed_closed(exchange, fault, context.settings.failed_block_ns, died)
    if budget is not None:
        wrong = wrong or judge.ran_out(exchange, budget)
    ranks = tuple(rank for rank in (0, 1) if rank not in died)
    wrong = wrong or _stuck(context, case, fault, ranks)
    wrong = wrong or _let_go(context, session)
    return Finding(
        wrong,
        {
            "why": exchange.why,
            "died": exchange.died,
            "elapsed_ns": tuple(str(block.elapsed_ns) for block in exchange.blocks),
            "longest_wait": tuple(str(judge.longest(block)) for block in exchange.blocks),
            "budget": "none" if budget is None else str(budget),
            "unit": context.settings.unit,
            "errors": str([block.errors for block in exchange.blocks]),
        },
    )


def _lonely(second: str) -> Callable[[Context], Finding]:
    """The peer is launched never, or only after the first rank has given up."""

    def run(context: Context) -> Finding:
        case = context.case(1, 2, 600)
        exchange = context.hasty().block(case, second=second)
        budget = context.settings.budget(context.settings.hasty, first=True)
        return _failure(context, exchange, case, Code.PEER_TIMEOUT, budget=budget)

    return run


def _paused(action: str, died: tuple[int, ...]) -> Callable[[Context], Finding]:
    """Rank 1 stops between two positions: for too long, or for ever."""

    def run(context: Context) -> Finding:
        # patient at first, so that only the wait for the stopped rank runs out
        hasty = context.settings.hasty
        soon = {"next_polls": hasty.next_polls, "next_ns": hasty.next_ns}
        session = context.fresh(context.settings.patient.model_copy(update=soon))
        case = context.case(1, 3, 610)
        launches = (Launch(), Launch(pause_before=1))
        exchange = session.block(case, launches, on_pause=action)
        budget = context.settings.budget(hasty, first=False)
        finding = _failure(context, exchange, case, Code.PEER_TIMEOUT, died=died, budget=budget)
        first = exchange.blocks[0].errors[0]
        if finding.code is None and (first[0] or not all(first[1:])):
            return Finding(Code.WRONG_ERROR_WORD, finding.facts)
        return finding

    return run


def _nan(context: Context) -> Finding:
    case = context.case(1, 2, 620, flaw="nan", flaw_rank=1)
    exchange = context.fresh().block(case)
    return _failure(context, exchange, case, Code.BAD_LOGITS)


def _exhausted(context: Context) -> Finding:
    """Two epochs are left and the block needs three: the third is refused before it is sent."""
    waits = context.settings.patient.model_copy(update={"epochs": 2})
    case = context.case(1, 3, 630)
    exchange = context.fresh(waits).block(case)
    finding = _failure(context, exchange, case, Code.EPOCH_EXHAUSTED)
    clean = [block.errors[0][:2] == (0, 0) for block in exchange.blocks]
    if finding.code is None and not all(clean):
        return Finding(Code.WRONG_ERROR_WORD, finding.facts)
    return finding


def _healthy(context: Context) -> Finding:
    """Replay after replay with the bounds that the product ships with: nothing trips."""
    session = context.fresh(context.settings.ordinary)
    name = "healthy"
    given = {"name": name, "case": context.case(2, 2, 640).model_dump(), "control": None}
    for rank in session.both("capture", given):
        facts_of(rank)
    launch = Launch(graph=name)
    blocks = 4
    for number in range(blocks):
        case = context.case(2, 2, 640 + number)
        wrong = judge.healthy(session.block(case, (launch, launch), first=number % 2))
        if wrong:
            return Finding(wrong, {"block": number}, number + 1)
    return Finding(None, {"blocks": blocks}, blocks)


def _late_answer(context: Context, session: Session) -> Exchange:
    """Rank 0 gives up; then rank 1 runs a kernel that ignores the words and answers cleanly."""
    launches = (Launch(), Launch(control="ignores_sticky"))
    case = context.case(1, 1, 650)
    hasty = context.hasty(session, controls=("ignores_sticky",))
    return hasty.block(case, launches, second="answered")


def _late_answer_kept(context: Context) -> Finding:
    exchange = _late_answer(context, context.session)
    clean = tuple(block.rank for block in exchange.blocks if not block.own_error)
    return Finding(
        judge.late_answer(exchange, _LATE, context.settings.failed_block_ns),
        {"ranks_with_clean_own_word": clean, "why": exchange.why or "released"},
    )


def _one_word(context: Context) -> Finding:
    """The same late answer, given to an owner that believes one rank's own word."""
    session = context.careless()
    try:
        exchange = _late_answer(context, session)
    finally:
        session.close()
    return Finding(judge.release(exchange), {"released": exchange.released})


ARMS = (
    must_pass(GATE, "healthy", "ordinary blocks do not trip a bound", _healthy),
    must_pass(GATE, "never-launched", "the peer is never launched", _lonely("never")),
    must_pass(GATE, "late-first", "the peer comes late to the first exchange", _lonely("answered")),
    must_pass(
        GATE, "late-next", "the peer comes late to a later exchange", _paused("resume-late", ())
    ),
    must_pass(GATE, "killed", "the peer is killed between two positions", _paused("kill", (1,))),
    must_pass(GATE, "nan-row", "a NaN row fails both ranks and the pair is replaced", _nan),
    must_pass(GATE, "exhausted-epochs", "epochs run out in the middle of a block", _exhausted),
    must_catch(
        GATE,
        "late-answer",
        Code.PEER_TIMEOUT,
        "a clean answer comes after the other rank has given up",
        _late_answer_kept,
    ),
    must_catch(
        GATE,
        "one-rank-word",
        Code.RELEASED_ON_ONE_WORD,
        "an owner releases a reply on one rank's word",
        _one_word,
    ),
)
