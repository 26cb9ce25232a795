"""Both ranks asked from an event loop: one verb at a time, the end of either noticed at once."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

from pp4.errors import Code, Pp4Error, Refusal, RefusedError, TimedOutError, WrongError
from pp4.wire import Reply
from pp4.wire.facts import refusal_of
from pp4.worker.ranks import Pair, RankEnd

Facts = dict[str, Any]


class Conversation:
    """What an owner says to its ranks while it serves others.

    The first error that nobody can answer for is kept, and raised by every later call.

    Args:
        pair: two ranks that were just forked.
    """

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self._heard = asyncio.Event()
        self._turn = asyncio.Lock()
        self.failed: Pp4Error | None = None

    def listen(self) -> None:
        """Hear both ranks from now on, also while nothing is asked of them."""
        for end in self._pair.ends:
            asyncio.get_running_loop().add_reader(end.source, self._hear, end)

    def fall_silent(self) -> None:
        """Hear neither any more; what was asked and what will be is refused."""
        for end in self._pair.ends:
            asyncio.get_running_loop().remove_reader(end.source)
        expected, found = "ranks that run", "they are ended"
        self.fail(RefusedError(Refusal(Code.INTERRUPTED, "ranks", expected, found)))

    def _hear(self, end: RankEnd) -> None:
        try:
            end.take()
        except Pp4Error as error:
            self.fail(error)
        if not end.alive or self.failed is not None:
            asyncio.get_running_loop().remove_reader(end.source)
        if not end.alive:
            found = f"process {end.pid} has ended"
            self.fail(WrongError(Refusal(Code.RANK_DIED, "worker", "two running ranks", found)))
        self._heard.set()

    def fail(self, error: Pp4Error) -> Pp4Error:
        """Keep the first error; -> the one that is kept."""
        if self.failed is None:
            self.failed = error
        self._heard.set()
        return self.failed

    async def lost(self) -> Pp4Error:
        """Wait for an error; -> it."""
        while self.failed is None:
            await self._wait()
        return self.failed

    async def _wait(self) -> None:
        # several may wait: each looks again after anything was heard
        if self._heard.is_set():
            self._heard.clear()
        await self._heard.wait()

    async def both(
        self,
        verb: str,
        given: Facts | tuple[Facts, Facts],
        limit_s: float,
        harmless: Collection[Code] = (),
    ) -> tuple[Facts, Facts]:
        """Ask both ranks and wait for both, one caller after the other.

        Args:
            verb: one of theirs.
            given: its arguments, for both or for each.
            limit_s: seconds after which nobody knows what the ranks are doing.
            harmless: codes of refusals that leave the ranks as they were, where both refuse alike.

        Raises:
            RefusedError: both refused by one of these codes.
            Pp4Error: anything else; it stays.
        """
        async with self._turn:
            return await self._asked(verb, given, limit_s, harmless)

    async def _asked(
        self,
        verb: str,
        given: Facts | tuple[Facts, Facts],
        limit_s: float,
        harmless: Collection[Code],
    ) -> tuple[Facts, Facts]:
        if self.failed is not None:
            raise self.failed
        arguments = given if isinstance(given, tuple) else (given, given)
        ends = self._pair.ends
        try:
            async with asyncio.timeout(limit_s):
                for end, one in zip(ends, arguments, strict=True):
                    end.ask(verb, one)
                while self.failed is None and not all(end.settled for end in ends):
                    await self._wait()
            first, second = (end.answer(verb) for end in ends)
        except TimeoutError:
            expected, found = f"an answer within {limit_s:g} s", "none"
            self.fail(TimedOutError(Refusal(Code.STEP_TIMEOUT, f"ranks, {verb}", expected, found)))
        except Pp4Error as error:
            self.fail(error)
        except BaseException:
            # whoever asked is gone, and the ranks may be anywhere in what was asked
            expected, found = "whoever asked to wait for it", "nobody is left"
            self.fail(RefusedError(Refusal(Code.INTERRUPTED, f"ranks, {verb}", expected, found)))
            raise
        if self.failed is not None:
            raise self.failed
        return self._judged(verb, first, second, harmless)

    def _judged(
        self, verb: str, first: Reply, second: Reply, harmless: Collection[Code]
    ) -> tuple[Facts, Facts]:
        if first.facts is not None and second.facts is not None:
            return first.facts, second.facts
        if first.refusal is not None and second.refusal is not None:
            refusal = refusal_of(first.refusal)
            if refusal.code in harmless and refusal.code == refusal_of(second.refusal).code:
                raise RefusedError(refusal)
        refused = first.refusal if first.facts is None else second.refusal
        raise self.fail(WrongError(refusal_of(refused)))
