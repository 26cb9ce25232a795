"""One call at a time to the ranks, in order of arrival, and an end to all of them at once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from pp4.errors import Pp4Error


class Turns:
    """Whose turn it is to ask the ranks something.

    A lock hands itself on in order of arrival, so that neither batches nor those who append
    features can keep the others waiting for more than a turn each.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._waiting: set[asyncio.Timeout] = set()
        self._holder: asyncio.Timeout | None = None
        self._over: Pp4Error | None = None

    @contextlib.asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        """Wait for a turn and have it.

        Raises:
            Pp4Error: they have ended, before or meanwhile.
        """
        self._require()
        wait = asyncio.timeout(None)
        try:
            async with wait:
                await self._acquire(wait)
                try:
                    self._require()
                    yield
                finally:
                    self._holder = None
                    self._lock.release()
        except TimeoutError:
            if wait.expired():
                self._require()
            raise

    async def _acquire(self, wait: asyncio.Timeout) -> None:
        self._waiting.add(wait)
        try:
            await self._lock.acquire()
        finally:
            self._waiting.discard(wait)
        self._holder = wait

    def _require(self) -> None:
        if self._over is not None:
            # an error of its own for each: what is raised twice collects both tracebacks
            raise type(self._over)(self._over.refusal)

    def shut(self, error: Pp4Error) -> None:
        """Refuse all who wait and all who come; whoever has the turn keeps it."""
        self._over = error
        for wait in self._waiting:
            wait.reschedule(0)
        self._waiting.clear()

    def end(self, error: Pp4Error) -> None:
        """Refuse also whoever has the turn: what it waits for may never come."""
        self.shut(error)
        if self._holder is not None:
            self._holder.reschedule(0)
            self._holder = None

    async def idle(self, limit_s: float) -> bool:
        """Wait until nobody has the turn; -> whether that came within the limit."""
        try:
            async with asyncio.timeout(limit_s), self._lock:
                return True
        except TimeoutError:
            return False
