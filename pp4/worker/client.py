"""A client of a worker: synchronous, for one thread, over a Unix socket or loopback TCP.

    with Client.unix("/run/user/1000/worker.sock") as client:
        client.hello(depth=4)
        client.open(1, key=7)
        client.features(1, features)
        proposal = client.draft(Ask(1, round=0, anchor=11, temperature=0.7))

Every call has a limit.  A refusal of the worker is raised as the error that it is; an answer that
does not belong to what was asked ends the connection.  :mod:`pp4.worker.step_client` asks for many
requests at once.
"""

from __future__ import annotations

import operator
import socket
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from pydantic import ValidationError

from pp4.clock import Deadline, SystemClock
from pp4.errors import BadInputError, Code, Pp4Error, Refusal, RefusedError, reason_of
from pp4.wire.draft_frames import Bytes
from pp4.wire.drafts import (
    FEATURE_BYTES,
    Abort,
    Aborted,
    Appended,
    Close,
    Closed,
    Draft,
    Drafted,
    Features,
    Hello,
    Open,
    Opened,
    Question,
    Spoken,
    Standing,
    Status,
    Welcome,
)
from pp4.wire.offers import Offer
from pp4.worker.client_socket import ClientSocket, Judge
from pp4.worker.front.listening import require_same_user
from pp4.worker.proposals import Ask, Proposal, feature_bytes, proposal_of

__all__ = ["Ask", "Client", "Proposal"]
LIMIT_S: Final = 30.0
_ECHOED: Final = ("request", "generation", "slot", "round", "position")
A = TypeVar("A", bound=Spoken)
Q = TypeVar("Q", bound=Question)


class Client:
    """A connection to a worker.

    Args:
        connected: a connected stream; closed with the client.
        limit_s: seconds for each call that does not say otherwise.
        judge: of blocks that come, see :class:`ClientSocket`.

    Attributes:
        offer: what the worker can do, once it was greeted.
        depth: positions of each proposal, once it was greeted.
    """

    def __init__(
        self, connected: socket.socket, limit_s: float = LIMIT_S, judge: Judge | None = None
    ) -> None:
        self._talk, self._limit_s = ClientSocket(connected, judge), limit_s
        self._lengths: dict[int, int] = {}
        self._drafts: dict[int, Draft] = {}
        self._largest_body = 0
        self.offer: Offer | None = None
        self.depth = 0

    @classmethod
    def unix(cls, path: str | Path, limit_s: float = LIMIT_S, judge: Judge | None = None) -> Self:
        """Connect to a Unix socket of the same user.

        Raises:
            RefusedError: ``UNREACHABLE``; ``PEER_USER``.
        """
        connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connected.settimeout(limit_s)
            connected.connect(str(path))
            require_same_user(connected)
        except OSError as error:
            connected.close()
            raise _unreachable(str(path), error) from error
        except RefusedError:
            connected.close()
            raise
        return cls(connected, limit_s, judge)

    @classmethod
    def tcp(cls, host: str, port: int, limit_s: float = LIMIT_S) -> Self:
        """Connect over TCP.

        Raises:
            RefusedError: ``UNREACHABLE``.
        """
        try:
            connected = socket.create_connection((host, port), limit_s)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            raise _unreachable(f"{host} port {port}", error) from error
        return cls(connected, limit_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.disconnect()

    @property
    def over(self) -> Pp4Error | None:
        """Why nothing can be asked any more, None while it can."""
        return self._talk.over

    def disconnect(self) -> None:
        """End the connection, and with it all of its requests."""
        self._talk.close()

    # -- verbs ------------------------------------------------------------------------------

    def hello(self, depth: int, limit_s: float | None = None) -> Offer:
        """Greet the worker; everything but :meth:`status` comes after it.

        Args:
            depth: positions of every proposal of this connection.
            limit_s: seconds, for this call.
        """
        asked = self._made(Hello, depth=depth)
        welcome = self._exchange(asked, Welcome, self._deadline(limit_s))
        if welcome.depth != depth:
            raise self._talk.stranger("WELCOME", f"depth {depth}", f"{welcome.depth}")
        self.offer, self.depth = welcome.offer, depth
        self._largest_body = welcome.largest_body
        return welcome.offer

    def open(self, request: int, key: int, limit_s: float | None = None) -> None:
        """Begin a request under a number of the caller's own; ``key`` is that of its draws."""
        asked = self._made(Open, request=request, key=key)
        self._exchange(asked, Opened, self._deadline(limit_s))
        self._lengths[request] = 0

    def features(
        self, request: int, features: Any, first: int | None = None, limit_s: float | None = None
    ) -> int:
        """Append features of accepted tokens, in as many frames as they need.

        Args:
            request: an open one.
            features: ``[tokens, feature width]`` BF16: a torch tensor, a numpy array of ``uint16``
                (the bits) or of a ``bfloat16``, or raw little-endian bytes.
            first: position of the first of them; behind those there are where it is None.
            limit_s: seconds, for all frames together.

        Returns:
            Tokens whose features the request has now.

        Raises:
            BadInputError: they are no whole tokens of the worker's width.
        """
        offer = self._greeted()
        raw = feature_bytes(features, offer.feature_width)
        size = offer.feature_width * FEATURE_BYTES
        step = max(1, self._largest_body // size) * size
        length = self._lengths.get(request, 0) if first is None else first
        deadline = self._deadline(limit_s)
        for start in range(0, len(raw), step):
            body = raw[start : start + step]
            tokens = len(body) // size
            asked = self._made(Features, request=request, first=length, tokens=tokens)
            appended = self._exchange(asked, Appended, deadline, body)
            length += tokens
            if appended.length != length:
                raise self._talk.stranger("APPENDED", f"length {length}", f"{appended.length}")
            self._lengths[request] = length
        return length

    def draft(self, ask: Ask, limit_s: float | None = None) -> Proposal:
        """Ask for one block and wait for it.

        Raises:
            TimedOutError: it has not come; it can be aborted, and is thrown away if it comes.
        """
        deadline = self._deadline(limit_s)
        (ticket,) = self._submit([ask], deadline)
        try:
            return self._collect(ticket, deadline)
        except Pp4Error:
            self._give_up(ticket)
            raise

    def draft_many(
        self, asks: Sequence[Ask], limit_s: float | None = None
    ) -> list[Proposal | Pp4Error]:
        """Ask for one block of each request, so that they wait together.

        Returns:
            For each a proposal, or the refusal that took its place.

        Raises:
            TimedOutError: not all of them have come; like :meth:`draft` for each of those.
        """
        deadline = self._deadline(limit_s)
        tickets = self._submit(asks, deadline)
        found: list[Proposal | Pp4Error] = []
        for ticket in tickets:
            try:
                found.append(self._collect(ticket, deadline))
            except Pp4Error as error:
                if self._talk.over is not None or self._talk.waits(ticket):
                    for late in tickets[len(found) :]:
                        self._give_up(late)
                    raise
                found.append(error)
        return found

    def submit(self, ask: Ask, limit_s: float | None = None) -> int:
        """Ask for one block; -> a ticket for :meth:`collect`."""
        (ticket,) = self._submit([ask], self._deadline(limit_s))
        return ticket

    def collect(self, ticket: int, limit_s: float | None = None) -> Proposal:
        """Wait for a block that was submitted; a ticket is good for one proposal or refusal.

        Raises:
            TimedOutError: it has not come; the ticket stays good.
            BadInputError: no such ticket.
        """
        return self._collect(ticket, self._deadline(limit_s))

    def abort(self, request: int, limit_s: float | None = None) -> bool:
        """Give up the draft of a request; -> whether there was one, which is refused then."""
        asked = self._made(Abort, request=request)
        return self._exchange(asked, Aborted, self._deadline(limit_s)).dropped

    def close(self, request: int, limit_s: float | None = None) -> None:
        """End a request; a draft of it that is under way is refused."""
        asked = self._made(Close, request=request)
        self._exchange(asked, Closed, self._deadline(limit_s))
        self._lengths.pop(request, None)

    def status(self, limit_s: float | None = None) -> Standing:
        """How the worker is, whatever state it is in."""
        asked = self._made(Status)
        return self._exchange(asked, Standing, self._deadline(limit_s))

    # -- questions and answers --------------------------------------------------------------

    def _deadline(self, limit_s: float | None) -> Deadline:
        return Deadline.after(SystemClock(), self._limit_s if limit_s is None else limit_s)

    def _made(self, model: type[Q], **members: Any) -> Q:
        """A question of the next sequence, its numbers also those of numpy.

        Raises:
            BadInputError: a member is not of its width, or no number.
        """
        plain = {
            name: value if isinstance(value, str | float) else operator.index(value)
            for name, value in members.items()
        }
        try:
            return model(sequence=self._talk.next(), **plain)
        except ValidationError as error:
            first = error.errors()[0]
            where = f"{model.__name__}, {'.'.join(map(str, first['loc']))}"
            raise BadInputError.of(where, first["msg"], repr(first["input"])) from error

    def _greeted(self) -> Offer:
        if self.offer is None:
            raise BadInputError.of("client", "a worker that was greeted", "one that was not")
        return self.offer

    def _exchange(
        self, question: Question, kind: type[A], deadline: Deadline, body: Bytes = b""
    ) -> A:
        """Ask, and wait for an answer of this kind about the same request."""
        self._talk.ask([question], deadline, body)
        try:
            answer, _ = self._talk.answer(question.sequence, kind, deadline)
        except Pp4Error:
            self._talk.give_up(question.sequence)
            raise
        self._compare(question, answer, ("request",))
        return answer

    def _compare(self, question: Question, answer: Spoken, members: Sequence[str]) -> None:
        """Refuse an answer to another question; what neither of them has is equal."""
        for member in members:
            asked, told = getattr(question, member, None), getattr(answer, member, None)
            if asked != told:
                raise self._talk.stranger(member, str(asked), str(told))

    def _submit(self, asks: Sequence[Ask], deadline: Deadline) -> list[int]:
        self._greeted()
        drafts = [self._draft_of(ask) for ask in asks]
        if drafts:
            self._talk.ask(drafts, deadline)
        self._drafts.update((draft.sequence, draft) for draft in drafts)
        return [draft.sequence for draft in drafts]

    def _draft_of(self, ask: Ask) -> Draft:
        position = ask.position
        if position is None:
            position = self._lengths.get(ask.request, 0) + 1
        return self._made(
            Draft,
            request=ask.request,
            generation=ask.generation,
            slot=ask.slot,
            round=ask.round,
            position=position,
            anchor=ask.anchor,
            mode=ask.mode,
            temperature=float(ask.temperature),
        )

    def _collect(self, ticket: int, deadline: Deadline) -> Proposal:
        draft, offer = self._drafts.get(ticket), self._greeted()
        if draft is None:
            raise BadInputError.of("client", "a ticket that waits", f"{ticket}")
        try:
            answer, body = self._talk.answer(ticket, Drafted, deadline)
        finally:
            if not self._talk.waits(ticket):
                del self._drafts[ticket]
        self._compare(draft, answer, _ECHOED)
        told = (answer.depth, answer.block)
        if told != (self.depth, offer.block):
            raise self._talk.stranger("depth", f"{self.depth} of {offer.block}", str(told))
        if answer.mode != (draft.mode if offer.sampled else "greedy"):
            raise self._talk.stranger("mode", draft.mode, answer.mode)
        return proposal_of(answer, body)

    def _give_up(self, ticket: int) -> None:
        self._drafts.pop(ticket, None)
        self._talk.give_up(ticket)


def _unreachable(where: str, error: OSError) -> RefusedError:
    return RefusedError(
        Refusal(Code.UNREACHABLE, f"worker at {where}", "one that listens there", reason_of(error))
    )
