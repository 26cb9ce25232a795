"""A step as a program: told once what to do, it answers once.

The supervisor that starts it reads what it tells meanwhile; whatever else it prints is a log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pp4.clock import Deadline, SystemClock
from pp4.errors import Code, Exit, Pp4Error, Refusal
from pp4.hold.inner import Supervisor
from pp4.transport.pipes import Pipes
from pp4.wire import Reply, Request
from pp4.wire.facts import read
from pp4.wire.holds import Run

_TOLD_S = 60.0

Work = Callable[[Run, Supervisor], dict[str, Any]]
"""What a step does; its facts are the answer."""


def run_step(module: str, work: Work) -> Exit:
    """Be the step that a supervisor has started.

    Args:
        module: the step's, for refusals.
        work: what it does; whatever it raises is a refusal in the answer.
    """
    pipes = Pipes.take_over()
    request = pipes.receive(Deadline.after(SystemClock(), _TOLD_S))
    if not isinstance(request, Request):
        return Exit.USAGE
    pipes.send(_answer(module, work, request, pipes))
    return Exit.DONE


def _answer(module: str, work: Work, request: Request, pipes: Pipes) -> Reply:
    try:
        facts = work(read(Run, request.arguments), Supervisor(pipes))
        return Reply(sequence=request.sequence, facts=facts)
    except Pp4Error as error:
        return Reply(sequence=request.sequence, refusal=error.refusal.as_dict())
    except Exception as error:
        # whoever asked must hear of it, or waits until the end of the HOLD
        found = f"{type(error).__name__}: {error}"[:500]
        refusal = Refusal(Code.INTERNAL, module, "an answer", found)
        return Reply(sequence=request.sequence, refusal=refusal.as_dict())
