"""A hop: a step on a further host, in a child of this HOLD that the same supervisor serves there.

``python -m pp4.hold.hop`` is the near step, which only a supervisor starts.  It connects, stages
this source, has a child opened and keeps it alive, brings files, runs the far step and closes the
child.  The end of its input, or TERM, makes it close the child at once.

``python -m pp4.hold.hop close DIRECTORY HOP LIMIT_S`` goes to the far host of a hop whose near step
is dead, and writes down what proves it over.  It ends with its input, and with its limit.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pp4.clock import NS_PER_S, Clock, Deadline, SystemClock
from pp4.config.holds import ReceivingHost
from pp4.errors import Code, Exit, Pp4Error, Refusal, RefusedError, TimedOutError
from pp4.hold.hop_books import Ended, HopBook, read_hop
from pp4.hold.hop_ends import MODULE
from pp4.hold.hop_files import bring, checked
from pp4.hold.hop_proof import prove
from pp4.hold.inner import Supervisor
from pp4.hold.program import run_step
from pp4.hold.reach import Place, reached_host
from pp4.hold.window import Window, open_window
from pp4.wire.facts import read
from pp4.wire.holds import Granted, Open, Run
from pp4.wire.hops import Hopped, Order

_SHARE = 0.95
"""Of the near time that is left: the rest is for the end of the near step itself."""
_LEAST_S = 1.0
_PAUSE_S = 0.5
_NO_PROOF = {Code.UNWRITABLE, Code.BAD_FRAME, Code.HOST_KEY, Code.EXISTS}
"""Refusals after which there may be a child all the same: one that could not write had begun."""
_HOPELESS = {Code.HOST_KEY, Code.AUTHENTICATION, Code.USAGE}


class Passing:
    """Passes on what the far step tells; see :class:`pp4.hold.window.Watcher`.

    Args:
        supervisor: the near one.
    """

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    def told(self, item: dict[str, Any]) -> None:
        """Pass one item on."""
        self._supervisor.tell(item)

    def alive(self, lease_s: float, deadline_s: float, last_line: str) -> None:
        """Nothing: the near HOLD has a lease of its own."""


class _Stopped(BaseException):
    """The near step has to end: the child is closed on the way out."""


def _stop(*_: object) -> None:
    # a second one must not cut the way out in two
    signal.signal(signal.SIGTERM, lambda *_: None)
    raise _Stopped


def at_end_of(descriptor: int, act: Callable[[], object]) -> None:
    """Act once nobody can write to a pipe any more, whatever of it is unread."""
    poll = select.poll()
    # no event is asked for: the end comes unasked
    poll.register(descriptor, 0)

    def wait() -> None:
        # for as long as this process lives, which whoever started it bounds
        poll.poll()
        act()

    threading.Thread(target=wait, name="end of input", daemon=True).start()


def child_of(recorded: Open, granted: Granted, order: Order, clock: Clock) -> Open:
    """What the far host is asked for now: the far step ends before the near one has to.

    Raises:
        TimedOutError: ``DEADLINE``, nothing is left to give.
    """
    left_s = _SHARE * (granted.deadline_boottime_ns - clock.boottime_ns()) / NS_PER_S
    if left_s < _LEAST_S:
        expected, found = f"at least {_LEAST_S:g} s for the far end", f"{max(0.0, left_s):g} s"
        raise TimedOutError(Refusal(Code.DEADLINE, order.recorded.label, expected, found))
    changes = {
        "evidence": order.evidence,
        "bound_s": left_s,
        "ttl_s": min(granted.ttl_s, left_s),
    }
    return recorded.model_copy(update=changes)


def far_host(book: HopBook) -> ReceivingHost:
    """The further host as the way to a host has it."""
    login = book.recorded.login
    return ReceivingHost(
        transport="ssh",
        address=login.address,
        port=login.port,
        user=login.user,
        identity_file=Path(login.identity_file),
        host_key=login.host_key,
        agent=False,
        jump=None,
        python=login.python,
        state_dir=login.state_dir,
        host_dir=login.host_dir,
        gpus=(),
    )


@contextlib.contextmanager
def _child(place: Place, book: HopBook, asked: Open, passing: Passing) -> Iterator[Window]:
    """An open child; every step of its life is in the books before it is needed."""
    window: Window | None = None
    book.say_asked()
    try:
        opened = open_window(place.host, place.program, asked, SystemClock(), passing)
        with opened as window:
            book.say_granted(window.granted)
            yield window
    except RefusedError as error:
        if window is None and error.refusal.code not in _NO_PROOF:
            book.say_ended(Ended(how="refused"))
        raise
    finally:
        if window is not None and window.tombstone is not None:
            boot = window.granted.boot_id
            ended = Ended(how="tombstone", boot_id=boot, tombstone=window.tombstone)
            book.say_ended(ended)


def run(granted: Granted, order: Order, supervisor: Supervisor) -> Hopped:
    """Run one far step from its connection to the tombstone of its child.

    Raises:
        Pp4Error: what kept it from being run, or from being proven over.
    """
    label = order.recorded.label
    book = read_hop(Path(granted.directory), order.recorded.hop)
    if book is None or book.recorded != order.recorded:
        expected, found = "a hop that stands in the books of its HOLD", "another one, or none"
        raise RefusedError(Refusal(Code.BAD_FRAME, label, expected, found))
    for file in order.files:
        # before anything is contacted; they are read once more when they are sent
        checked(file)
    with reached_host(far_host(book)) as place:
        asked = child_of(order.recorded.asked, granted, order, SystemClock())
        with _child(place, book, asked, Passing(supervisor)) as window:
            for file in order.files:
                bring(window, place, file)
            step = order.step
            facts = window.run(step.label, step.module, step.arguments)
        return Hopped(
            facts=facts,
            hold=window.granted.hold,
            boot_id=window.granted.boot_id,
            host_key=place.host.fingerprint or "",
            tombstone=window.tombstone or {},
        )


def _work(told: Run, supervisor: Supervisor) -> dict[str, Any]:
    hopped = run(told.granted, read(Order, told.arguments), supervisor)
    return hopped.model_dump(mode="json")


def _step() -> int:
    """Be the step that a supervisor has started; -> exit code."""
    signal.signal(signal.SIGTERM, _stop)
    main_thread = threading.main_thread().ident or 0
    at_end_of(os.dup(0), lambda: signal.pthread_kill(main_thread, signal.SIGTERM))
    try:
        return int(run_step(MODULE, _work))
    except _Stopped:
        return int(Exit.TERMINATED)


def _close(directory: str, hop: str, limit_s: str) -> int:
    """Prove one hop over and write it down; -> exit code."""
    # nothing is begun here that would have to be taken back
    at_end_of(0, lambda: os._exit(int(Exit.TERMINATED)))
    deadline = Deadline.after(SystemClock(), float(limit_s))
    while True:
        try:
            book = read_hop(Path(directory), int(hop))
            if book is None or not book.unproven:
                return int(Exit.DONE)
            with reached_host(far_host(book)) as place:
                book.say_ended(prove(book, place, deadline))
        except Pp4Error as error:
            sys.stderr.write(f"hop {hop}: {error}\n")
            if deadline.expired() or error.refusal.code in _HOPELESS:
                return int(Exit.UNCLEAN)
        time.sleep(_PAUSE_S)


def main(arguments: Sequence[str]) -> int:
    """Be the near step, or prove a hop over; -> exit code."""
    if not arguments:
        return _step()
    if len(arguments) == 4 and arguments[0] == "close":
        return _close(*arguments[1:])
    return int(Exit.USAGE)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
