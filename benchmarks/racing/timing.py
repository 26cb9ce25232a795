"""Times of replays: events without a host between them, and what is told of them."""

import gc
import itertools
import math
import statistics
import time

import torch

from benchmarks.racing.field import DEPTH

GROUP = 20
_AHEAD_CYCLES = 40_000_000
"""About 20 ms in which clocks rise and the host fills the queue."""


class DeviceClock:
    """Events on the current stream."""

    warm_up = 200

    def mark(self):
        """A mark that is made when the GPU gets there."""
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def ahead(self):
        """Keep the GPU busy for a moment."""
        torch.cuda._sleep(_AHEAD_CYCLES)

    def settle(self):
        """Wait for everything."""
        torch.cuda.synchronize()

    def between(self, first, last):
        """Microseconds between two marks."""
        return first.elapsed_time(last) * 1e3


class HostClock:
    """The host's clock, where replays are over when they return: on a CPU, to try the way."""

    warm_up = 2

    def mark(self):
        """Seconds."""
        return time.perf_counter()

    def ahead(self):
        """There is no queue."""

    def settle(self):
        """Everything is over."""

    def between(self, first, last):
        """Microseconds between two marks."""
        return (last - first) * 1e6


def blocks_us(replays, graphs, clock, per_mark):
    """Microseconds of one block, for each mark.

    Args:
        replays: blocks to time, rounded up to whole marks.
        graphs: callables, taken in turn.
        clock: :class:`DeviceClock`, or what stands in for it.
        per_mark: blocks between two marks.
    """
    gc.collect()
    gc.disable()
    try:
        clock.ahead()
        for turn in range(max(clock.warm_up, len(graphs))):
            graphs[turn % len(graphs)]()
        marks = [clock.mark()]
        for turn in range(-(-replays // per_mark) * per_mark):
            graphs[turn % len(graphs)]()
            if (turn + 1) % per_mark == 0:
                marks.append(clock.mark())
        clock.settle()
    finally:
        gc.enable()
    return [clock.between(first, last) / per_mark for first, last in itertools.pairwise(marks)]


def quantile(ordered, share):
    """The smallest number that at least this share of them does not exceed."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def told(found, each=DEPTH):
    """Microseconds per position out of those of blocks: median, p99, p99.9 and how many.

    ``each``: how many of what is told one block holds.
    """
    ordered = sorted(one / each for one in found)
    return {
        "median_us": round(statistics.median(ordered), 3),
        "p99_us": round(quantile(ordered, 0.99), 3),
        "p999_us": round(quantile(ordered, 0.999), 3),
        "count": len(ordered),
    }


def measured(replays, graphs, clock, chains=1):
    """Both ways to look: around single replays and around GROUP of them.

    ``chains``: how many chains of DEPTH positions one graph holds.
    """
    return {
        "single": told(blocks_us(replays, graphs, clock, 1), DEPTH * chains),
        "group": told(blocks_us(replays, graphs, clock, GROUP), DEPTH * chains),
    }


def copy_rate(device, clock, size=1 << 30, times=20):
    """Bytes per second that a copy on the device reads and writes, the median of some."""
    source = torch.empty(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    target.copy_(source)
    found = []
    for _ in range(times):
        first = clock.mark()
        target.copy_(source)
        last = clock.mark()
        clock.settle()
        found.append(clock.between(first, last))
    return 2 * size / (statistics.median(found) * 1e-6)
