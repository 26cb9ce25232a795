"""The worker as a program: ``python -m pp4.worker.serve SETTINGS``, see :mod:`pp4.wire.serving`.

Its log goes to standard error.  Under a HOLD's grant its standard streams carry frames, see
:mod:`pp4.worker.orders`.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from pp4.config import sampled_switch, service
from pp4.drafter.checkpoint.survey import survey
from pp4.drafter.config import DrafterConfig
from pp4.errors import Exit, Pp4Error
from pp4.wire import Request
from pp4.wire.holds import Granted
from pp4.wire.serving import ByGrant, Serve, read_settings
from pp4.worker import directories
from pp4.worker.compiling import Homes
from pp4.worker.device import Seats
from pp4.worker.front.listening import Listener, listen_tcp, listen_unix
from pp4.worker.life import Life
from pp4.worker.logs import EventLog, start_logging
from pp4.worker.notify import Notifier
from pp4.worker.orders import Orders
from pp4.worker.permission import Permission, look_here
from pp4.worker.serving.memory import Memory
from pp4.worker.serving.owner import PairDrafting
from pp4.worker.serving.setup import Setup, check


def setup_of(serve: Serve, *, sampled: bool, granted: Granted | None) -> Setup:
    """What the ranks of a worker are started with.

    Args:
        serve: the settings.
        sampled: whether the switch is on.
        granted: of the HOLD that it runs in; epochs start from its nonce and fence.
    """
    nonce = secrets.token_hex(16) if granted is None else granted.nonce
    return Setup(
        checkpoint=Path(serve.checkpoint),
        target=None if serve.target is None else Path(serve.target),
        batches=serve.batches,
        depths=serve.depths,
        slots=serve.slots,
        context=serve.context,
        cache_mib=serve.cache_mib,
        sampled=sampled,
        waits=serve.waits,
        nonce=nonce,
        fence=1 if granted is None else granted.fence,
        block_s=serve.limits.block_s,
    )


@contextlib.contextmanager
def _forked(
    homes: Homes, seats: Seats, setup: Setup, config: DrafterConfig
) -> Iterator[PairDrafting]:
    """Two ranks, of which none is left whatever happens."""
    drafting = PairDrafting(homes, seats, setup, config)
    try:
        yield drafting
    finally:
        drafting.pair.bury()


@contextlib.contextmanager
def _listening(serve: Serve) -> Iterator[list[Listener]]:
    listeners = [listen_unix(Path(serve.socket))]
    try:
        if serve.tcp is not None:
            listeners.append(listen_tcp(serve.tcp.host, serve.tcp.port))
        yield listeners
    finally:
        for listener in listeners:
            listener.close()


def run(serve: Serve, log: EventLog) -> Exit:
    """Serve in the foreground.

    Args:
        serve: the settings.
        log: takes events.

    Returns:
        How it ended.

    Raises:
        Pp4Error: it could not start, or something of it may still run.
    """
    sampled = sampled_switch()
    orders, first, granted = None, None, None
    if isinstance(serve.permission, ByGrant):
        orders = Orders.take_over()
        first, granted = orders.first(serve.limits.hand_over_s)
    try:
        permission = Permission(serve, sampled=sampled, granted=granted)
        permission.before_start(look_here(serve, sampled=sampled))
        setup = setup_of(serve, sampled=sampled, granted=granted)
        return _live(serve, setup, permission, log, orders, first)
    except Pp4Error as error:
        if orders is not None and first is not None:
            orders.answer(first, error.refusal)
        raise


def _live(
    serve: Serve,
    setup: Setup,
    permission: Permission,
    log: EventLog,
    orders: Orders | None,
    first: Request | None,
) -> Exit:
    """Fork the ranks and serve with them."""
    config = survey(setup.checkpoint, setup.target).config
    check(setup, config)
    directories.prepare(serve)
    directories.prepare_socket(serve)
    seats = Seats(serve.gpus, solo=serve.solo, reference=serve.device == "reference")
    memory = Memory(serve.gpus)
    if serve.gpus:
        # once here, and not in every rank that is forked
        from pp4.worker import cuda

        cuda.preload()
    with ExitStack() as stack:
        home = stack.enter_context(directories.of_this_run(Path(serve.state)))
        homes = Homes(home, Path(serve.compiled))
        # before anything listens, or the ranks would keep it open and nobody would take it up
        drafting = stack.enter_context(_forked(homes, seats, setup, config))
        listeners = stack.enter_context(_listening(serve))
        notifier = Notifier(service(), log.warn)
        life = Life(serve, drafting, permission, listeners, log, notifier, memory, orders, first)
        return asyncio.run(life.run())


def main(arguments: Sequence[str]) -> int:
    """Serve; -> exit code."""
    log = start_logging("text")
    try:
        settings = arguments[0].encode() if arguments else b""
        serve = read_settings(settings)
        log = start_logging(serve.log, blocks=serve.log_blocks)
        return int(run(serve, log))
    except Pp4Error as error:
        log.fail("refused", **error.refusal.as_dict())
        return int(error.exit)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
