"""The lease of a HOLD: it lasts from one heartbeat to the next, and never past the deadline."""

from __future__ import annotations

from pp4.clock import NS_PER_S, Clock


class Lease:
    """Measured by whoever grants it, on its own boot-time clock, from the receipt of a heartbeat.

    Args:
        clock: where time comes from.
        ttl_s: seconds without a heartbeat after which it is over.
    """

    def __init__(self, clock: Clock, ttl_s: float) -> None:
        self._clock = clock
        self.ttl_ns = round(ttl_s * NS_PER_S)
        self._renewed_ns = clock.boottime_ns()
        self._over = False

    def renew(self) -> bool:
        """Begin anew; -> whether it could: a lease that ran out stays over."""
        if self.expired():
            return False
        self._renewed_ns = self._clock.boottime_ns()
        return True

    def remaining_ns(self) -> int:
        """Nanoseconds left, never below zero."""
        return max(0, self.ttl_ns - (self._clock.boottime_ns() - self._renewed_ns))

    def expired(self) -> bool:
        """Whether it is over; once over, for good."""
        self._over = self._over or not self.remaining_ns()
        return self._over


class Contact:
    """The coordinator's side: it stops itself before the host can have given its HOLD away.

    What counts is when the last heartbeat that was answered was *sent*, and half of the lease: so
    that a clock that runs at half the speed of the host's does no harm.

    Args:
        clock: where time comes from.
        ttl_s: seconds of the lease.
    """

    def __init__(self, clock: Clock, ttl_s: float) -> None:
        self._clock = clock
        self._limit_ns = round(ttl_s * NS_PER_S) // 2
        self._sent_ns = clock.boottime_ns()

    def answered(self, sent_ns: int) -> None:
        """A heartbeat that was sent at this boot time has been answered."""
        self._sent_ns = max(self._sent_ns, sent_ns)

    def remaining_ns(self) -> int:
        """Nanoseconds for which work may still be asked for, never below zero."""
        return max(0, self._limit_ns - (self._clock.boottime_ns() - self._sent_ns))

    def lost(self) -> bool:
        """Whether nothing more may be asked for."""
        return not self.remaining_ns()
