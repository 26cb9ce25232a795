"""A worker from its first client to its proven end: starts, serves, fails, stops, is torn down."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from pp4.clock import Deadline
from pp4.errors import Code, Exit, Pp4Error, Refusal, RefusedError, TimedOutError, UncleanError
from pp4.wire import Request
from pp4.wire.frozen import ranks_event
from pp4.wire.serving import Serve
from pp4.worker.figures import Figures, tell_figures
from pp4.worker.front.limits import Limits
from pp4.worker.front.listening import Listener
from pp4.worker.front.server import Server
from pp4.worker.logs import EventLog
from pp4.worker.notify import Notifier
from pp4.worker.orders import Orders
from pp4.worker.permission import Loaded, Permission
from pp4.worker.serving.memory import Memory
from pp4.worker.serving.owner import PairDrafting
from pp4.worker.serving.setup import FEATURE_BYTES

_FIGURES_S = 60.0
_SIGNALS = {signal.SIGTERM: Exit.DONE, signal.SIGINT: Exit.INTERRUPTED}


class Life:
    """Everything between the fork of the ranks and the proof that they are gone.

    Args:
        serve: the settings.
        drafting: two ranks that were just forked.
        permission: what allows the switch, judged for the first time already.
        listeners: where clients come in.
        log: takes events.
        notifier: the way to the service manager.
        memory: what the GPUs had in use before the ranks.
        orders: of a HOLD's step, None for a worker on its own.
        first: the order that has started it; answered once clients are served.
    """

    def __init__(
        self,
        serve: Serve,
        drafting: PairDrafting,
        permission: Permission,
        listeners: Sequence[Listener],
        log: EventLog,
        notifier: Notifier,
        memory: Memory,
        orders: Orders | None,
        first: Request | None,
    ) -> None:
        self._serve, self._drafting, self._permission = serve, drafting, permission
        self._log, self._notifier, self._memory = log, notifier, memory
        self._server = Server(
            listeners,
            ranks=[end.pid for end in drafting.pair.ends],
            limits=Limits(largest_body=FEATURE_BYTES),
            log=lambda event, fields: log(event.replace(" ", "_"), **fields),
        )
        self._orders, self._first = orders, first
        self._answering: set[asyncio.Task[None]] = set()
        self._over, self._exit = asyncio.Event(), Exit.DONE
        self._burial: asyncio.Task[dict[str, Any]] | None = None

    async def run(self) -> Exit:
        """Live, until somebody ends it.

        Returns:
            How it ended: ``DONE``, or by which signal, or ``WRONG`` where the ranks failed.

        Raises:
            Pp4Error: it never came to serve; everything is torn down then.
            UncleanError: ``SURVIVOR``, a rank is not proven dead.
        """
        with self._signals(), ExitStack() as stack:
            self._server.start()
            try:
                await self._start(stack)
                return await self._until_the_end()
            finally:
                # what follows takes its time, and another signal must not cut it short
                await asyncio.shield(self._end())

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number, exit_code in _SIGNALS.items():
            loop.add_signal_handler(number, self._finish, exit_code, number.name)
        yield
        for number in _SIGNALS:
            loop.remove_signal_handler(number)

    def _finish(self, exit_code: Exit, why: str) -> None:
        if not self._over.is_set():
            self._log("ending", why=why)
            self._exit = exit_code
            self._over.set()

    # -- the start --------------------------------------------------------------------------

    async def _start(self, stack: ExitStack) -> None:
        """Come to serve, unless the end is asked for meanwhile."""
        if self._orders is not None:
            loop = asyncio.get_running_loop()
            loop.add_reader(self._orders, self._hear)
            # what came together with the first order makes nothing readable any more
            loop.call_soon(self._hear)
            if self._first is not None:
                # a HOLD has them in its books before they load anything
                pids = [end.pid for end in self._drafting.pair.ends]
                self._orders.tell(self._first, ranks_event(pids))
        start = asyncio.create_task(self._come_up(stack))
        awaited: list[asyncio.Task[Any]] = [start, asyncio.create_task(self._over.wait())]
        try:
            await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
            if start.done():
                facts = await start
                if self._orders is not None and self._first is not None:
                    self._orders.answer(self._first, facts)
        except Pp4Error as error:
            self._server.fail(error)
            raise
        finally:
            for task in awaited:
                task.cancel()
            await asyncio.gather(*awaited, return_exceptions=True)

    async def _come_up(self, stack: ExitStack) -> dict[str, object]:
        """Prime, judge what was loaded, record, serve; -> what a HOLD's step is told."""
        serve, drafting = self._serve, self._drafting
        try:
            async with asyncio.timeout(self._start_s):
                await drafting.prime()
                loaded = Loaded(drafting.kernels, await drafting.libraries(), drafting.bias)
                self._permission.after_priming(loaded)
                self._server.primed()
                self._notifier.status("primed")
                await drafting.serve()
        except TimeoutError as error:
            expected = f"a worker that serves within {self._start_s:g} s"
            refusal = Refusal(Code.STEP_TIMEOUT, "start", expected, self._server.state)
            raise TimedOutError(refusal) from error
        facts = await self._facts(loaded)
        if serve.metrics_port is not None:
            # imported where it is wanted: a worker without metrics needs no package for them
            from pp4.worker.metrics import metrics

            port = stack.enter_context(metrics(serve.metrics_port, self._figures, self._about()))
            self._log("metrics", port=port)
        # last, since a worker that refuses to start has served nobody
        self._server.serve(drafting)
        self._log("serving", switch=self._permission.words, **self._about())
        self._notifier.ready(f"serving; {self._permission.words}")
        return facts

    @property
    def _start_s(self) -> float:
        """Seconds that a start may take: it cannot outlast what allows it."""
        most, deadline = self._serve.limits.start_s, self._permission.deadline
        return most if deadline is None else min(most, deadline.remaining_s())

    async def _facts(self, loaded: Loaded) -> dict[str, object]:
        drafting = self._drafting
        return {
            "pids": [end.pid for end in drafting.pair.ends],
            "socket": self._serve.socket,
            "kernels": [one.model_dump(mode="json") for one in loaded.kernels],
            "bias": [one.model_dump(mode="json") for one in loaded.bias],
            "libraries": [one.model_dump(mode="json") for one in loaded.libraries],
            "shape": drafting.shape.model_dump(mode="json"),
            "versions": drafting.versions,
            "compilations": await drafting.compilations(),
        }

    def _about(self) -> dict[str, str]:
        offer = self._drafting.offer
        return {
            "device": offer.device,
            "devices": ", ".join(offer.devices),
            "definition": offer.definition,
            "sampled": str(offer.sampled).lower(),
        }

    def _figures(self) -> Figures:
        server, drafting = self._server, self._drafting
        counted = server.counters
        return Figures(
            state=server.state,
            counted=counted,
            open_requests=counted.opened - counted.closed,
            waiting=server.waiting,
            cache_hits=drafting.cache_hits,
            cache_misses=drafting.cache_misses,
            epochs_left=drafting.epochs_left,
        )

    # -- serving ----------------------------------------------------------------------------

    async def _until_the_end(self) -> Exit:
        """Serve until somebody ends it, the HOLD is over, or, where asked for, the ranks fail."""
        tasks = [
            asyncio.create_task(self._notifier.keep_alive(lambda: self._server.error is None)),
            asyncio.create_task(tell_figures(self._log, self._figures, _FIGURES_S)),
            asyncio.create_task(self._failing()),
        ]
        deadline = self._permission.deadline
        try:
            async with asyncio.timeout(None if deadline is None else deadline.remaining_s()):
                await self._over.wait()
        except TimeoutError:
            self._finish(Exit.DONE, "the HOLD is over")
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return Exit.WRONG if self._server.has_failed else self._exit

    async def _failing(self) -> None:
        """Once the ranks have failed, end what is left of them: nothing of theirs is used again."""
        error = await self._server.failed()
        self._notifier.status(f"failed: {error.refusal.code}")
        await self._bury()
        if self._serve.exit_when_failed:
            self._finish(Exit.WRONG, "the ranks have failed")

    # -- orders -----------------------------------------------------------------------------

    def _hear(self) -> None:
        """Take orders; their end is an order to end."""
        if self._orders is None:
            return
        try:
            orders, goes_on = self._orders.arrived()
        except RefusedError as error:
            self._log.fail("bad_order", **error.refusal.as_dict())
            orders, goes_on = [], False
        for order in orders:
            # kept until it is done, or nobody holds it
            task = asyncio.create_task(self._obey(self._orders, order))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)
        if not goes_on:
            asyncio.get_running_loop().remove_reader(self._orders)
            self._finish(Exit.DONE, "the input has ended")

    async def _obey(self, orders: Orders, order: Request) -> None:
        try:
            if order.verb == "settle":
                orders.answer(order, await self._settled())
            elif order.verb == "teardown":
                await self._server.stop(self._serve.limits.stop_s)
                orders.answer(order, await self._bury())
                self._finish(Exit.DONE, "an order")
            else:
                expected = "settle or teardown"
                refusal = Refusal(Code.BAD_FRAME, "standard input", expected, order.verb)
                orders.answer(order, refusal)
        except Pp4Error as error:
            orders.answer(order, error.refusal)

    async def _settled(self) -> dict[str, object]:
        counters: Mapping[str, int] = self._server.counters.as_dict()
        return {
            "compilations": await self._drafting.compilations(),
            "counters": {
                **counters,
                "cache_hits": self._drafting.cache_hits,
                "cache_misses": self._drafting.cache_misses,
            },
        }

    # -- the end ----------------------------------------------------------------------------

    async def _end(self) -> None:
        """Answer what waits, let go of clients, prove both ranks dead.

        Raises:
            UncleanError: ``SURVIVOR``.
        """
        self._notifier.stopping("stopping")
        await self._server.stop(self._serve.limits.stop_s)
        facts = await self._bury()
        if not all(facts["dead"]):
            ends = zip(facts["pids"], facts["dead"], strict=True)
            alive = [pid for pid, dead in ends if not dead]
            expected, found = "both ranks proven dead", f"processes {alive}"
            raise UncleanError(
                Refusal(Code.SURVIVOR, "teardown", expected, found, left=f"processes {alive}")
            )

    async def _bury(self) -> dict[str, Any]:
        """End the ranks, once, whoever asks for it; -> what is proven of it."""
        if self._burial is None:
            self._burial = asyncio.create_task(self._buried())
        # whoever gives up waiting must not leave it half done
        return await asyncio.shield(self._burial)

    async def _buried(self) -> dict[str, Any]:
        facts = await self._drafting.teardown()
        left = Deadline.after(self._drafting.clock, self._serve.limits.stop_s)
        # it waits for the driver, and clients of a failed worker are answered meanwhile
        memory = await asyncio.to_thread(self._memory.gone, left)
        self._log("torn_down", **facts, **memory)
        return facts
