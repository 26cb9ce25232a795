"""Calls that may never return, each on a thread of its own, so that our deadline always holds.

What a peer that died without a word does to a library call cannot be undone from outside.  So the
caller stops waiting, and the thread, a daemon, ends when its connection is closed.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from pp4.clock import Deadline

T = TypeVar("T")

# A deadline counts the time that a machine sleeps, a wait of the interpreter does not: so each
# wait is short and the deadline is asked again.
SLICE_S = 0.2


def bounded(
    call: Callable[[], T],
    deadline: Deadline,
    where: str,
    *,
    left: str = "nothing",
    late: Callable[[T], None] | None = None,
) -> T:
    """Run a call and wait for it until the deadline.

    Args:
        call: what may block.
        deadline: how long to wait.
        where: the step, for the refusal.
        left: what is unknown once the deadline has passed.
        late: takes the result that came when nobody waited for it any more.

    Raises:
        TimedOutError: ``STEP_TIMEOUT``, the call has not returned; it may still do so.
        Exception: whatever the call raised in time.
    """
    deadline.require(where, left="nothing: it was not tried")
    return _Attempt(call, where, late).result(deadline, where, left)


@contextlib.contextmanager
def exclusively(lock: threading.Lock, deadline: Deadline, where: str) -> Iterator[None]:
    """Hold a lock.

    Raises:
        TimedOutError: ``STEP_TIMEOUT``, another thread had it for too long.
    """
    while not lock.acquire(timeout=min(SLICE_S, deadline.remaining_s())):
        deadline.require(where, left="nothing: another thread was in the way")
    try:
        yield
    finally:
        lock.release()


class _Attempt(Generic[T]):
    """One call and what came of it."""

    def __init__(self, call: Callable[[], T], name: str, late: Callable[[T], None] | None) -> None:
        self._call, self._late = call, late
        self._changed = threading.Condition()
        self._results: list[T] = []
        self._error: Exception | None = None
        self._given_up = False
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def _run(self) -> None:
        try:
            result = self._call()
        # whatever it is, it belongs to the thread that waits
        except Exception as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()
            return
        with self._changed:
            self._results.append(result)
            self._changed.notify_all()
            given_up = self._given_up
        if given_up and self._late is not None:
            self._late(result)

    def result(self, deadline: Deadline, where: str, left: str) -> T:
        """Wait; see :func:`bounded`."""
        with self._changed:
            try:
                while not self._results and self._error is None:
                    deadline.require(where, left=left)
                    self._changed.wait(min(SLICE_S, deadline.remaining_s()))
            finally:
                self._given_up = not self._results
            if self._error is not None:
                raise self._error
            return self._results[0]
