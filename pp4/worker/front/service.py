"""What all connections share: the ranks, whose turn it is, the drafts that wait, the state."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from pp4.clock import Clock
from pp4.errors import Code, Pp4Error, Refusal, RefusedError, WrongError
from pp4.wire.drafts import Aborted, Drafted, Standing, State, reply_bytes
from pp4.wire.offers import Offer
from pp4.worker.drafting import Drafting
from pp4.worker.front.answers import SHOWN, refused, stopped, texts
from pp4.worker.front.appends import Appending, Appends
from pp4.worker.front.counters import Counters
from pp4.worker.front.limits import Log
from pp4.worker.front.queue import Queue
from pp4.worker.front.requests import Asked
from pp4.worker.front.turns import Turns

T = TypeVar("T")


def _again(error: Pp4Error) -> Pp4Error:
    """The same error to be raised once more: one that is raised twice collects both tracebacks."""
    return type(error)(error.refusal)


def _internal(where: str, error: Exception) -> WrongError:
    found = f"{type(error).__name__}: {error}"[:SHOWN]
    return WrongError(Refusal(Code.INTERNAL, where, "an answer of the ranks", found))


class Service:
    """Asks the ranks, one call at a time, and fails for good when they do.

    Args:
        clock: decides how long drafts have waited.
        log: takes events.
        ranks: their process ids, for whoever asks how the worker is.

    Attributes:
        state: what STATUS says.
        counters: see there.
        gauges: more numbers for STATUS, asked for when it is.
    """

    def __init__(self, clock: Clock, log: Log, ranks: Sequence[int] = ()) -> None:
        self.clock, self.log = clock, log
        self.state: State = "starting"
        self.counters = Counters()
        self.gauges: Callable[[], dict[str, int]] = dict
        self._since = clock.wall()
        self._ranks = tuple(ranks)
        self._drafting: Drafting | None = None
        self._over: Pp4Error | None = None
        self._failed = asyncio.Event()
        self._turns = Turns()
        self._queue, self._some = Queue(), asyncio.Event()
        self._launched: list[Asked] = []
        self._appends = Appends(self.counters, self._judged)

    # -- states -----------------------------------------------------------------------------

    def enter(self, state: State) -> None:
        """Say that the worker is in another state from now on."""
        self.state, self._since = state, self.clock.wall()
        self.log("state", {"state": state})

    def begin(self, drafting: Drafting) -> None:
        """Serve with these ranks."""
        if self._over is None:
            self._drafting = drafting
            self.enter("serving")

    @property
    def waiting(self) -> int:
        """Drafts that wait for a batch."""
        return len(self._queue)

    @property
    def error(self) -> Pp4Error | None:
        """What every question but STATUS is answered with, once the worker is over."""
        return self._over

    def require(self) -> Drafting:
        """The ranks, where they serve.

        Raises:
            Pp4Error: the error of the ranks, or ``UNPRIMED`` where they are not up yet.
        """
        if self._over is not None:
            raise _again(self._over)
        if self._drafting is None:
            expected = "a worker that serves"
            raise RefusedError(Refusal(Code.UNPRIMED, "worker", expected, f"it is {self.state}"))
        return self._drafting

    @property
    def offer(self) -> Offer:
        """What the ranks can do; refuses like :meth:`require`."""
        return self.require().offer

    def standing(self, sequence: int) -> Standing:
        """The answer to STATUS."""
        return Standing(
            sequence=sequence,
            state=self.state,
            since=self._since,
            ranks=self._ranks,
            offer=None if self._drafting is None else self._drafting.offer,
            refusal=None if self._over is None else texts(self._over.refusal),
            counters={
                **self.counters.as_dict(),
                "waiting": self.waiting,
                "features_waiting": len(self._appends),
                **self.gauges(),
            },
        )

    def fail(self, error: Pp4Error) -> None:
        """The ranks are over: whoever waits and whoever comes is answered with this, at once."""
        if self._over is not None:
            return
        self.enter("failed")
        self.log("failed", error.refusal.as_dict())
        self._end(error)
        self._failed.set()

    @property
    def has_failed(self) -> bool:
        """Whether the ranks have failed."""
        return self._failed.is_set()

    async def failure(self) -> Pp4Error:
        """Wait until the ranks have failed; -> their error."""
        await self._failed.wait()
        return self._over or stopped("worker")

    def _end(self, error: Pp4Error) -> None:
        self._over = error
        self._turns.end(error)
        for asked in [*self._launched, *self._queue.drain()]:
            self._refuse(asked, error.refusal)
        self._launched = []
        self._some.set()
        self._appends.end(error.refusal)

    async def stop(self, limit_s: float) -> None:
        """Answer what waits, and give what is with the ranks some time to end."""
        error = stopped("worker, which stops")
        if self._over is None:
            self._over = error
            self._turns.shut(error)
            for asked in self._queue.drain():
                self._refuse(asked, error.refusal)
            self._appends.drain(error.refusal)
            await self._turns.idle(limit_s)
            self._end(error)
        self.enter("torn down")

    def tell_refusal(self, event: str, refusal: Mapping[str, str]) -> None:
        """Count a refusal, and log every first, second, fourth, eighth ... one of its code.

        A client can be refused thousands of times a second, and a log has other readers.
        """
        counts, code = self.counters.refusals, refusal["code"]
        counts[code] += 1
        if counts[code].bit_count() == 1:
            self.log(event, {**refusal, "count": counts[code]})

    # -- calls ------------------------------------------------------------------------------

    async def call(self, ask: Callable[[Drafting], Awaitable[T]]) -> T:
        """Ask the ranks something, in turn.

        Raises:
            RefusedError: they refuse, and go on.
            Pp4Error: they are over.
        """
        drafting = self.require()
        async with self._turns.taken():
            try:
                return await ask(drafting)
            except Exception as error:
                raise self._judged(drafting, error) from error

    def _judged(self, drafting: Drafting, error: Exception) -> Pp4Error:
        """Fail where an error ends the ranks; -> what to answer."""
        if isinstance(error, RefusedError) and drafting.failed is None:
            return _again(error)
        known = drafting.failed or error
        self.fail(known if isinstance(known, Pp4Error) else _internal("worker", known))
        return _again(self._over or _internal("worker", known))

    async def watch(self) -> None:
        """Fail as soon as the ranks do, also while nothing is asked of them."""
        drafting = self.require()
        try:
            self.fail(await drafting.lost())
        except Exception as error:
            self.fail(_internal("worker", error))

    # -- features ---------------------------------------------------------------------------

    def put_features(self, appending: Appending) -> None:
        """Let features wait for their turn."""
        self._appends.put(appending)

    def give_up_features(self, appending: Appending) -> None:
        """Drop features, unless the ranks have them."""
        self._appends.give_up(appending)

    async def append(self) -> None:
        """Hand over the features that wait, turn after turn, until the ranks are over."""
        await self._work(self._appends.some, self._appends.together)

    # -- drafts -----------------------------------------------------------------------------

    def put(self, asked: Asked) -> None:
        """Let a draft wait for its batch."""
        self.counters.asked += 1
        self._queue.put(asked)
        self._some.set()

    def give_up(self, asked: Asked) -> None:
        """Drop a draft: it is refused now, or when the block ends that it is in."""
        if self._queue.remove(asked):
            self._refuse(asked, stopped("DRAFT").refusal)
        else:
            asked.unwanted = True

    async def draft(self) -> None:
        """Draft what waits, batch after batch, until the ranks are over."""
        await self._work(self._some, self._block)

    async def _work(self, some: asyncio.Event, use: Callable[[Drafting], Awaitable[None]]) -> None:
        """Take a turn whenever there is some of something, until the ranks are over."""
        drafting = self.require()
        while self._over is None:
            await some.wait()
            try:
                async with self._turns.taken():
                    await use(drafting)
            except Exception as error:
                # with nobody left to take it up, clients would wait for ever
                self.fail(error if isinstance(error, Pp4Error) else _internal("worker", error))

    async def _block(self, drafting: Drafting) -> None:
        """One batch: all of its replies, or one refusal for each."""
        batch = self._queue.take(max(drafting.offer.batches))
        if not len(self._queue):
            self._some.clear()
        if not batch:
            return
        self._launched = batch
        self._count(batch, drafting.offer.batches)
        try:
            replies = await drafting.draft(batch[0].depth, [asked.row for asked in batch])
            _require_whole(replies, len(batch), drafting.offer.block)
        except Exception as error:
            refusal = self._judged(drafting, error).refusal
            # nobody is left where the ranks are over: they have all been answered
            for asked in self._launched:
                # it was never drafted, so its round may be asked for again
                asked.request.round = asked.round_before
                self._refuse(asked, refusal)
        else:
            for asked, reply in zip(batch, replies, strict=True):
                self._reply(asked, reply, drafting.offer)
        finally:
            self._launched = []

    def _count(self, batch: list[Asked], captured: Sequence[int]) -> None:
        now = self.clock.monotonic_ns()
        waits = [now - asked.arrived_ns for asked in batch]
        size = min(size for size in captured if size >= len(batch))
        self.counters.launched(waits, size)
        self.log(
            "block",
            {"rows": len(batch), "size": size, "depth": batch[0].depth, "wait_ns": max(waits)},
        )

    def _reply(self, asked: Asked, reply: bytes, offer: Offer) -> None:
        if asked.unwanted:
            self._refuse(asked, stopped("DRAFT").refusal)
            return
        asked.request.asked = None
        self.counters.replies += 1
        self.counters.positions += asked.depth
        draft = asked.draft
        answer = Drafted(
            sequence=draft.sequence,
            request=draft.request,
            generation=draft.generation,
            slot=draft.slot,
            round=draft.round,
            position=draft.position,
            mode=draft.mode if offer.sampled else "greedy",
            depth=asked.depth,
            block=offer.block,
        )
        asked.answer(answer, reply)

    def _refuse(self, asked: Asked, refusal: Refusal) -> None:
        """End a draft without a reply, and answer the ABORT that waits for that."""
        asked.request.asked = None
        self.counters.without_reply += 1
        asked.answer(refused(asked.draft.sequence, refusal), b"")
        if asked.abort is not None:
            answer = Aborted(sequence=asked.abort, request=asked.draft.request, dropped=True)
            asked.answer(answer, b"")


def _require_whole(replies: Sequence[bytes], rows: int, block: int) -> None:
    """Nothing leaves of a batch that is not whole."""
    lengths = {len(reply) for reply in replies}
    if len(replies) != rows or lengths != {reply_bytes(block)}:
        expected = f"{rows} replies of {reply_bytes(block)} bytes"
        found = f"{len(replies)} of {sorted(lengths)}"
        raise WrongError(Refusal(Code.INCOMPLETE, "draft", expected, found))
