"""A step of a HOLD as its supervisor sees it: what it tells, what it asks for, how it ended."""

from __future__ import annotations

import os
import selectors
import sys
from collections import deque
from collections.abc import Callable, Iterator
from typing import IO, Any

from pp4.errors import Code, Pp4Error, Refusal, RefusedError
from pp4.hold.guard import GUARD
from pp4.hold.local_hold import LocalHold
from pp4.hold.processes import start_token
from pp4.hold.trees import descendants
from pp4.transport.local import LocalChannel
from pp4.wire import Message, Reply, Request
from pp4.wire.facts import read
from pp4.wire.holds import Granted, Line, Own, Run, Start, Watched

GRACE_S = 2.0
"""How long the guard waits for an end before it asks, and again before it kills."""
_UNREAD = 1 << 20
"""Bytes of answers that a step may leave unread before nothing more is taken from it."""
_AT_A_TIME = 32
"""Messages that are taken from a step before others are looked at."""
_AT_ONCE = 1 << 18
"""Bytes of items, about, in one answer to whoever watches."""
_ITEMS = 100_000
_ITEM_BYTES = 8 << 20
_REST = 256
"""Readings of what a step that has ended may still have written."""
_RUN = 1
_LATE_NS = 10**9
"""How much later than its supervisor a guard ends a step: only one that hangs is that late."""


class Step:
    """One step, under its guard.

    Args:
        hold: in whose books it stands.
        granted: what the step is told of its HOLD.
        asked: what is started.
        whole: whether it has ended only once its guard has, and with it whatever it left running.

    Raises:
        Pp4Error: it cannot be started.
    """

    def __init__(
        self, hold: LocalHold, granted: Granted, asked: Start, *, whole: bool = False
    ) -> None:
        self._hold, self._whole = hold, whole
        self._answered: Reply | None = None
        self.items: list[dict[str, Any]] = []
        self._bytes = self._left = 0
        self._over = False
        self._waiting: deque[Message] = deque()
        self.ended = False
        self._facts: dict[str, Any] | None = None
        self._refusal: dict[str, str] | None = None
        program = [sys.executable, "-P", "-m", asked.module]
        label = f"{GUARD}{asked.label}"
        until_ns = granted.deadline_boottime_ns + _LATE_NS
        guarded = [hold.hold_id, label, f"{GRACE_S:g}", str(until_ns), "--", *program]
        channel = hold.start("pp4.hold.guard", guarded, environment={}, label=label)
        if not isinstance(channel, LocalChannel):
            raise TypeError("a supervisor starts its steps on its own machine")
        self.channel = channel
        told = Run(granted=granted, arguments=asked.arguments).model_dump(mode="json")
        self._verbs: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "own": self._own,
            "journal": self._journal,
        }
        channel.post(Request(sequence=_RUN, verb="run", arguments=told))

    def watched(self, after: int) -> Watched:
        """What it told from item number ``after`` on, and, with the last of it, its end."""
        items = tuple(self._some(after))
        ended = self.ended and after + len(items) >= len(self.items)
        return Watched(
            items=items,
            last_line=(self.channel.last_lines(1) or ("",))[-1],
            ended=ended,
            facts=self._facts if ended else None,
            refusal=self._refusal if ended else None,
        )

    def _some(self, after: int) -> Iterator[dict[str, Any]]:
        """Items from a number on, as many as one answer should carry; at least one."""
        taken = 0
        for item in self.items[after:]:
            yield item
            taken += len(repr(item))
            if taken > _AT_ONCE:
                return

    @property
    def done(self) -> bool:
        """Whether it has answered, and with no refusal."""
        return self.ended and self._refusal is None

    @property
    def awaited(self) -> tuple[tuple[IO[bytes] | LocalChannel, int], ...]:
        """What of it to wait for, with the events of :mod:`selectors`."""
        if self.ended:
            return ()
        unread = ((self.channel.input, selectors.EVENT_WRITE),) if self._left else ()
        heard = ((self.channel, selectors.EVENT_READ),) if self._left <= _UNREAD else ()
        return unread + heard

    @property
    def busy(self) -> bool:
        """Whether something that it said waits to be taken, and nothing has to come for that."""
        return bool(self._waiting) and self._left <= _UNREAD and not self.ended

    def pump(self) -> None:
        """Take what has come from it; never waits for more."""
        if self.ended:
            return
        try:
            # asked first: what it wrote before its end is there by then
            self._over = self.channel.exited
            if not self._over:
                self._left = self.channel.flush()
            for _ in range(_REST if self._over else 1):
                if self.ended or not self._take_some():
                    break
            if self._over and not self.ended and not self._waiting:
                raise self.channel.gone()
        except Pp4Error as error:
            self._gone(error)

    def _gone(self, error: Pp4Error) -> None:
        """Its stream has ended: well, where it had answered and its guard says that all is over."""
        answer = self._answered
        if answer is None or self.channel.status:
            self._end(refusal=error.refusal.as_dict())
        elif self.channel.exited:
            self._end(answer.facts, answer.refusal)

    def _take_some(self) -> bool:
        """Take a few messages; -> whether there were any."""
        if not self._waiting:
            self._waiting.extend(self.channel.poll())
        taken = 0
        while self._waiting and taken < _AT_A_TIME and (self._over or self._left <= _UNREAD):
            self._take(self._waiting.popleft())
            taken += 1
        return taken > 0

    def _take(self, message: Message) -> None:
        if isinstance(message, Reply) and message.sequence == _RUN:
            if self._whole:
                self._answered = self._answered or message
            else:
                self._end(message.facts, message.refusal)
        elif isinstance(message, Request) and message.verb == "tell":
            # more than a person can watch, and no reason to run out of memory
            self._bytes += len(repr(message.arguments))
            if len(self.items) < _ITEMS and self._bytes < _ITEM_BYTES:
                self.items.append(message.arguments)
        elif isinstance(message, Request):
            answer = self._answer(message)
            # one that has ended reads nothing, and has perhaps answered behind this
            if not self._over:
                self.channel.post(answer)
                self._left = self.channel.flush()

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
        below = {owned.pid for owned in descendants(os.getpid())}
        if start_token(asked.pid) is not None and asked.pid not in below:
            where, expected = f"process {asked.pid}", "one that this step has started"
            raise RefusedError(Refusal(Code.SURVIVOR, where, expected, "somebody else's"))
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
