"""Gate 7: nothing of the gates is left: no rank, no workspace on disk or in memory."""

from __future__ import annotations

from pp4.errors import Code
from pp4.qualify.arms import Finding, must_catch, must_pass
from pp4.qualify.context import Context

GATE = 7


def _look(context: Context) -> Finding:
    """What the owner still has, and which rank processes the HOLD's books know to be alive."""
    left = context.session.ask("settle")
    ranks = tuple(one.label for one in context.hold.running() if "-rank-" in one.label)
    clean = not (left["ranks"] or left["links"] or left["mapped"] or ranks)
    return Finding(
        None if clean else Code.LEAK,
        {
            "ranks_alive": ranks,
            "workspaces_on_disk": tuple(left["links"]),
            "workspaces_mapped": left["mapped"],
        },
    )


def _leaking(context: Context) -> Finding:
    """A pair and its workspaces are left behind."""
    context.fresh()
    return _look(context)


def _settled(context: Context) -> Finding:
    context.session.teardown()
    return _look(context)


ARMS = (
    must_catch(GATE, "leak", Code.LEAK, "a pair and its workspaces are left behind", _leaking),
    must_pass(GATE, "settled", "no rank and no workspace is left", _settled),
)
