"""Gate 4: greedy rows among sampled ones, and the original path where nothing is sampled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pp4.errors import Code
from pp4.qualify import judge
from pp4.qualify.arms import Finding, must_catch, must_pass
from pp4.qualify.context import Context
from pp4.qualify.session import Session, code_of, facts_of
from pp4.wire.facts import Case, Launch, Selected, read

GATE = 4
_MIXED = (1, 2, 1)
_GREEDY = (2, 2, 2)


def _select(session: Session, case: Case, **how: Any) -> tuple[Selected, Selected]:
    ranks = session.ask("select", case=case.model_dump(), **how)["ranks"]
    return read(Selected, facts_of(ranks[0])), read(Selected, facts_of(ranks[1]))


def _mixed_run(context: Context, control: str | None) -> Finding:
    session = context.fresh(controls=(control,) if control else ())
    case = context.case(3, 2, 500, modes=_MIXED)
    launch = Launch(control=control)
    exchange = session.block(case, (launch, launch))
    (reference,) = context.expect(case, solo=False)
    # the original selector looks at no mode: its tokens are the argmax of every row
    greedy, _ = _select(session, case, switch=False)
    return Finding(
        judge.mixed(exchange, reference, greedy, case),
        {"modes": _MIXED, "control": control or "none"},
    )


def _mixed(context: Context) -> Finding:
    return _mixed_run(context, None)


def _mutant(name: str) -> Callable[[Context], Finding]:
    return lambda context: _mixed_run(context, name)


def _neighbours(context: Context) -> Finding:
    session = context.fresh()
    changed = 1
    before = session.block(context.case(3, 2, 510, modes=_MIXED))
    modes = (1, 1, 1)
    after = session.block(context.case(3, 2, 510, modes=modes))
    code = judge.healthy(before) or judge.healthy(after)
    code = code or judge.neighbours(before.blocks[0], after.blocks[0], changed)
    return Finding(code, {"before": _MIXED, "after": modes})


def _originals(context: Context) -> Finding:
    """Switch ON with nothing to sample: the outputs are the OFF path's own objects."""
    session = context.fresh()
    case = context.case(3, 2, 520, modes=_GREEDY)
    off = _select(session, case, switch=False)
    name = "graph-4"
    for rank in session.both("capture", {"name": name, "case": case.model_dump()}):
        facts_of(rank)
    on = _select(session, case, switch=True, graph=name)
    code, branched = _branched(context, case.model_copy(update={"modes": _MIXED}), name)
    kept = all(one.path == "original" and one.same_objects and one.q_zero for one in on)
    same = [one.tokens for one in on] == [one.tokens for one in off]
    return Finding(
        code if kept and same and branched else Code.NOT_ORIGINAL,
        {"same_objects": kept, "same_tokens": same, "mixed_is_sampled": branched},
    )


def _branched(context: Context, case: Case, graph: str) -> tuple[Code | None, bool]:
    """The other side of the branch: whether it was taken, and what is wrong with its outputs."""
    facts = context.session.ask("select", case=case.model_dump(), switch=True, graph=graph)
    mixed = [read(Selected, facts_of(rank)) for rank in facts["ranks"]]
    (reference,) = context.expect(case, solo=False)
    code = judge.selected(mixed, facts["released"] is True, str(facts["why"]), reference)
    return code, all(one.path == "sampled" and not one.same_objects for one in mixed)


def _refusals(context: Context) -> Finding:
    """Head modes that the sampled path lacks, and a shape without a graph, refuse by name."""
    session = context.fresh()
    case = context.case(3, 2, 530, modes=_MIXED).model_dump()
    asked = {
        "native": Code.UNSUPPORTED_HEAD_MODE,
        "partial-rank": Code.UNSUPPORTED_HEAD_MODE,
        "margin": Code.UNSUPPORTED_HEAD_MODE,
        "traced": Code.UNSUPPORTED_HEAD_MODE,
        "default": Code.MISSING_SAMPLED_GRAPH,
    }
    for head_mode, code in asked.items():
        found = session.ask("select", case=case, switch=True, head_mode=head_mode)
        codes = [code_of(rank) for rank in found["ranks"]]
        wrong = judge.refused(codes, code)
        if wrong:
            given = tuple(str(one or "none") for one in codes)
            return Finding(wrong, {"head_mode": head_mode, "wanted": str(code), "found": given})
    return Finding(None, {"refused": tuple(asked)}, repetitions=len(asked))


ARMS = (
    must_pass(
        GATE,
        "mixed-batch",
        "greedy rows give the original selector's tokens with q zero, sampled rows the reference",
        _mixed,
    ),
    must_pass(
        GATE,
        "neighbours",
        "no row changes when its neighbour's mode does",
        _neighbours,
    ),
    must_pass(
        GATE,
        "original-objects",
        "with nothing to sample the original graph and its own outputs are used",
        _originals,
    ),
    must_pass(GATE, "refusals", "what the sampled path lacks refuses by name", _refusals),
    must_catch(
        GATE,
        "swapped-mask",
        Code.OUTPUT_MISMATCH,
        "greedy rows are sampled and sampled rows are not",
        _mutant("mask_swapped"),
    ),
    must_catch(
        GATE,
        "draw-on-greedy-row",
        Code.T0_DREW,
        "a greedy row takes tickets and a draw",
        _mutant("t0_draws"),
    ),
)
