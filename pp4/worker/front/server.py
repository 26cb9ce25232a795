"""A worker's front: listens, lets clients in, and stops."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import Sequence

from pp4.clock import Clock, SystemClock
from pp4.errors import Code, Pp4Error, Refusal, RefusedError
from pp4.wire.drafts import State
from pp4.worker.drafting import Drafting
from pp4.worker.front.connection import Connection, turn_away
from pp4.worker.front.counters import Counters
from pp4.worker.front.limits import Limits, Log
from pp4.worker.front.listening import Listener, require_same_user
from pp4.worker.front.service import Service

_PAUSE_S = 0.1


def _silent(_event: str, _fields: object) -> None:
    """Log nothing."""


class Server:
    """Serves clients with the ranks that it is given, from before they are up to after their end.

    Args:
        listeners: closed at the end.
        ranks: process ids, for STATUS.
        limits: of what clients may take up.
        clock: of waits and states.
        log: takes the name of an event and its fields.
    """

    def __init__(
        self,
        listeners: Sequence[Listener],
        *,
        ranks: Sequence[int] = (),
        limits: Limits | None = None,
        clock: Clock | None = None,
        log: Log = _silent,
    ) -> None:
        self._listeners, self._log = tuple(listeners), log
        self._limits = limits or Limits()
        self._service = Service(clock or SystemClock(), log, ranks)
        self._service.gauges = self._gauges
        self._numbers = itertools.count(1)
        self._clients: dict[Connection, asyncio.Task[None]] = {}
        self._works: list[asyncio.Task[None]] = []
        self._accepting = False
        # whether the last client could not be taken in, which was logged then
        self._short = False

    @property
    def state(self) -> State:
        """Where it stands."""
        return self._service.state

    @property
    def counters(self) -> Counters:
        """What it has counted."""
        return self._service.counters

    @property
    def waiting(self) -> int:
        """Drafts that wait for a batch."""
        return self._service.waiting

    @property
    def error(self) -> Pp4Error | None:
        """What it answers with since it is over."""
        return self._service.error

    @property
    def has_failed(self) -> bool:
        """Whether the ranks have failed; one that was told to stop is over and has not."""
        return self._service.has_failed

    def start(self) -> None:
        """Let clients in; until the ranks serve they are told so. To be called in the loop."""
        self._accepting = True
        for listener in self._listeners:
            self._listen(listener)

    def primed(self) -> None:
        """The ranks are compiled and loaded."""
        self._service.enter("primed")

    def serve(self, drafting: Drafting) -> None:
        """Serve with these ranks until they fail or :meth:`stop` is called."""
        self._service.begin(drafting)
        if self._service.error is None:
            self._works += [
                asyncio.create_task(self._service.watch()),
                asyncio.create_task(self._service.draft()),
                asyncio.create_task(self._service.append()),
            ]

    def fail(self, error: Pp4Error) -> None:
        """What is started next will not come, or is over: answer everything with this."""
        self._service.fail(error)

    async def failed(self) -> Pp4Error:
        """Wait until the ranks have failed; -> their error."""
        return await self._service.failure()

    async def stop(self, limit_s: float) -> None:
        """Let nobody in, answer what waits, close everything.

        Args:
            limit_s: seconds for the block that is with the ranks; as many again for clients to
                read what they were answered.
        """
        self._accepting = False
        for listener in self._listeners:
            asyncio.get_running_loop().remove_reader(listener.socket)
            listener.close()
        self._listeners = ()
        await self._service.stop(limit_s)
        await asyncio.gather(*(client.end(limit_s) for client in self._clients))
        if clients := list(self._clients.values()):
            # they end by themselves, unless the ranks hold on to a call that was given up
            await asyncio.wait(clients, timeout=limit_s)
        tasks = [*self._clients.values(), *self._works]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=limit_s)

    # -- clients ----------------------------------------------------------------------------

    def _gauges(self) -> dict[str, int]:
        return {
            "connected": len(self._clients),
            "open": sum(client.open for client in self._clients),
        }

    def _listen(self, listener: Listener) -> None:
        if self._accepting:
            asyncio.get_running_loop().add_reader(listener.socket, self._accept, listener)

    def _accept(self, listener: Listener) -> None:
        try:
            connected, _ = listener.socket.accept()
        except BlockingIOError:
            return
        except OSError as error:
            # out of descriptors, most likely: asked again at once, it would say so again
            if not self._short:
                self._log("accept failed", {"error": str(error)})
            self._short = True
            loop = asyncio.get_running_loop()
            loop.remove_reader(listener.socket)
            loop.call_later(_PAUSE_S, self._listen, listener)
            return
        self._short = False
        try:
            self._admit(connected)
        except RefusedError as error:
            self._service.tell_refusal("turned away", error.refusal.as_dict())
            turn_away(connected, error)
        except OSError as error:
            # it was gone before it was looked at
            self._log("turned away", {"error": str(error)})
            connected.close()

    def _admit(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        require_same_user(connected)
        if len(self._clients) >= self._limits.connections:
            expected = f"at most {self._limits.connections} connections"
            raise RefusedError(Refusal(Code.WORKER_FULL, "worker", expected, "one more"))
        if connected.family != socket.AF_UNIX:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client = Connection(connected, self._service, self._limits, self._numbers)
        self.counters.connections += 1
        self._log("connected", {"clients": len(self._clients) + 1})
        task = asyncio.create_task(client.run())
        self._clients[client] = task
        task.add_done_callback(lambda _: self._clients.pop(client))
