"""One arm after the other, each from the start of its worker to the proof that it is gone.

Warm-up and greedy pass come first, then the baseline is sealed, and every later snapshot is held
against it at once: an arm that has grown stops there, and no later one runs.  An arm that is cut
keeps what it has found.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

from pp4.clock import Deadline, SystemClock
from pp4.errors import Code, Pp4Error, Refusal, UncleanError
from pp4.hold.open import OpenHold
from pp4.measure.bench import Bench, Ran
from pp4.measure.players import Players
from pp4.measure.schedule import TIMED
from pp4.wire.measuring import Arm

_GONE_S: Final = 5.0
_POLL_S: Final = 0.01


def run_arms(bench: Bench, arms: Sequence[Arm]) -> tuple[Ran, ...]:
    """Run arms in their order, until one of them is not complete.

    Raises:
        UncleanError: something may still run, or nothing can be written down any more.
    """
    found: list[Ran] = []
    for arm in arms:
        found.append(run_arm(bench, arm))
        if found[-1].refusal is not None:
            break
    return tuple(found)


def run_arm(bench: Bench, arm: Arm) -> Ran:
    """Run one arm; what cuts it is in what it returns.

    Raises:
        UncleanError: something may still run, or nothing can be written down any more.
    """
    ran = Ran(arm)
    bench.recorder.begin(arm)
    try:
        with bench.watch.arm(), ExitStack() as stack:
            stack.callback(_require_gone, bench.hold, arm)
            _play(Players(bench, ran, stack))
    except UncleanError:
        raise
    except Pp4Error as error:
        ran.refusal = error.refusal
    else:
        ran.verdict = "complete"
    code = None if ran.refusal is None else str(ran.refusal.code)
    bench.recorder.end(arm, ran.verdict, code)
    return ran


def _play(players: Players) -> None:
    players.warm_up()
    players.look("baseline")
    for phase in TIMED:
        players.timed(phase)
        players.look(phase)
    players.part()
    players.look("final")
    players.tear_down()


def _require_gone(hold: OpenHold, arm: Arm) -> None:
    """No process of an arm may be there when the next one begins.

    Raises:
        UncleanError: ``SURVIVOR``.
    """
    # the kernel ends ranks right after their parent, not in the same moment
    deadline = Deadline.after(SystemClock(), _GONE_S)
    while (left := _running(hold, arm)) and not deadline.expired():
        time.sleep(_POLL_S)
    if left:
        names = ", ".join(left)
        where, expected = f"arm {arm}", "no process of it alive"
        raise UncleanError(Refusal(Code.SURVIVOR, where, expected, names, left=names))


def _running(hold: OpenHold, arm: Arm) -> list[str]:
    """Processes of an arm that are alive, its ranks among them."""
    return [str(one) for one in hold.running() if f"-{arm.lower()}" in one.label]
