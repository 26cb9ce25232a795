"""What a worker counts, for Prometheus: over HTTP, on the loopback interface alone.

Nothing here is counted twice: a scrape reads what the server keeps anyway.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Final

from prometheus_client import start_http_server
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector, CollectorRegistry

from pp4.errors import Code, Refusal, RefusedError
from pp4.worker.figures import STATES, Counted, Figures

__all__ = ["ADDRESS", "Figures", "WorkerCollector", "metrics"]

ADDRESS: Final = "127.0.0.1"
_END_S: Final = 5.0
_SHORTEST, _LONGEST = 10, 35
"""Powers of two: 1 us to 34 s."""

_COUNTERS: Final = (
    ("blocks", "Batches that were launched."),
    ("rows", "Rows of requests in these batches."),
    ("padded_rows", "Rows without a request in these batches."),
    ("positions", "Drafted positions that left."),
    ("replies", "Drafts that left."),
    ("appends", "Calls in which features went to the ranks."),
    ("append_parts", "Questions in these calls, each with features of one request."),
    ("appended", "Tokens whose features were taken."),
    ("aborted", "Drafts that were given up by whoever had asked."),
    ("connections", "Connections that were let in."),
    ("disconnects", "Connections that have ended."),
    ("received_bytes", "Bytes from clients."),
    ("sent_bytes", "Bytes to clients."),
)


class WorkerCollector(Collector):
    """Turns figures into metrics whenever somebody asks.

    Args:
        figures: takes them, from any thread.
        about: what does not change: device, definition and the like.
    """

    def __init__(self, figures: Callable[[], Figures], about: Mapping[str, str]) -> None:
        self._figures, self._about = figures, dict(about)

    def describe(self) -> Iterable[Metric]:
        """Return nothing: names are fixed, and nothing is asked while registering."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield every metric."""
        now = self._figures()
        yield InfoMetricFamily("pp4_worker", "What the worker is.", self._about)
        state = GaugeMetricFamily("pp4_worker_state", "1 for the state it is in.", labels=["state"])
        for name in STATES:
            state.add_metric([name.replace(" ", "_")], float(name == now.state))
        yield state
        for name, text in _COUNTERS:
            yield CounterMetricFamily(f"pp4_worker_{name}", text, getattr(now.counted, name))
        refused = CounterMetricFamily("pp4_worker_refusals", "Refusals by code.", labels=["code"])
        # copied in one step: the server goes on counting in its own thread
        for code, count in sorted(dict(now.counted.refusals).items()):
            refused.add_metric([code], count)
        yield refused
        yield _waits(now.counted)
        yield from _gauges(now)


def _gauges(now: Figures) -> Iterator[Metric]:
    for name, text, found in (
        ("open_requests", "Requests that are open.", now.open_requests),
        ("waiting", "Drafts that wait for a batch.", now.waiting),
    ):
        yield GaugeMetricFamily(f"pp4_worker_{name}", text, found)
    looked_up = CounterMetricFamily(
        "pp4_worker_cache_lookups",
        "Positions by whether the bias row of their previous token was cached.",
        labels=["found"],
    )
    looked_up.add_metric(["yes"], now.cache_hits)
    looked_up.add_metric(["no"], now.cache_misses)
    yield looked_up
    if now.epochs_left is not None:
        text = "Part of its epochs that the link has left before a new rendezvous."
        yield GaugeMetricFamily("pp4_worker_epochs_left_ratio", text, now.epochs_left)


def _waits(counted: Counted) -> Metric:
    """The histogram of waits; buckets shorter than a microsecond tell nobody anything."""
    reached = list(accumulate(counted.waits))
    named = range(_SHORTEST, min(len(reached) - 1, _LONGEST + 1))
    buckets = [(f"{2**power / 1e9:g}", float(reached[power])) for power in named]
    text = "Seconds from the arrival of a draft to its launch."
    whole = [*buckets, ("+Inf", float(reached[-1]))]
    return HistogramMetricFamily("pp4_worker_wait_seconds", text, whole, counted.wait_ns / 1e9)


@contextlib.contextmanager
def metrics(port: int, figures: Callable[[], Figures], about: Mapping[str, str]) -> Iterator[int]:
    """Answer scrapes on the loopback interface while the block lasts; starts a thread.

    Args:
        port: 0 for any that is free.
        figures: see :class:`WorkerCollector`.
        about: see :class:`WorkerCollector`.

    Yields:
        The port.

    Raises:
        RefusedError: ``BAD_SETTING``, the port cannot be had.
    """
    registry = CollectorRegistry()
    registry.register(WorkerCollector(figures, about))
    try:
        server, thread = start_http_server(port, addr=ADDRESS, registry=registry)
    except OSError as error:
        where, found = f"metrics port {port} of {ADDRESS}", error.strerror or str(error)
        refusal = Refusal(Code.BAD_SETTING, where, "a port that is free", found)
        raise RefusedError(refusal) from error
    try:
        yield int(server.server_port)
    finally:
        server.shutdown()
        server.server_close()
        # its loop has ended; what still answers a scrape is a daemon
        thread.join(_END_S)
