"""The close of exactly one HOLD: asked for until its host says how it ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pp4.clock import Clock, Deadline
from pp4.errors import Code, Pp4Error, Refusal, WrongError
from pp4.hold.hop_ends import FAR_S
from pp4.hold.line import Line, raised
from pp4.transport.interface import Host
from pp4.wire.facts import read
from pp4.wire.holds import Close, Closed

CLOSE_S = 60.0
"""How long it may take to end everything and write the tombstone, beside hops and restoring."""
CLOSE_AGAIN_S = 15.0
"""After so long without an answer a new connection is tried: of a dead one nobody hears."""
_ENDED_THERE = {
    "deadline": Code.DEADLINE,
    "abandoned": Code.LEASE_LOST,
    "cancelled": Code.INTERRUPTED,
}
SYMPTOMS = {Code.STEP_TIMEOUT, Code.CONNECTION_LOST, Code.LEASE_LOST, Code.STALE_FENCE}
"""What work fails with where nobody answers for its HOLD any more."""
Program = Callable[..., list[str]]
"""Makes the argument list of ``python -m MODULE ARGUMENTS`` on the host."""


def near_end(program: Program, hold: str, state_dir: str | None, host_dir: str | None) -> list[str]:
    """The argument list of the relay to an open HOLD, or of what answers for a closed one."""
    return program("pp4.hold.relay", "attach", hold, state_dir or "", host_dir or "")


def end_of(line: Line, asked: Close, deadline: Deadline) -> dict[str, Any]:
    """Ask for a close; -> the tombstone of exactly that HOLD.

    Raises:
        Pp4Error: what is said in its place; ``BAD_FRAME``, it is of another one.
    """
    tombstone = read(Closed, line.ask("close", asked.model_dump(), deadline)).tombstone
    found = tombstone.get("hold"), tombstone.get("fence"), tombstone.get("survivors")
    if found != (asked.hold, str(asked.fence), []):
        expected = f"the tombstone of HOLD {asked.hold}, fence {asked.fence}"
        raise WrongError(Refusal(Code.BAD_FRAME, "supervisor", expected, str(found)))
    return tombstone


def deliver(
    host: Host,
    program: Program,
    close: Close,
    directories: tuple[str | None, str | None],
    clock: Clock,
    restore_s: float = 0.0,
    limit_s: float = CLOSE_S + FAR_S,
) -> dict[str, Any]:
    """Close exactly one HOLD whose window is gone; -> its tombstone.

    Args:
        host: where it is.
        program: how modules are started there.
        close: which one, and why.
        directories: of state and exclusion there, None for the defaults.
        clock: the coordinator's.
        restore_s: seconds that the restore commands may take.
        limit_s: seconds that everything else may take.

    Raises:
        Pp4Error: what the host says in place of a tombstone, or that it says nothing.
    """
    line = Line(host, near_end(program, close.hold, *directories), attempt_s=CLOSE_AGAIN_S)
    try:
        return end_of(line, close, Deadline.after(clock, limit_s + restore_s))
    finally:
        line.drop()


def require_own_end(hold: str, tombstone: dict[str, Any] | None, failed: Pp4Error) -> None:
    """Where the host had ended the HOLD before it was asked to, say that and not what came of it.

    Raises:
        TimedOutError: ``DEADLINE``, ``LEASE_LOST``.
        RefusedError: ``INTERRUPTED``: somebody there ended it.
    """
    found = (tombstone or {}).get("why")
    code = _ENDED_THERE.get(str(found))
    if code is not None and failed.refusal.code in SYMPTOMS:
        where = f"HOLD {hold}"
        expected = "a HOLD that is open until its work is done"
        raise raised(Refusal(code, where, expected, f"one that its host has ended: {found}"))
