"""Gate 2: the pair gives the reference's bits, and each way to get them wrong is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pp4.errors import Code
from pp4.qualify import judge
from pp4.qualify.arms import Arm, Finding, must_catch, must_pass
from pp4.qualify.context import Context
from pp4.qualify.gates import proofs, streams
from pp4.qualify.session import facts_of
from pp4.wire.facts import Cached, Case, Launch

GATE = 2
_SKEW_NS = 300_000_000
"""Longer than any launch takes, and far below the budget of a first exchange."""


def _compared(context: Context, cases: list[Case], **how: Any) -> Finding:
    """Run cases on a fresh pair and hold each against the reference and the solo kernel."""
    session = context.fresh()
    rows = 0
    for case in cases:
        exchange = session.block(case, **how)
        wrong = judge.equal(exchange, context.expect(case))
        rows += case.batch * case.n_out
        if wrong:
            return Finding(wrong, {"batch": case.batch, "content": case.content}, rows)
    return Finding(None, {"rows": rows, "cases": len(cases)}, rows)


def _random(context: Context) -> Finding:
    """Every batch size with half of the rows cached, the least with all or none, one with most."""
    batches = context.settings.batches
    asked: list[tuple[int, Cached]] = [(batch, "mixed") for batch in batches]
    asked += [(batches[0], "none"), (batches[0], "all"), (batches[-1], "most")]
    cases = [
        context.case(batch, 2, 200 + place, cached=cached)
        for place, (batch, cached) in enumerate(asked)
    ]
    return _compared(context, cases)


def _contents(*contents: str) -> Callable[[Context], Finding]:
    def run(context: Context) -> Finding:
        cases = [
            context.case(2, 2, 300 + place, content=content)
            for place, content in enumerate(contents)
        ]
        return _compared(context, cases)

    return run


def _other_order(context: Context) -> Finding:
    return _compared(context, [context.case(2, 2, 320)], first=1)


def _skewed(context: Context) -> Finding:
    """One rank is held back on its device, and the other has to wait for it."""
    session = context.fresh()
    for first in (0, 1):
        case = context.case(1, 2, 330 + first)
        launches = (Launch(), Launch(delay_ns=_SKEW_NS))
        ordered = launches if first == 0 else launches[::-1]
        exchange = session.block(case, (ordered[0], ordered[1]), first=first, second="launched")
        wrong = judge.equal(exchange, context.expect(case))
        blocks = exchange.blocks
        if not wrong and not judge.waited_longer(blocks[first], blocks[1 - first]):
            wrong = Code.INCOMPLETE
        if wrong:
            return Finding(wrong, {"first": first}, first + 1)
    return Finding(None, {"rows": 4}, 4)


def _fault(flaw: str, code: Code, control: str | None = None) -> Callable[[Context], Finding]:
    """A flaw in either shard must reach both ranks as the same word, and nothing may leave.

    The position before the flaw is clean, the flaw's and every later one carries the word.
    """

    def run(context: Context) -> Finding:
        launch = Launch(control=control)
        for rank in (0, 1):
            session = context.fresh(controls=(control,) if control else ())
            case = context.case(1, 3, 340 + rank, flaw=flaw, flaw_rank=rank, flaw_at=1)
            exchange = session.block(case, (launch, launch))
            wrong = judge.failed_closed(exchange, code, context.settings.failed_block_ns)
            wrong = wrong or judge.inside(exchange, code) or _expected(context, case)
            if wrong:
                why = exchange.why or "released"
                return Finding(wrong, {"flaw": flaw, "in_shard_of_rank": rank, "why": why})
        return Finding(None, {"flaw": flaw, "code": str(code)}, repetitions=2)

    return run


def _unsaid(context: Context) -> Finding:
    """A rank that finds NaN and says nothing: its peer has to wait out a budget."""
    control, flawed = "no_error_message", 1
    hasty = context.settings.hasty
    # the host launches one position after the other: the later ones get the longer budget too
    waits = hasty.model_copy(update={"next_ns": hasty.first_ns, "next_polls": hasty.first_polls})
    launch = Launch(control=control)
    case = context.case(1, 3, 345, flaw="nan", flaw_rank=flawed, flaw_at=1)
    exchange = context.fresh(waits, controls=(control,)).block(case, (launch, launch))
    budget = context.settings.budget(hasty, first=True)
    return Finding(
        judge.kept_to_itself(exchange, flawed, budget),
        {"flaw": "nan", "in_shard_of_rank": flawed, "why": exchange.why or "released"},
    )


def _expected(context: Context, case: Case) -> Code | None:
    """The reference draws nothing from the flaw on either."""
    (reference,) = context.expect(case, solo=False)
    return None if reference.tokens[0][1:] == (-1, -1) else Code.OUTPUT_MISMATCH


def _foreign_epoch(context: Context) -> Finding:
    """The ranks count from different epochs, as after a reset on one side only."""
    session, settings = context.session, context.settings
    session.start()
    session.prime(settings.shape, recorded=True)
    start = session.link(settings.rows, (settings.patient, settings.patient))["start"]
    # one slot ahead and the same slot parity: the flag that rank 0 polls is too high
    for rank in session.both("recount", {"start": start}, {"start": start + 2}):
        facts_of(rank)
    exchange = session.block(context.case(1, 1, 350))
    wrong = judge.failed_closed(exchange, Code.PROTOCOL, settings.failed_block_ns)
    return Finding(wrong, {"start_epochs_apart": 2})


def _mutant(name: str, **how: Any) -> Callable[[Context], Finding]:
    """Run a mutant on both ranks in the product's place and judge as usual."""

    def run(context: Context) -> Finding:
        session = context.fresh(controls=(name,))
        case = context.case(2, 2, 360, content=how.get("content", "random"))
        launch = Launch(control=name)
        exchange = session.block(case, (launch, launch))
        return Finding(
            judge.equal(exchange, context.expect(case, solo=False)),
            {"mutant": name, "why": exchange.why or "released"},
        )

    return run


_PASSES: tuple[Arm, ...] = (
    must_pass(
        GATE,
        "pair-equals-reference",
        "ids, q and tokens equal the reference and the solo kernel; cached, uncached, mixed rows",
        _random,
        limit_s=300.0,
    ),
    *streams.ARMS,
    must_pass(
        GATE,
        "ties",
        "ties across the tile border, the shard border and the whole row",
        _contents("tile-ties", "shard-ties", "constant"),
    ),
    must_pass(
        GATE,
        "edges",
        "two finite values in a row; largest, smallest and negative-zero logits",
        _contents("two-finite", "extremes"),
    ),
    must_pass(GATE, "launch-order", "rank 1 is launched before rank 0", _other_order),
    must_pass(GATE, "skewed-start", "one rank waits for the launch of the other", _skewed),
    must_pass(
        GATE,
        "bad-logits",
        "NaN in either shard fails both ranks with one word",
        _fault("nan", Code.BAD_LOGITS),
    ),
    must_pass(
        GATE,
        "infinite-logits",
        "+inf in either shard fails both ranks with one word",
        _fault("inf", Code.BAD_LOGITS),
    ),
    must_pass(
        GATE,
        "empty-row",
        "a row without a finite value fails both ranks with one word",
        _fault("empty", Code.EMPTY_ROW),
    ),
    must_pass(
        GATE,
        "foreign-epoch",
        "an epoch of another count fails both ranks with one word",
        _foreign_epoch,
    ),
)

_MUTANTS: tuple[Arm, ...] = (
    must_catch(
        GATE,
        "flag-before-data",
        Code.PROTOCOL,
        "the flag is published before the candidates, which follow with a forced delay",
        _mutant("flag_before_data"),
    ),
    must_catch(
        GATE,
        "dropped-candidate",
        Code.RANKS_DIFFER,
        "the peer's best candidate is lost",
        _mutant("dropped_candidate"),
    ),
    must_catch(
        GATE,
        "swapped-bounds",
        Code.OUTPUT_MISMATCH,
        "each rank takes the other's shard bounds",
        _mutant("swapped_bounds"),
    ),
    must_catch(
        GATE,
        "tie-broken-upwards",
        Code.OUTPUT_MISMATCH,
        "of equal values the higher id comes first",
        _mutant("tie_other_way", content="shard-ties"),
    ),
    must_catch(
        GATE,
        "skipped-test",
        Code.RELEASED_AFTER_ERROR,
        "no tile looks for NaN, and a shard has one",
        _fault("nan", Code.BAD_LOGITS, "skip_bad_test"),
    ),
    must_catch(
        GATE,
        "unsaid-fault",
        Code.WRONG_ERROR_WORD,
        "a rank with a NaN keeps it to itself, and its peer waits",
        _unsaid,
    ),
    must_catch(
        GATE,
        "missing-barrier-ran",
        Code.OUTPUT_MISMATCH,
        "no barrier before a release: a race that hardware may survive, recorded only",
        _mutant("missing_barrier"),
        gating=False,
    ),
    must_catch(
        GATE,
        "relaxed-signal-ran",
        Code.OUTPUT_MISMATCH,
        "the flag is stored relaxed: a race that hardware may survive, recorded only",
        _mutant("relaxed_signal"),
        gating=False,
    ),
)

ARMS = (*_PASSES, *proofs.ARMS, *_MUTANTS)
