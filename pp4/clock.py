"""Time as a value that is handed in, so that a test can own it.

Deadlines count boot time, which goes on while a machine sleeps: a laptop that was closed for an
hour must not believe that its HOLD still has an hour left.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

from pp4.errors import Code, Refusal, TimedOutError, UsageError

NS_PER_S = 1_000_000_000

# macOS has no CLOCK_BOOTTIME; its CLOCK_MONOTONIC is the one that counts sleep.
_BOOT_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_SHOWN = 40
_SPAN = re.compile(r"(?P<count>[0-9]{1,9})(?P<unit>[smhdw]?)", re.ASCII)
_UNIT_S = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


class Clock(Protocol):
    """Where time comes from."""

    def monotonic_ns(self) -> int:
        """Nanoseconds since an unspecified start; stands still while the machine sleeps."""

    def boottime_ns(self) -> int:
        """Nanoseconds since boot, sleep included."""

    def wall(self) -> datetime:
        """The time of day in UTC; for people and receipts, never for a decision."""


class SystemClock:
    """The clocks of this machine."""

    def monotonic_ns(self) -> int:
        """Nanoseconds of ``time.monotonic_ns``."""
        return time.monotonic_ns()

    def boottime_ns(self) -> int:
        """Nanoseconds of the boot-time clock."""
        return time.clock_gettime_ns(_BOOT_CLOCK)

    def wall(self) -> datetime:
        """Now, in UTC."""
        return datetime.now(UTC)


class ManualClock:
    """A clock that moves only when it is told to.

    Args:
        start: the time of day at which it begins, with a time zone.
    """

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._monotonic_ns = 0
        self._boottime_ns = 0
        self._wall = start.astimezone(UTC)

    def monotonic_ns(self) -> int:
        """Nanoseconds advanced so far, without the suspended ones."""
        return self._monotonic_ns

    def boottime_ns(self) -> int:
        """Nanoseconds advanced and suspended so far."""
        return self._boottime_ns

    def wall(self) -> datetime:
        """The start plus everything that passed."""
        return self._wall

    def advance(self, seconds: float) -> None:
        """Let awake time pass.

        Args:
            seconds: not negative.

        Raises:
            ValueError: for a negative span; time does not run backwards.
        """
        self._monotonic_ns += self._pass(seconds)

    def suspend(self, seconds: float) -> None:
        """Let the machine sleep: boot time and the time of day pass, monotonic time does not.

        Args:
            seconds: not negative.

        Raises:
            ValueError: for a negative span.
        """
        self._pass(seconds)

    def _pass(self, seconds: float) -> int:
        if not seconds >= 0:
            raise ValueError(f"a clock moves forward only, not by {seconds} s")
        span_ns = round(seconds * NS_PER_S)
        self._boottime_ns += span_ns
        self._wall += timedelta(microseconds=span_ns / 1000)
        return span_ns


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment of boot time after which waiting is over.

    Attributes:
        clock: the clock that decides.
        start_ns: boot time at which the deadline was set.
        limit_ns: how long it lasts.
    """

    clock: Clock
    start_ns: int
    limit_ns: int

    @classmethod
    def after(cls, clock: Clock, seconds: float) -> Deadline:
        """Return a deadline ``seconds`` from now.

        Raises:
            ValueError: for a span that is negative or not a number.
        """
        if not 0 <= seconds < float("inf"):
            raise ValueError(f"a deadline lies ahead by a finite span, not by {seconds} s")
        return cls(clock, clock.boottime_ns(), round(seconds * NS_PER_S))

    def elapsed_ns(self) -> int:
        """Nanoseconds since it was set."""
        return self.clock.boottime_ns() - self.start_ns

    def remaining_ns(self) -> int:
        """Nanoseconds left, never below zero, so that it fits every ``timeout=``."""
        return max(0, self.limit_ns - self.elapsed_ns())

    def remaining_s(self) -> float:
        """Seconds left, never below zero."""
        return self.remaining_ns() / NS_PER_S

    def expired(self) -> bool:
        """Whether nothing is left."""
        return self.remaining_ns() == 0

    def within(self, seconds: float) -> Deadline:
        """Return a nested deadline: ``seconds`` from now, never later than this one."""
        inner = Deadline.after(self.clock, seconds)
        return Deadline(self.clock, inner.start_ns, min(inner.limit_ns, self.remaining_ns()))

    def require(self, where: str, *, left: str = "nothing") -> None:
        """Go on only while time is left.

        Args:
            where: the step that is waiting.
            left: what is still running if the answer is no.

        Raises:
            TimedOutError: ``STEP_TIMEOUT`` with the limit and the time that passed.
        """
        if self.expired():
            raise TimedOutError(
                Refusal(
                    code=Code.STEP_TIMEOUT,
                    where=where,
                    expected=f"an end within {self.limit_ns / NS_PER_S:g} s",
                    found=f"none after {self.elapsed_ns() / NS_PER_S:g} s",
                    left=left,
                )
            )


def parse_span(text: str, where: str) -> timedelta:
    """Read a span such as ``90d``, ``12h``, ``30m`` or ``45`` (seconds).

    Args:
        text: a whole number with an optional unit out of s, m, h, d, w.
        where: the option or key that it stands in, for the refusal.

    Raises:
        UsageError: ``USAGE`` for anything else.
    """
    match = _SPAN.fullmatch(text)
    if match is None:
        raise _bad_span(text, where, "a whole number with a unit out of s, m, h, d, w (90d)")
    try:
        return timedelta(seconds=int(match["count"]) * _UNIT_S[match["unit"]])
    except OverflowError:
        raise _bad_span(text, where, f"at most {timedelta.max.days}d") from None


def _bad_span(text: str, where: str, expected: str) -> UsageError:
    found = repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")
    return UsageError(Refusal(code=Code.USAGE, where=where, expected=expected, found=found))
