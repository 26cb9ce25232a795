"""Gate 7: nothing of the gates is left: no rank, no workspace, no memory of a device."""

from __future__ import annotations

from pp4.errors import Code
from pp4.qualify import judge
from pp4.qualify.arms import Finding, must_catch, must_pass
from pp4.qualify.context import Context
from pp4.qualify.gates import looking
from pp4.qualify.gates.gate0_preflight import fingerprints

GATE = 7


def _look(context: Context) -> dict[str, tuple[str, ...]]:
    """What the owner still has, and what is seen from outside: of every owner there was."""
    hold = context.hold
    ranks: dict[str, tuple[str, ...]] = {
        "ranks_of_owner": tuple(str(pid) for pid in context.session.ask("settle")["ranks"]),
        "ranks_alive": tuple(one.label for one in hold.running() if "-rank-" in one.label),
    }
    if not hold.gpus and context.settings.solo:
        return ranks
    if not hold.gpus:
        return {
            **ranks,
            "workspaces_on_disk": looking.workspaces_on_disk(hold),
            "workspaces_mapped": looking.workspaces_mapped(hold),
        }
    found = context.gpus()
    over = judge.above(found, context.record.baseline)
    used = [f"{one.memory_used_bytes} bytes" for one in found]
    return {
        **ranks,
        **{
            f"memory_above_baseline_{place}": (text,) if more else ()
            for place, (text, more) in enumerate(zip(used, over, strict=True))
        },
    }


def _leaking(context: Context) -> Finding:
    """A pair and its workspaces are left behind: each place where that shows has to show it."""
    context.fresh()
    left = _look(context)
    return Finding(judge.left_behind([bool(found) for found in left.values()]), left)


def _settled(context: Context) -> Finding:
    context.session.teardown()
    if context.hold.gpus:
        context.at_rest()
    left = _look(context)
    return Finding(Code.LEAK if any(left.values()) else None, left)


def _same_libraries(context: Context) -> Finding:
    """What gate 0 hashed, hashed again after everything that ran."""
    again = fingerprints(context, flip=False)
    return Finding(
        judge.libraries(again, context.record.libraries), {"libraries": len(again)}, repetitions=2
    )


ARMS = (
    must_pass(
        GATE,
        "libraries-unchanged",
        "the libraries hash to what they hashed in gate 0",
        _same_libraries,
    ),
    must_catch(GATE, "leak", Code.LEAK, "a pair and its workspaces are left behind", _leaking),
    must_pass(
        GATE, "settled", "no rank, no workspace and no memory of the devices is left", _settled
    ),
)
