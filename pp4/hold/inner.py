"""The HOLD as a step on the receiving host has it: books and journal are the supervisor's."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pp4.clock import Clock, Deadline, SystemClock
from pp4.errors import Code, Refusal, UncleanError, WrongError
from pp4.hold.open import Grant, OpenHold
from pp4.hold.processes import Owned, start_token
from pp4.receipts import journal as chain
from pp4.transport.interface import Channel
from pp4.transport.local import LocalTransport
from pp4.transport.pipes import Pipes
from pp4.wire import Reply, Request
from pp4.wire.facts import refusal_of
from pp4.wire.holds import Granted, Line, Own

if TYPE_CHECKING:
    # every step loads this file, and few judge evidence
    from pp4.receipts.admission import Admission

_ANSWER_S = 60.0
_BEGIN = 0.95


class Supervisor:
    """The way from a step to its supervisor; may be used by several threads.

    Args:
        pipes: the step's standard streams.
    """

    def __init__(self, pipes: Pipes) -> None:
        self._pipes = pipes
        self._lock = threading.Lock()
        self._sequence = 0

    def tell(self, item: dict[str, Any]) -> None:
        """Tell whoever watches; nobody answers."""
        with self._lock:
            self._pipes.send(Request(sequence=0, verb="tell", arguments=item))

    def ask(self, verb: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Ask for one thing; -> the facts of the answer.

        Raises:
            UncleanError: it was refused, or nobody answers: what was started is in no books.
        """
        with self._lock:
            self._sequence += 1
            self._pipes.send(Request(sequence=self._sequence, verb=verb, arguments=arguments))
            deadline = Deadline.after(SystemClock(), _ANSWER_S)
            message = self._pipes.receive(deadline)
        if not isinstance(message, Reply) or message.sequence != self._sequence:
            raise WrongError(Refusal(Code.BAD_FRAME, "supervisor", "its answer", message.kind))
        if message.facts is None:
            raise UncleanError(refusal_of(message.refusal))
        return message.facts


class InnerJournal:
    """The journal of the HOLD, written by the supervisor line by line.

    Args:
        supervisor: who writes it.
    """

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._lines: list[dict[str, object]] = []

    def add(
        self,
        step: str,
        event: str,
        *,
        found: str | None = None,
        detail: Mapping[str, object] | None = None,
    ) -> None:
        """Have one line appended and made durable; see :class:`pp4.hold.journal.Journal`."""
        kept = None if detail is None else dict(detail)
        asked = Line(step=step, event=event, found=found, detail=kept, after=len(self._lines))
        found_lines = self._supervisor.ask("journal", asked.model_dump(mode="json"))["lines"]
        self._lines += found_lines

    @property
    def lines(self) -> tuple[dict[str, object], ...]:
        """Every line of the HOLD up to the last that this step had written."""
        return tuple(self._lines)

    @property
    def head(self) -> str:
        """Hash of the last line."""
        return chain.head(self._lines)

    def close(self) -> None:
        """The supervisor closes it."""


class InnerHold(OpenHold):
    """An open HOLD whose processes are in the supervisor's books before anybody uses them.

    Args:
        admission: the evidence that opened it.
        clock: where deadlines come from.
        granted: what was granted.
        supervisor: who owns it.
    """

    def __init__(
        self, admission: Admission, clock: Clock, granted: Granted, supervisor: Supervisor
    ) -> None:
        grant = Grant(
            hold_id=granted.hold,
            fence=granted.fence,
            nonce=granted.nonce,
            exclusion=granted.exclusion,
            boot_id=granted.boot_id,
            # a rehearsal holds their names and touches none of them
            gpus=() if granted.rehearsal else granted.gpus,
            opened_at=datetime.fromisoformat(granted.opened_at).astimezone(UTC),
            deadline=_until(granted, clock),
        )
        super().__init__(
            admission,
            LocalTransport(granted.transport),
            clock,
            grant,
            Path(granted.work),
            InnerJournal(supervisor),
        )
        self._supervisor = supervisor
        self.granted = granted

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End what this step has started; what is left is the supervisor's to end."""
        self.close()

    def own(self, pid: int, label: str, channel: Channel | None = None) -> None:
        """Have a process entered in the supervisor's books; see :meth:`OpenHold.own`."""
        owned = Owned(pid, start_token(pid) or "gone", label)
        # in the list first: whatever fails below, closing still ends it
        self._owned.append((owned, channel))
        self._supervisor.ask("own", Own(pid=pid, label=label).model_dump())


def _until(granted: Granted, clock: Clock) -> Deadline:
    """Until when a step may begin things: the last part of the time is for their end."""
    now = clock.boottime_ns()
    return Deadline(clock, now, max(0, int((granted.deadline_boottime_ns - now) * _BEGIN)))
