"""One connection to a worker: what the worker has of each request, and the drafts of a step.

A request is drafted only when the worker has said that it has the features of every token that is
kept; its own check of positions is the second line and not the first.  The connection's map of
slots ends with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pp4.clock import Deadline, SystemClock
from pp4.engine.adapters.checking import checked
from pp4.engine.adapters.handshake import Agreed
from pp4.engine.adapters.interface import Answered
from pp4.engine.counters import DraftCounters
from pp4.engine.drafting import Cause, Want
from pp4.engine.held import Held
from pp4.engine.patience import Patience
from pp4.errors import Code, Pp4Error, Refusal, RefusedError, TimedOutError
from pp4.verifier import slots as mapping
from pp4.verifier.proposal import Proposal
from pp4.verifier.slots import Arrival, Slots
from pp4.wire.drafts import Drafted
from pp4.worker import proposals
from pp4.worker.step_client import Refusals, StepClient


class Wish(NamedTuple):
    """A draft that is wanted, and what is known of its request."""

    want: Want
    held: Held


class _Turn(NamedTuple):
    """One call of :meth:`Line.draft`.

    Attributes:
        step: a number that rises.
        limit: until when everything is waited for but the drafts.
        until: beyond which nothing is waited for.
    """

    step: int
    limit: Deadline
    until: Deadline | None

    def left_s(self) -> float:
        """Seconds that are left of it."""
        return self.limit.remaining_s()


class _Asked(NamedTuple):
    wish: Wish
    ask: mapping.Ask
    ticket: int


@dataclass(slots=True)
class _There:
    """A request as the worker has it.

    Attributes:
        sent: tokens whose features it has taken.
        abort: ticket of an ABORT that is not answered yet.
        since: the step of that.
    """

    sent: int = 0
    abort: int | None = None
    since: int = 0


class Judged:
    """Judges blocks by a map of slots: late ones and copies are dropped and counted.

    Args:
        slots: of the connection.
    """

    def __init__(self, slots: Slots) -> None:
        self._slots = slots

    def __call__(self, block: Drafted) -> bool:
        """Whether it is the first reply to what its slot waits for.

        Raises:
            WrongError: ``BAD_PROPOSAL``, to what was never asked.
        """
        reply = mapping.Ask(
            block.slot, block.generation, block.request, block.round, block.position
        )
        return self._slots.arrived(reply) is Arrival.EXPECTED


class Line:
    """Drafts over one connection; it is over when a call raises.

    Args:
        client: greeted; its judge is that of ``slots``.
        agreed: what was agreed on with its worker.
        slots: the connection's own map.
        patience: see there.
        counters: that go on.
    """

    def __init__(
        self,
        client: StepClient,
        agreed: Agreed,
        slots: Slots,
        *,
        patience: Patience,
        counters: DraftCounters,
    ) -> None:
        self.client, self.slots = client, slots
        self._agreed, self._patience, self._counters = agreed, patience, counters
        self._there: dict[int, _There] = {}
        self._resting: dict[int, int] = {}
        self._leaving: list[int] = []

    def end(self) -> None:
        """Disconnect; whatever was asked is given up."""
        self.client.disconnect()
        for ask in self.slots.waiting():
            self.slots.invalidate(ask.slot)

    def forget(self, request: int) -> None:
        """End a request at the worker, with what is asked next."""
        self._resting.pop(request, None)
        there = self._there.pop(request, None)
        if there is None:
            return
        if there.abort is not None:
            self.client.give_up(there.abort)
        self._leaving.append(request)

    def draft(
        self, wishes: Sequence[Wish], step: int, until: Deadline | None = None
    ) -> dict[int, Proposal | Cause]:
        """Ask for all drafts of a step.

        Args:
            wishes: one for each of some slots.
            step: a number that rises.
            until: beyond which nothing is waited for, whatever the patience.

        Returns:
            By slot a proposal, or why there is none.

        Raises:
            Pp4Error: the connection or the worker is over.
        """
        turn = _Turn(step, until_within(until, self._patience.exchange_s), until)
        self._settle(turn)
        found: dict[int, Proposal | Cause] = {}
        ready: list[Wish] = []
        for wish in wishes:
            cause = self._hindrance(wish, step)
            if cause is None:
                ready.append(wish)
            else:
                found[wish.want.slot] = cause
        found |= dict.fromkeys([wish.want.slot for wish in ready], Cause.REFUSED)
        waits = self._ask(self._told(ready, turn), turn)
        deadline = until_within(turn.until, self._patience.draft_s)
        for asked in waits:
            found[asked.ask.slot] = self._collected(asked, deadline, turn)
        return found

    # -- before a draft ---------------------------------------------------------------------

    def _settle(self, turn: _Turn) -> None:
        """Close what has ended, and hear of drafts that were given up."""
        leaving, self._leaving = self._leaving, []
        if leaving:
            # one that the worker does not know is one that it has closed
            _require_serving(self.client.close_many(leaving, turn.left_s()))
        tickets = {
            request: there.abort
            for request, there in self._there.items()
            if there.abort is not None
        }
        for request in self.client.aborted(tickets):
            self._there[request].abort = None
        for request in tickets:
            there = self._there[request]
            if there.abort is not None and turn.step - there.since > self._patience.retry_steps:
                self.client.disconnect()
                raise TimedOutError(_silent(there.since, turn.step))

    def _hindrance(self, wish: Wish, step: int) -> Cause | None:
        """Why nothing is asked for it in this step."""
        request, there = wish.held.request, self._there.get(wish.held.request)
        if wish.held.kept > self._agreed.offer.context:
            return Cause.NO_ROOM
        if there is not None and there.abort is not None:
            return Cause.WAITING
        if self._resting.get(request, step) > step:
            return Cause.RESTING
        self._resting.pop(request, None)
        return None

    def _told(self, wishes: Sequence[Wish], turn: _Turn) -> list[Wish]:
        """Open requests and send what features are missing; -> those that the worker took."""
        fresh = [wish.held for wish in wishes if wish.held.request not in self._there]
        refused: Refusals = {}
        if fresh:
            keys = {held.request: held.key for held in fresh}
            refused = self.client.open_many(keys, turn.left_s())
            for held in fresh:
                if held.request not in refused:
                    self._there[held.request] = _There()
                    self._counters.opened += 1
        self._rest(refused, turn.step)
        refused = {**refused, **self._caught_up([one.held for one in wishes], turn)}
        return [wish for wish in wishes if wish.held.request not in refused]

    def _caught_up(self, helds: Sequence[Held], turn: _Turn) -> Refusals:
        """Send features that the worker does not have."""
        behind = {
            held.request: held
            for held in helds
            if held.request in self._there and self._there[held.request].sent < held.kept
        }
        if not behind:
            return {}
        given = {
            request: (first := self._there[request].sent, held.since(first))
            for request, held in behind.items()
        }
        refused = self.client.features_many(given, turn.left_s())
        for request, held in behind.items():
            if request not in refused:
                there = self._there[request]
                self._counters.features += held.kept - there.sent
                there.sent = held.kept
        self._rest(refused, turn.step)
        return refused

    def _rest(self, refused: Refusals, step: int) -> None:
        """Close requests that were refused; they begin anew after a while."""
        _require_serving(refused)
        for request in refused:
            self.forget(request)
            self._resting[request] = step + self._patience.retry_steps

    # -- drafts -----------------------------------------------------------------------------

    def _ask(self, wishes: Sequence[Wish], turn: _Turn) -> list[_Asked]:
        asks = [
            self.slots.ask(
                wish.want.slot,
                request=wish.held.request,
                round=wish.want.round,
                position=wish.want.position,
            )
            for wish in wishes
        ]
        told = [
            proposals.Ask(
                request=ask.request,
                round=ask.round,
                anchor=wish.want.anchor,
                temperature=self._agreed.asked_temperature(wish.want.temperature),
                generation=ask.generation,
                slot=ask.slot,
                position=ask.position,
            )
            for wish, ask in zip(wishes, asks, strict=True)
        ]
        tickets = self.client.submit_many(told, turn.left_s())
        return [_Asked(*one) for one in zip(wishes, asks, tickets, strict=True)]

    def _collected(self, asked: _Asked, deadline: Deadline, turn: _Turn) -> Proposal | Cause:
        want, held = asked.wish
        try:
            reply = self.client.collect(asked.ticket, deadline.remaining_s())
        except Pp4Error as error:
            if self.client.over is not None:
                raise
            self.slots.invalidate(want.slot)
            return self._failed(error, asked, turn)
        (proposal,), _ = checked(self._agreed, [Answered(want.temperature, held.key, reply)])
        if proposal is None:
            self.slots.invalidate(want.slot)
            return Cause.MALFORMED
        return proposal

    def _failed(self, error: Pp4Error, asked: _Asked, turn: _Turn) -> Cause:
        """What becomes of a request whose draft did not come while the connection goes on."""
        request = asked.ask.request
        if self.client.waits(asked.ticket):
            self.client.give_up(asked.ticket)
            there = self._there[request]
            there.abort = self.client.ask_abort(request, turn.left_s())
            there.since = turn.step
            return Cause.TIMED_OUT
        self._rest({request: error}, turn.step)
        return Cause.REFUSED


def until_within(until: Deadline | None, seconds: float) -> Deadline:
    """Return a deadline that many seconds from now, and never later than another one."""
    if until is None:
        return Deadline.after(SystemClock(), seconds)
    return until.within(seconds)


def _silent(since: int, step: int) -> Refusal:
    found = f"none after {step - since} steps"
    return Refusal(Code.STEP_TIMEOUT, "worker, ABORT", "an end of a draft given up", found)


def _require_serving(refused: Refusals) -> None:
    """A refusal leaves everything as it was; any other error is the end of a worker's ranks."""
    for error in refused.values():
        if not isinstance(error, RefusedError):
            raise error
