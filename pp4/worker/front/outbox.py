"""Answers on their way to one client, bounded in bytes and in time."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import deque

from pp4.worker.front.counters import Counters
from pp4.worker.front.limits import Limits


class Outbox:
    """Sends what it is given, in order; a client that does not read is dropped.

    Args:
        connected: does not block.
        limits: ``unread_bytes`` and ``write_s``.
        counters: of the bytes that leave.

    Attributes:
        dropped: whether the client was given up; what is put is thrown away.
    """

    def __init__(self, connected: socket.socket, limits: Limits, counters: Counters) -> None:
        self._socket, self._limits, self._counters = connected, limits, counters
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self.dropped = False
        self._some, self._room, self._empty = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._room.set()
        self._empty.set()

    def put(self, data: bytes) -> None:
        """Send, now where that is possible, and otherwise as soon as the client reads."""
        if self.dropped:
            return
        if not self._waiting:
            data = data[self._try(data) :]
        if data and not self.dropped:
            self._waiting.append(data)
            self._bytes += len(data)
            self._some.set()
            self._empty.clear()
            if self._bytes > self._limits.unread_bytes:
                self._room.clear()

    def _try(self, data: bytes) -> int:
        """Send what the socket takes at once; -> how many bytes."""
        try:
            sent = self._socket.send(data)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            self.drop()
            return 0
        self._counters.sent_bytes += sent
        return sent

    async def run(self) -> None:
        """Send what could not be sent at once."""
        loop = asyncio.get_running_loop()
        while not self.dropped:
            await self._some.wait()
            while self._waiting:
                data = self._waiting[0]
                try:
                    async with asyncio.timeout(self._limits.write_s):
                        await loop.sock_sendall(self._socket, data)
                except OSError:
                    # a timeout is one of them
                    self.drop()
                    return
                if not self.dropped:
                    self._sent(data)
            self._some.clear()

    def _sent(self, data: bytes) -> None:
        self._waiting.popleft()
        self._bytes -= len(data)
        self._counters.sent_bytes += len(data)
        if self._bytes <= self._limits.unread_bytes:
            self._room.set()
        if not self._waiting:
            self._empty.set()

    def drop(self) -> None:
        """Give the client up: what waits is thrown away, and its questions end."""
        self.dropped = True
        self._waiting.clear()
        self._bytes = 0
        for event in (self._room, self._some, self._empty):
            event.set()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    async def room(self) -> None:
        """Wait until the client has read enough of its answers, or is dropped."""
        await self._room.wait()

    async def flush(self, limit_s: float) -> None:
        """Wait until everything has left, within the limit; then say that nothing follows."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._empty.wait()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
