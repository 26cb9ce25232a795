"""One client: reads its questions in order, and answers each of them once."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

from pp4.errors import Code, Pp4Error, Refusal, RefusedError
from pp4.wire.draft_frames import Decoder, encode
from pp4.wire.drafts import (
    QUESTIONS,
    VERSION,
    Abort,
    Aborted,
    AnyAnswer,
    AnyQuestion,
    Close,
    Closed,
    Draft,
    Features,
    Hello,
    Open,
    Opened,
    Refused,
    Status,
    Welcome,
)
from pp4.wire.offers import ABI
from pp4.worker.front.answers import refused
from pp4.worker.front.appends import Appending
from pp4.worker.front.limits import Limits
from pp4.worker.front.outbox import Outbox
from pp4.worker.front.requests import Request, Requests, refuse
from pp4.worker.front.service import Service

_READ: Final = 1 << 16
_AT_ONCE: Final = 64
"""Questions of one client before the others have a turn."""


class Connection:
    """Serves one client from HELLO to its end.

    A question that needs the ranks holds up those behind it.  A draft does not, and features do
    not hold up those of other requests; so a client's drafts wait together, the features of its
    requests do, and everything else happens in the order in which it was asked.

    Args:
        connected: does not block; closed at the end.
        service: shared by all.
        limits: see there.
        numbers: the owner's numbers of requests; shared by all.
    """

    def __init__(
        self, connected: socket.socket, service: Service, limits: Limits, numbers: Iterator[int]
    ) -> None:
        self._socket, self._service, self._limits = connected, service, limits
        self._numbers = numbers
        self._outbox = Outbox(connected, limits, service.counters)
        self._requests: Requests | None = None
        # by the client's number, the features that are under way
        self._appending: dict[int, Appending] = {}
        self._settled = asyncio.Event()
        self._settled.set()
        self._verbs: dict[type, Callable[[Any, bytearray], Awaitable[None]]] = {
            Hello: self._hello,
            Open: self._open,
            Features: self._features,
            Draft: self._draft,
            Abort: self._abort,
            Close: self._close,
        }

    @property
    def open(self) -> int:
        """Open requests."""
        return 0 if self._requests is None else len(self._requests)

    async def run(self) -> None:
        """Serve until the client leaves, sends nonsense, or does not read."""
        writer = asyncio.create_task(self._outbox.run())
        try:
            await self._read()
        except OSError:
            # gone without a word; what it had open is closed below
            self._outbox.drop()
        except Exception as error:
            # what came before is answered before
            await self._settled.wait()
            await self._part(error)
        finally:
            self._outbox.drop()
            writer.cancel()
            # the loop may still watch the descriptor for it, which the next client could get
            try:
                await asyncio.gather(writer, return_exceptions=True)
            finally:
                self._socket.close()
            await self._leave()

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()
        decoder = Decoder(QUESTIONS, self._limits.largest_body)
        buffer = bytearray(_READ)
        while count := await loop.sock_recv_into(self._socket, buffer):
            self._service.counters.received_bytes += count
            for index, frame in enumerate(decoder.feed(memoryview(buffer)[:count]), 1):
                await self._take(frame.message, frame.body)
                await self._outbox.room()
                if index % _AT_ONCE == 0:
                    await asyncio.sleep(0)
            # what has come already is read without waiting, so a busy client has to be told to
            await asyncio.sleep(0)
        await self._settled.wait()

    async def _part(self, error: Exception) -> None:
        """Say why nothing more is read, and leave a moment for that to arrive."""
        if isinstance(error, Pp4Error):
            refusal = error.refusal
        else:
            found = f"{type(error).__name__}: {error}"
            refusal = Refusal(Code.INTERNAL, "connection", "an answer", found)
        self.answer(refused(None, refusal))
        await self._outbox.flush(self._limits.linger_s)
        loop = asyncio.get_running_loop()
        buffer = bytearray(_READ)
        with contextlib.suppress(OSError):
            # closed with bytes unread, TCP would take the refusal back
            async with asyncio.timeout(self._limits.linger_s):
                while await loop.sock_recv_into(self._socket, buffer):
                    await asyncio.sleep(0)

    async def _leave(self) -> None:
        """Give up drafts and close requests of a client that is gone."""
        self._service.counters.disconnects += 1
        requests = list(self._requests or ())
        self._service.log("disconnected", {"open": len(requests)})
        for appending in list(self._appending.values()):
            self._service.give_up_features(appending)
        for request in requests:
            if request.asked is not None:
                self._service.give_up(request.asked)
        for request in requests:
            with contextlib.suppress(Pp4Error):
                await self._forget(request)

    async def end(self, limit_s: float) -> None:
        """Let answers leave, then make :meth:`run` end."""
        await self._outbox.flush(limit_s)
        self._outbox.drop()

    # -- answers ----------------------------------------------------------------------------

    def answer(self, message: AnyAnswer, body: bytes = b"") -> None:
        """Send an answer, or throw it away where the client is gone."""
        if self._outbox.dropped:
            return
        if isinstance(message, Refused):
            self._service.tell_refusal("refused", message.refusal)
        self._outbox.put(encode(message, body))

    # -- questions --------------------------------------------------------------------------

    async def _take(self, question: AnyQuestion, body: bytearray) -> None:
        if not (isinstance(question, Features) and self._joins(question, len(body))):
            await self._settled.wait()
        if isinstance(question, Status):
            self.answer(self._service.standing(question.sequence))
            return
        try:
            self._service.require()
            await self._verbs[type(question)](question, body)
        except Pp4Error as error:
            # answers of features keep the order too
            await self._settled.wait()
            self.answer(refused(question.sequence, error.refusal))

    def _joins(self, question: Features, size: int) -> bool:
        """Whether features may wait beside those that do: others of their request come first.

        All of a connection together are no more than one body may be.
        """
        waiting = sum(len(one.body) for one in self._appending.values())
        return (
            question.request not in self._appending and waiting + size <= self._limits.largest_body
        )

    def _greeted(self, verb: str) -> Requests:
        if self._requests is None:
            raise refuse(verb, "connection", "a HELLO that was answered", "none")
        return self._requests

    async def _hello(self, question: Hello, _: bytearray) -> None:
        offer = self._service.offer
        if self._requests is not None:
            raise refuse("HELLO", "connection", "one HELLO", "another one")
        if question.version != VERSION:
            raise refuse("HELLO", "version", f"{VERSION}", question.version)
        if question.abi != ABI:
            raise refuse("HELLO", "abi", ABI, question.abi)
        if question.depth not in offer.depths:
            raise refuse("HELLO", "depth", f"one of {offer.depths}", question.depth)
        self._requests = Requests(offer, question.depth, self._numbers)
        self.answer(
            Welcome(
                sequence=question.sequence,
                offer=offer,
                depth=question.depth,
                largest_body=self._limits.largest_body,
            )
        )

    async def _open(self, question: Open, _: bytearray) -> None:
        requests = self._greeted("OPEN")
        request = requests.begin(question)
        await self._service.call(lambda drafting: drafting.open(request.own))
        requests.keep(request)
        self._service.counters.opened += 1
        self.answer(Opened(sequence=question.sequence, request=question.request))

    async def _features(self, question: Features, body: bytearray) -> None:
        request = self._greeted("FEATURES").appendable(question, len(body))
        appending = Appending(question, request, body, self._appended)
        self._appending[question.request] = appending
        self._settled.clear()
        self._service.put_features(appending)

    def _appended(self, appending: Appending, message: AnyAnswer) -> None:
        """Answer, and let what waits behind the features go on."""
        del self._appending[appending.question.request]
        if not self._appending:
            self._settled.set()
        self.answer(message)

    async def _draft(self, question: Draft, _: bytearray) -> None:
        now = self._service.clock.monotonic_ns()
        self._service.put(self._greeted("DRAFT").accept(question, now, self.answer))

    async def _abort(self, question: Abort, _: bytearray) -> None:
        request = self._greeted("ABORT").of("ABORT", question.request)
        asked = request.asked
        if asked is not None and asked.abort is not None:
            raise refuse("ABORT", "request", "one ABORT of a draft", "another one")
        if asked is None:
            answer = Aborted(sequence=question.sequence, request=question.request, dropped=False)
            self.answer(answer)
            return
        self._service.counters.aborted += 1
        asked.abort = question.sequence
        self._service.give_up(asked)

    async def _close(self, question: Close, _: bytearray) -> None:
        requests = self._greeted("CLOSE")
        request = requests.of("CLOSE", question.request)
        if request.asked is not None:
            self._service.give_up(request.asked)
        await self._forget(request)
        requests.forget(request)
        self.answer(Closed(sequence=question.sequence, request=question.request))

    async def _forget(self, request: Request) -> None:
        await self._service.call(lambda drafting: drafting.close(request.own))
        self._service.counters.closed += 1


def turn_away(connected: socket.socket, error: RefusedError) -> None:
    """Answer a client that is not let in, as far as its socket takes that at once."""
    with contextlib.suppress(OSError):
        connected.send(encode(refused(None, error.refusal)))
        connected.shutdown(socket.SHUT_WR)
    connected.close()
