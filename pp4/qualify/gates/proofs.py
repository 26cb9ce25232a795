"""The part of gate 2 that no run can show: order in the machine code, order in every interleaving.

A missing barrier often survives on hardware, so it is proven in the PTX and in the host model.
"""

from __future__ import annotations

from collections.abc import Callable

from pp4.errors import Code
from pp4.qualify.arms import Arm, Finding, must_catch, must_pass
from pp4.qualify.context import Context
from pp4.qualify.host_model import CONTRACT, PLANTED, explore
from pp4.qualify.session import Session, facts_of
from pp4.wire.facts import Compiled, read

GATE = 2
_PAIR, _SOLO = 1, 2


def _compiled(
    context: Context, session: Session, first: dict[str, object], second: dict[str, object]
) -> tuple[Compiled, Compiled]:
    """Compile on both ranks at once; each has a process of its own for it."""
    shape = context.settings.shape.model_dump()
    ranks = session.both("compile", {"shape": shape, **first}, {"shape": shape, **second})
    return read(Compiled, facts_of(ranks[0])), read(Compiled, facts_of(ranks[1]))


def _product(context: Context) -> Finding:
    session = context.fresh()
    pair, solo = _compiled(context, session, {"shards": _PAIR}, {"shards": _SOLO})
    context.record.solo = solo
    faults = pair.faults + solo.faults
    primed = {one.ptx_sha256 for one in context.record.primed}
    code = Code.PTX_ORDER if faults else None
    if code is None and primed != {pair.ptx_sha256}:
        code = Code.KERNELS_DIFFER
    return Finding(code, {"target": pair.target, "faults": faults}, repetitions=2)


_CONTROLS = ("missing_barrier", "relaxed_signal")


def _mutant(name: str) -> Callable[[Context], Finding]:
    def run(context: Context) -> Finding:
        if name not in context.record.compiled_controls:
            # one mutant on each rank: two compilations in the time of one
            first, second = ({"control": control, "shards": _PAIR} for control in _CONTROLS)
            both = _compiled(context, context.fresh(), first, second)
            context.record.compiled_controls.update(zip(_CONTROLS, both, strict=True))
        faults = context.record.compiled_controls[name].faults
        return Finding(Code.PTX_ORDER if faults else None, {"faults": faults[:4]})

    return run


def _contract(context: Context) -> Finding:
    found = explore(CONTRACT)
    code = Code.MODEL_VIOLATION if found.violations or not found.complete else None
    return Finding(code, {"states": found.states, "moves": found.moves})


def _planted(context: Context) -> Finding:
    """Every planted bug is found by the property that it breaks; one that is not voids the arm."""
    missed, states = [], 0
    for name, protocol in PLANTED.items():
        found = explore(protocol, until=protocol.breaks)
        states += found.states
        if not any(one.property is protocol.breaks for one in found.violations):
            missed.append(name)
    return Finding(
        None if missed else Code.MODEL_VIOLATION,
        {"bugs": tuple(PLANTED), "missed": tuple(missed), "states": states},
        repetitions=len(PLANTED),
    )


ARMS: tuple[Arm, ...] = (
    must_pass(
        GATE,
        "ptx-order",
        "compiled for sm_90: a barrier before each release, system scope where it crosses",
        _product,
    ),
    must_catch(
        GATE,
        "ptx-missing-barrier",
        Code.PTX_ORDER,
        "the kernel without the barriers before its releases, compiled",
        _mutant("missing_barrier"),
    ),
    must_catch(
        GATE,
        "ptx-relaxed-signal",
        Code.PTX_ORDER,
        "the kernel with relaxed stores in place of its releases, compiled",
        _mutant("relaxed_signal"),
    ),
    must_pass(
        GATE,
        "host-model",
        "every interleaving of the exchange, with a fault at every step, keeps every property",
        _contract,
    ),
    must_catch(
        GATE,
        "host-model-bugs",
        Code.MODEL_VIOLATION,
        "every bug that is planted in the model is found",
        _planted,
        gating=True,
    ),
)
