"""Tells a service manager how a worker is, by the protocol of ``sd_notify(3)``.

A manager that cannot be reached is no reason to stop: it is logged once, and the work goes on.  It
is tried again with the next word, since a watchdog ends whoever has fallen silent.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final

from pp4.config import Service

_LONGEST_STATUS: Final = 300
_OFTEN: Final = 0.4
"""Which part of the watchdog's span passes between two signs of life."""


class Notifier:
    """The way to a service manager, or to nobody.

    Args:
        service: what the manager has said.
        complain: told ``(event, **fields)`` where it cannot be reached.
    """

    def __init__(self, service: Service, complain: Callable[..., None]) -> None:
        self._service, self._complain = service, complain
        self._complained = False

    def ready(self, status: str) -> None:
        """Say that requests are answered from now on."""
        self._send("READY=1", _status(status))

    def status(self, status: str) -> None:
        """Say how the worker is, in a line for people."""
        self._send(_status(status))

    def stopping(self, status: str) -> None:
        """Say that the end has begun."""
        self._send("STOPPING=1", _status(status))

    def alive(self) -> None:
        """Give the sign of life that a watchdog waits for."""
        self._send("WATCHDOG=1")

    async def keep_alive(self, healthy: Callable[[], bool]) -> None:
        """Give signs of life for as long as there is health, where a watchdog waits for them.

        Args:
            healthy: whether the worker is; a sign that is left out lets the manager end it.
        """
        if self._service.watchdog_s is None:
            return
        while True:
            if healthy():
                self.alive()
            await asyncio.sleep(self._service.watchdog_s * _OFTEN)

    def _send(self, *lines: str) -> None:
        where = self._service.socket
        if where is None:
            return
        try:
            if where[0] not in "/@":
                raise OSError(f"neither a path nor an abstract name: {where!r}")
            # the zero of an abstract name is written as @
            address = f"\0{where[1:]}" if where[0] == "@" else where
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as line:
                # a manager that does not read must not make anybody wait
                line.setblocking(False)
                line.sendto("\n".join(lines).encode(), address)
        except BlockingIOError:
            # it is there and busy; the next word says more than this one
            return
        except OSError as error:
            if not self._complained:
                self._complain("notify_failed", found=error.strerror or str(error))
            self._complained = True


def _status(text: str) -> str:
    line = " ".join(text.split())
    return f"STATUS={line[:_LONGEST_STATUS]}"
