"""A step of a HOLD as its supervisor sees it: what it tells, what it asks for, how it ended."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from pp4.clock import Deadline, SystemClock
from pp4.errors import Code, Pp4Error, Refusal, RefusedError
from pp4.hold.guard import GUARD
from pp4.hold.local_hold import LocalHold
from pp4.transport.local import LocalChannel
from pp4.wire import Message, Reply, Request
from pp4.wire.facts import read
from pp4.wire.holds import Granted, Line, Own, Run, Start, Watched

GRACE_S = 2.0
"""How long the guard waits for an end before it asks, and again before it kills."""
_ANSWER_S = 1.0
"""How long a step may leave its pipe full: the supervisor waits for nobody."""
_ITEMS = 100_000
_ITEM_BYTES = 8 << 20
_REST = 256
"""Readings of what a step that has ended may still have written."""
_RUN = 1


class Step:
    """One step, under its guard.

    Args:
        hold: in whose books it stands.
        granted: what the step is told of its HOLD.
        asked: what is started.

    Raises:
        Pp4Error: it cannot be started.
    """

    def __init__(self, hold: LocalHold, granted: Granted, asked: Start) -> None:
        self._hold = hold
        self.items: list[dict[str, Any]] = []
        self._bytes = 0
        self.ended = False
        self._facts: dict[str, Any] | None = None
        self._refusal: dict[str, str] | None = None
        program = [sys.executable, "-P", "-m", asked.module]
        label = f"{GUARD}{asked.label}"
        guarded = [hold.hold_id, label, f"{GRACE_S:g}", "--", *program]
        channel = hold.start("pp4.hold.guard", guarded, environment={}, label=label)
        if not isinstance(channel, LocalChannel):
            raise TypeError("a supervisor starts its steps on its own machine")
        self.channel = channel
        told = Run(granted=granted, arguments=asked.arguments).model_dump(mode="json")
        self._verbs: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "own": self._own,
            "journal": self._journal,
        }
        channel.send(Request(sequence=_RUN, verb="run", arguments=told), _soon())

    def watched(self, after: int) -> Watched:
        """What it told from item number ``after`` on, and its end."""
        return Watched(
            items=tuple(self.items[after:]),
            last_line=(self.channel.last_lines(1) or ("",))[-1],
            ended=self.ended,
            facts=self._facts,
            refusal=self._refusal,
        )

    def pump(self) -> None:
        """Take what has come from it; never waits for more."""
        if self.ended:
            return
        try:
            # asked first: what it wrote before its end is there by then
            over = self.channel.exited
            for _ in range(_REST if over else 1):
                messages = self.channel.poll()
                for message in messages:
                    self._take(message)
                if not messages:
                    break
            if over and not self.ended:
                raise self.channel.gone()
        except Pp4Error as error:
            self._end(refusal=error.refusal.as_dict())

    def _take(self, message: Message) -> None:
        if isinstance(message, Reply) and message.sequence == _RUN:
            self._end(message.facts, message.refusal)
        elif isinstance(message, Request) and message.verb == "tell":
            # more than a person can watch, and no reason to run out of memory
            self._bytes += len(repr(message.arguments))
            if len(self.items) < _ITEMS and self._bytes < _ITEM_BYTES:
                self.items.append(message.arguments)
        elif isinstance(message, Request):
            self.channel.send(self._answer(message), _soon())

    def _answer(self, request: Request) -> Reply:
        try:
            verb = self._verbs.get(request.verb)
            if verb is None:
                expected = f"one of {sorted([*self._verbs, 'tell'])}"
                raise RefusedError(Refusal(Code.BAD_FRAME, "supervisor", expected, request.verb))
            return Reply(sequence=request.sequence, facts=verb(request.arguments))
        except Pp4Error as error:
            return Reply(sequence=request.sequence, refusal=error.refusal.as_dict())

    def _own(self, given: dict[str, Any]) -> dict[str, Any]:
        asked = read(Own, given)
        self._hold.own(asked.pid, asked.label)
        return {}

    def _journal(self, given: dict[str, Any]) -> dict[str, Any]:
        asked = read(Line, given)
        self._hold.journal.add(asked.step, asked.event, found=asked.found, detail=asked.detail)
        return {"lines": [dict(line) for line in self._hold.journal.lines[asked.after :]]}

    def _end(
        self, facts: dict[str, Any] | None = None, refusal: dict[str, str] | None = None
    ) -> None:
        self.ended, self._facts, self._refusal = True, facts, refusal


def _soon() -> Deadline:
    return Deadline.after(SystemClock(), _ANSWER_S)
