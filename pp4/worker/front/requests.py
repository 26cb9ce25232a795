"""The open requests of one connection, and what may be asked of them; no socket, no clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pp4.errors import BadInputError
from pp4.wire.drafts import FEATURE_BYTES, AnyAnswer, Draft, Features, Open
from pp4.wire.offers import Offer
from pp4.worker.drafting import Row

Answer = Callable[[AnyAnswer, bytes], None]


@dataclass(slots=True, eq=False)
class Request:
    """An open request.

    Attributes:
        number: the client's.
        own: the owner's, which is never used again.
        key: of its draws.
        length: tokens with features.
        round: of its last draft, -1 before the first.
        asked: the draft that is under way.
    """

    number: int
    own: int
    key: int
    length: int = 0
    round: int = -1
    asked: Asked | None = None


@dataclass(slots=True, eq=False)
class Asked:
    """A draft that is under way.

    Attributes:
        draft: the question.
        request: whose it is.
        row: what the ranks are given.
        depth: positions.
        arrived_ns: when it came.
        answer: sends to the connection that asked.
        round_before: what to go back to where the ranks refuse it.
        unwanted: whether its reply may not leave any more.
        abort: sequence of the ABORT that waits for its end.
    """

    draft: Draft
    request: Request
    row: Row
    depth: int
    arrived_ns: int
    answer: Answer
    round_before: int
    unwanted: bool = False
    abort: int | None = None


def refuse(verb: str, member: str, expected: str, found: object) -> BadInputError:
    """The refusal of one member of a question."""
    return BadInputError.of(f"{verb}, {member}", expected, str(found))


class Requests:
    """The table of one connection.

    Args:
        offer: what the worker can do.
        depth: positions of every draft of the connection.
        numbers: the owner's numbers; shared by all connections.
    """

    def __init__(self, offer: Offer, depth: int, numbers: Iterator[int]) -> None:
        self._offer, self._depth, self._numbers = offer, depth, numbers
        self._open: dict[int, Request] = {}

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Request]:
        return iter(list(self._open.values()))

    def begin(self, question: Open) -> Request:
        """A new request, which is in the table once it is kept.

        Raises:
            BadInputError: the number is taken.
        """
        if question.request in self._open:
            raise refuse("OPEN", "request", "a number that is not open", question.request)
        return Request(question.request, next(self._numbers), question.key)

    def keep(self, request: Request) -> None:
        """The ranks have made room for it."""
        self._open[request.number] = request

    def forget(self, request: Request) -> None:
        """The ranks have forgotten it."""
        self._open.pop(request.number, None)

    def of(self, verb: str, number: int) -> Request:
        """An open request.

        Raises:
            BadInputError: it is not open.
        """
        request = self._open.get(number)
        if request is None:
            raise refuse(verb, "request", "an open request of this connection", number)
        return request

    def appendable(self, question: Features, body: int) -> Request:
        """The request whose features may grow by a body of as many bytes.

        Raises:
            BadInputError: not open, a draft is under way, a gap or an overlap, a wrong width.
        """
        request = self.of(question.verb, question.request)
        if request.asked is not None:
            raise refuse(question.verb, "request", "no draft under way", "one")
        if question.first != request.length:
            raise refuse(question.verb, "first", f"{request.length}", question.first)
        wanted = question.tokens * self._offer.feature_width * FEATURE_BYTES
        if body != wanted:
            raise refuse(question.verb, "body", f"{wanted} bytes", f"{body} bytes")
        return request

    def accept(self, draft: Draft, now_ns: int, answer: Answer) -> Asked:
        """Take a draft, which is under way from now on.

        Raises:
            BadInputError: for the first member that is wrong; nothing is changed.
        """
        request = self.of(draft.verb, draft.request)
        self._check(request, draft)
        row = Row(
            request=request.own,
            key=request.key,
            position=draft.position,
            round=draft.round,
            anchor=draft.anchor,
            sampled=draft.mode == "sampled",
        )
        asked = Asked(draft, request, row, self._depth, now_ns, answer, request.round)
        request.round, request.asked = draft.round, asked
        return asked

    def _check(self, request: Request, draft: Draft) -> None:
        verb = draft.verb
        if request.asked is not None:
            raise refuse(verb, "request", "no draft under way", "one")
        if draft.round <= request.round:
            raise refuse(verb, "round", f"above {request.round}", draft.round)
        if draft.position != request.length + 1:
            expected = f"{request.length + 1}, one past the anchor at {request.length}"
            raise refuse(verb, "position", expected, draft.position)
        if draft.anchor >= self._offer.vocab:
            raise refuse(verb, "anchor", f"below {self._offer.vocab}", draft.anchor)
        if draft.mode == "sampled" and not draft.temperature > 0:
            raise refuse(verb, "temperature", "above 0 where sampled", draft.temperature)
        if draft.mode == "greedy" and draft.temperature != 0:
            raise refuse(verb, "temperature", "0 where greedy", draft.temperature)
