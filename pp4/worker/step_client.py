"""A client for an engine: what a step asks for many requests goes out together and waits together.

A draft may be given up by itself, since its reply names its slot and generation.  Anything else
that is not answered in time ends the connection: nobody knows then what the worker has.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeVar

from pp4.clock import Deadline
from pp4.errors import Pp4Error
from pp4.wire.draft_frames import Bytes
from pp4.wire.drafts import (
    FEATURE_BYTES,
    Abort,
    Aborted,
    Appended,
    Close,
    Closed,
    Features,
    Open,
    Opened,
    Question,
    Spoken,
)
from pp4.worker.client import Ask, Client
from pp4.worker.proposals import feature_bytes

A = TypeVar("A", bound=Spoken)
Q = TypeVar("Q", Open, Features, Close)
Refusals = dict[int, Pp4Error]
"""By request, the first refusal of it; requests that nothing was refused of are missing."""


class StepClient(Client):
    """See :class:`Client`; calls about many requests, each bounded as a whole."""

    def open_many(self, keys: Mapping[int, int], limit_s: float | None = None) -> Refusals:
        """Begin requests.

        Args:
            keys: of their draws, by request.
            limit_s: seconds, for all of them.

        Raises:
            Pp4Error: the connection is over, also where not all was answered in time.
        """
        asked = [self._made(Open, request=one, key=key) for one, key in keys.items()]
        found = self._ask_all([(one, b"") for one in asked], Opened, self._deadline(limit_s))
        self._lengths.update((one.request, 0) for one, told in found if isinstance(told, Opened))
        return _refusals(found)

    def features_many(
        self, features: Mapping[int, tuple[int, Any]], limit_s: float | None = None
    ) -> Refusals:
        """Append features to requests, in as many frames as they need.

        Args:
            features: by request, the position of the first and what :meth:`Client.features` takes.
            limit_s: seconds, for all of them.

        Raises:
            BadInputError: they are no whole tokens of the worker's width; nothing was sent.
            Pp4Error: the connection is over, also where not all was answered in time.
        """
        asked: list[tuple[Features, Bytes]] = []
        for request, (first, given) in features.items():
            asked += self._feature_frames(request, first, given)
        found = self._ask_all(asked, Appended, self._deadline(limit_s))
        for question, answer in found:
            if isinstance(answer, Appended):
                wanted = question.first + question.tokens
                if answer.length != wanted:
                    raise self._talk.stranger("APPENDED", f"length {wanted}", f"{answer.length}")
                self._lengths[question.request] = wanted
        return _refusals(found)

    def close_many(self, requests: Collection[int], limit_s: float | None = None) -> Refusals:
        """End requests; drafts of theirs that are under way are refused.

        Raises:
            Pp4Error: the connection is over, also where not all was answered in time.
        """
        asked = [self._made(Close, request=one) for one in requests]
        found = self._ask_all([(one, b"") for one in asked], Closed, self._deadline(limit_s))
        for request in requests:
            self._lengths.pop(request, None)
        return _refusals(found)

    def submit_many(self, asks: Sequence[Ask], limit_s: float | None = None) -> list[int]:
        """Ask for one block of each request, so that they wait together; -> tickets."""
        return self._submit(asks, self._deadline(limit_s))

    def waits(self, ticket: int) -> bool:
        """Whether a ticket is still good: not answered, and not given up."""
        return self._talk.waits(ticket)

    def give_up(self, ticket: int) -> None:
        """Throw away the answer to a question when it comes."""
        self._give_up(ticket)

    def ask_abort(self, request: int, limit_s: float | None = None) -> int:
        """Give up the draft of a request without waiting; -> a ticket for :meth:`aborted`."""
        asked = self._made(Abort, request=request)
        self._talk.ask([asked], self._deadline(limit_s))
        return asked.sequence

    def aborted(self, tickets: Mapping[int, int]) -> set[int]:
        """Which aborts are over by now; waits for nothing, and their tickets are used up.

        Args:
            tickets: of :meth:`ask_abort`, by request.

        Returns:
            Those requests.

        Raises:
            Pp4Error: the connection is over, or the worker refuses.
        """
        if tickets:
            self._talk.look()
        done = {one for one, ticket in tickets.items() if self._talk.answered(ticket)}
        for request in done:
            answer, _ = self._talk.answer(tickets[request], Aborted, self._deadline(0.0))
            if answer.request != request:
                raise self._talk.stranger("request", f"{request}", f"{answer.request}")
        return done

    # -- questions and answers --------------------------------------------------------------

    def _feature_frames(
        self, request: int, first: int, features: Any
    ) -> list[tuple[Features, Bytes]]:
        width = self._greeted().feature_width
        raw, size = feature_bytes(features, width), width * FEATURE_BYTES
        step = max(1, self._largest_body // size) * size
        frames: list[tuple[Features, Bytes]] = []
        for start in range(0, len(raw), step):
            body = raw[start : start + step]
            members = {"first": first + start // size, "tokens": len(body) // size}
            frames.append((self._made(Features, request=request, **members), body))
        return frames

    def _ask_all(
        self, asked: Sequence[tuple[Q, Bytes]], kind: type[A], deadline: Deadline
    ) -> list[tuple[Q, A | Pp4Error]]:
        for question, body in asked:
            self._talk.ask([question], deadline, body)
        return [(question, self._answer(question, kind, deadline)) for question, _ in asked]

    def _answer(self, question: Question, kind: type[A], deadline: Deadline) -> A | Pp4Error:
        try:
            answer, _ = self._talk.answer(question.sequence, kind, deadline)
        except Pp4Error as error:
            if self.over is not None:
                raise
            if self._talk.waits(question.sequence):
                self.disconnect()
                raise
            return error
        self._compare(question, answer, ("request",))
        return answer


def _refusals(found: Sequence[tuple[Open | Features | Close, Spoken | Pp4Error]]) -> Refusals:
    """Of each request the first, since what follows that is refused for its sake."""
    told = [(one.request, answer) for one, answer in found if isinstance(answer, Pp4Error)]
    return dict(reversed(told))
