"""One question after another to a process of a HOLD, each with a deadline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pp4.errors import WrongError
from pp4.hold.open import OpenHold
from pp4.transport.interface import Channel
from pp4.wire import Event, Reply, Request
from pp4.wire.facts import refusal_of

_SLACK_S = 10.0
"""For the way of question and answer, on top of what the process itself may take."""


class Asker:
    """The asking end of a process.

    Args:
        hold: under which it runs; no wait outlasts it.
        channel: its standard streams.
    """

    def __init__(self, hold: OpenHold, channel: Channel) -> None:
        self._hold, self._channel = hold, channel
        self._sequence = 0

    def ask(
        self,
        verb: str,
        arguments: dict[str, Any],
        limit_s: float,
        on_event: Callable[[str], None] | None = None,
    ) -> dict[str, Any]:
        """Ask one thing; -> the facts of the answer.

        Args:
            verb: what is asked.
            arguments: of it.
            limit_s: seconds that the process itself may take.
            on_event: called with what it says on its way to the answer.

        Raises:
            WrongError: it refused, or it died.
            TimedOutError: it did not answer in time.
        """
        self._sequence += 1
        deadline = self._hold.within(limit_s + _SLACK_S)
        request = Request(sequence=self._sequence, verb=verb, arguments=arguments)
        self._channel.send(request, deadline)
        while True:
            message = self._channel.receive(deadline)
            if message.sequence != self._sequence:
                continue
            if isinstance(message, Reply):
                break
            if isinstance(message, Event) and on_event is not None:
                on_event(message.name)
        if message.facts is None:
            raise WrongError(refusal_of(message.refusal))
        return message.facts
