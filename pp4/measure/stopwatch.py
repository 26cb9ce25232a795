"""Takes the time of the parts of arms; the worst of each is what a budget is made of."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pp4.clock import Clock
from pp4.measure.budgeting import REST
from pp4.wire.measuring import Sampled


class Stopwatch:
    """One for all arms; parts of an arm do not overlap.

    Args:
        clock: whose boot time is taken: a window's bound counts the time that a host sleeps.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._found: dict[str, list[int]] = {}
        self._inside = 0

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """One part; what is cut short by an error is no sample."""
        began = self._clock.boottime_ns()
        yield
        elapsed = self._clock.boottime_ns() - began
        self._inside += elapsed
        self._add(name, elapsed)

    @contextmanager
    def arm(self) -> Iterator[None]:
        """A whole arm; what none of its parts took is a part as well."""
        began, self._inside = self._clock.boottime_ns(), 0
        yield
        self._add(REST, self._clock.boottime_ns() - began - self._inside)

    def _add(self, name: str, elapsed_ns: int) -> None:
        # a clock of coarse ticks may see nothing pass, and no part takes no time
        self._found.setdefault(name, []).append(max(1, elapsed_ns))

    def samples(self) -> tuple[Sampled, ...]:
        """The worst of each part, in the order in which they first came."""
        return tuple(
            Sampled(name=name, worst_ns=max(found), samples=len(found))
            for name, found in self._found.items()
        )
