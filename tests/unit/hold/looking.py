"""A host that is looked at: what its upkeep sees there, and what it refuses."""

import os
import signal
from datetime import UTC, datetime, timedelta

import pytest

from pp4.clock import ManualClock
from pp4.errors import Pp4Error
from pp4.hold.upkeep import clear, overview
from tests.unit.hold.holds import GPUS, forked

A, B = GPUS
NOW = datetime(2026, 3, 1, tzinfo=UTC)
DAY = timedelta(days=1)
BROKEN = {
    "no JSON": b"{",
    "empty": b"",
    "a list": b"[]",
    "another member": b'{"hold":1}',
    "too deep": b"[" * 200_000,
    "not UTF-8": b"\xff",
    "a number": b"5\n",
}


def clock():
    return ManualClock(NOW)


def seen(exclusion, at=None):
    """The overview of an exclusion whose state directory is its own."""
    return overview(exclusion, exclusion.directory, at or clock())


def one_hold(exclusion):
    (found,) = seen(exclusion).holds
    return found


def gpu_of(exclusion, gpu=A):
    (found,) = [one for one in seen(exclusion).gpus if one.gpu == gpu]
    return found


def refused(action, *given, kind=Pp4Error):
    with pytest.raises(kind) as caught:
        action(*given)
    return caught.value.refusal


def end(exclusion, gpu=A, operator="Ada", why="rebooted the card"):
    return clear(exclusion, gpu, operator, why, clock())


def killed_at(action, point, calls):
    """Run an action in a process that is killed before its n-th call; -> whether it got there."""

    def child():
        count = 0

        def counted(real):
            def call(*given, **more):
                nonlocal count
                count += 1
                if count == point:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*given, **more)

            return call

        for name in calls:
            setattr(os, name, counted(getattr(os, name)))
        action()

    return forked(child) == -signal.SIGKILL
