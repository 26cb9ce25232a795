"""The part of gate 2 that no run can show: order in the machine code, order in every interleaving.

A missing barrier often survives on hardware, so it is proven in the PTX and in the host model.
"""

from __future__ import annotations

from collections.abc import Callable

from pp4.errors import Code
from pp4.qualify.arms import Arm, Finding, must_catch, must_pass
from pp4.qualify.context import Context
from pp4.qualify.host_model import CONTRACT, ECHOING, PLANTED, explore
from pp4.qualify.session import Session, facts_of
from pp4.wire.facts import Compiled, read

GATE = 2
_PAIR = 1
# the pair's kernel and the solo kernel, each on both ranks
_PRIMED = 4


def _compiled(
    context: Context, session: Session, first: dict[str, object], second: dict[str, object]
) -> tuple[Compiled, Compiled]:
    """Compile on both ranks at once; each has a process of its own for it."""
    shape = context.settings.text_shape.model_dump()
    ranks = session.both("compile", {"shape": shape, **first}, {"shape": shape, **second})
    return read(Compiled, facts_of(ranks[0])), read(Compiled, facts_of(ranks[1]))


def _product(context: Context) -> Finding:
    """What was primed is what is read: the ranks read the very text whose digest they compared."""
    ones = context.record.primed + context.record.solo
    faults = tuple(fault for one in ones for fault in one.faults)
    targets = sorted({one.target for one in ones})
    wrong = faults or len(ones) != _PRIMED
    return Finding(
        Code.PTX_ORDER if wrong else None,
        {"target": tuple(targets), "faults": faults},
        repetitions=len(ones),
    )


_CONTROLS = ("missing_barrier", "relaxed_signal", "relaxed_chain")


def _compile_controls(context: Context) -> None:
    """One mutant on each rank: two compilations in the time of one."""
    session = context.fresh()
    for place in range(0, len(_CONTROLS), 2):
        # the last one of an odd number is compiled on both ranks
        names = _CONTROLS[place], _CONTROLS[min(place + 1, len(_CONTROLS) - 1)]
        first, second = ({"control": control, "shards": _PAIR} for control in names)
        both = _compiled(context, session, first, second)
        context.record.compiled_controls.update(zip(names, both, strict=True))


def _mutant(name: str) -> Callable[[Context], Finding]:
    def run(context: Context) -> Finding:
        if name not in context.record.compiled_controls:
            _compile_controls(context)
        faults = context.record.compiled_controls[name].faults
        return Finding(Code.PTX_ORDER if faults else None, {"faults": faults[:4]})

    return run


def _contract(context: Context) -> Finding:
    """The rules as they are required, and with every error told, as the kernels do."""
    found = [explore(protocol) for protocol in (CONTRACT, ECHOING)]
    broken = any(one.violations or not one.complete for one in found)
    return Finding(
        Code.MODEL_VIOLATION if broken else None,
        {
            "states": tuple(one.states for one in found),
            "moves": tuple(one.moves for one in found),
        },
        repetitions=len(found),
    )


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
        "as compiled: a barrier before each release, system scope where it crosses",
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
    must_catch(
        GATE,
        "ptx-relaxed-chain",
        Code.PTX_ORDER,
        "the kernel with a retirement count that orders nothing, compiled",
        _mutant("relaxed_chain"),
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
