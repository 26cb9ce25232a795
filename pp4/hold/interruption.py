"""Short steps that a signal may not cut in two: a process that runs and is in nobody's books."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Keep signals that ask for an end until the block is done, then let them through.

    Only for steps that end by themselves, within moments or a limit of their own.  Signals are kept
    by their Python handlers and not by the mask of the process, which a child would inherit.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kept: list[int] = []

    def keep(number: int, _: FrameType | None) -> None:
        kept.append(number)

    # a signal that is ignored, or whose handler Python does not know, stays as it is
    taken = [number for number in _ENDING if callable(signal.getsignal(number))]
    before = [(number, signal.signal(number, keep)) for number in taken]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)
        for one in kept:
            signal.raise_signal(one)


def ended(end: Callable[[], None], *, again: bool) -> None:
    """Run an end that a signal may cut short.

    Args:
        end: may be run twice.
        again: whether a signal that comes meanwhile is the first one: it is obeyed afterwards.
            Whoever asks a second time wants an end at once.
    """
    try:
        end()
    except Exception:
        raise
    except BaseException:
        if again:
            ended(end, again=False)
        raise
