"""Features that wait while the ranks are busy, and travel together in the next turn; no socket."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from pp4.errors import Code, Pp4Error, Refusal, RefusedError, WrongError
from pp4.wire.drafts import AnyAnswer, Appended, Features
from pp4.worker.drafting import Drafting, Part
from pp4.worker.front.answers import refused, stopped
from pp4.worker.front.counters import Counters
from pp4.worker.front.requests import Request

_PARTS: Final = 256
"""Parts of one call at most, since it and its answer go through pipes."""


@dataclass(slots=True, eq=False)
class Appending:
    """A FEATURES that is under way; a request has one at a time.

    Attributes:
        question: the question.
        request: whose it is; nothing else is asked of it before the answer.
        body: the features.
        answer: takes the answer, once.
    """

    question: Features
    request: Request
    body: bytearray
    answer: Callable[[Appending, AnyAnswer], None]

    @property
    def part(self) -> Part:
        """What the ranks are given."""
        return Part(self.request.own, self.question.tokens, memoryview(self.body))


class Appends:
    """The oldest that wait go together, as many as the ranks take at once.

    Args:
        counters: of calls, parts and tokens.
        judged: takes what a call has raised, and says what to answer; see
            :meth:`pp4.worker.front.service.Service.call`.

    Attributes:
        some: set while any wait.
    """

    def __init__(
        self, counters: Counters, judged: Callable[[Drafting, Exception], Pp4Error]
    ) -> None:
        self._counters, self._judged = counters, judged
        # a dict keeps the order and finds what is to be removed
        self._waiting: dict[Appending, None] = {}
        self._launched: deque[Appending] = deque()
        self.some = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, appending: Appending) -> None:
        """Let features wait for a turn."""
        self._waiting[appending] = None
        self.some.set()

    def give_up(self, appending: Appending) -> None:
        """Drop features that still wait; what the ranks have ends as it does."""
        if appending in self._waiting:
            del self._waiting[appending]
            self._refuse(appending, stopped("FEATURES").refusal)

    async def together(self, drafting: Drafting) -> None:
        """Use a turn: one call with what waits, and an answer for each part of it."""
        batch = self._take(drafting.capacity)
        if not batch:
            return
        self._launched = deque(batch)
        self._counters.appends += 1
        self._counters.append_parts += len(batch)
        try:
            told = await drafting.append([one.part for one in batch])
            _require_whole(batch, told)
        except Exception as error:
            refusal = self._judged(drafting, error).refusal
            # nobody is left where the ranks are over: they have all been answered
            told = [RefusedError(refusal) for _ in self._launched]
        for found in told:
            # there is none any more where the end of the ranks has answered them
            if self._launched:
                self._end(self._launched.popleft(), found)

    def _take(self, most: int) -> list[Appending]:
        """Take the oldest and those behind it that fit, in order; one always goes."""
        batch: list[Appending] = []
        size = 0
        for one in self._waiting:
            size += len(one.body)
            if batch and (size > most or len(batch) == _PARTS):
                break
            batch.append(one)
        for one in batch:
            del self._waiting[one]
        if not self._waiting:
            self.some.clear()
        return batch

    def _end(self, appending: Appending, found: int | RefusedError) -> None:
        if isinstance(found, RefusedError):
            self._refuse(appending, found.refusal)
            return
        question = appending.question
        appending.request.length = found
        self._counters.appended += question.tokens
        answer = Appended(sequence=question.sequence, request=question.request, length=found)
        appending.answer(appending, answer)

    def _refuse(self, appending: Appending, refusal: Refusal) -> None:
        appending.answer(appending, refused(appending.question.sequence, refusal))

    def drain(self, refusal: Refusal) -> None:
        """Refuse all that wait, and let those who look for some see that there are none."""
        waiting, self._waiting = self._waiting, {}
        for one in waiting:
            self._refuse(one, refusal)
        self.some.set()

    def end(self, refusal: Refusal) -> None:
        """Refuse also those that the ranks have: their answer may never come."""
        while self._launched:
            self._refuse(self._launched.popleft(), refusal)
        self.drain(refusal)


def _require_whole(batch: Sequence[Appending], told: Sequence[int | RefusedError]) -> None:
    """Every part has grown by its tokens or was refused, or nobody knows what the ranks have."""
    wanted = [one.request.length + one.question.tokens for one in batch]
    found = [one if isinstance(one, int) else "refused" for one in told]
    right = len(found) == len(wanted) and all(
        one in (length, "refused") for one, length in zip(found, wanted, strict=True)
    )
    if not right:
        raise WrongError(Refusal(Code.INCOMPLETE, "append", f"{wanted} tokens", f"{found}"))
