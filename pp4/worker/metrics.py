"""What a worker counts, for Prometheus: over HTTP, on the loopback interface alone.

Nothing here is counted twice: a scrape reads what the server keeps anyway.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
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

STATES: Final = ("starting", "primed", "serving", "failed", "torn down")
ADDRESS: Final = "127.0.0.1"
_END_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Figures:
    """What a worker has counted since its start, and how it is now.

    Attributes:
        state: one of :data:`STATES`.
        blocks: batches that were drafted.
        rows: requests' rows in them.
        padded_rows: rows without a request in them.
        positions: drafted positions of the rows with a request.
        replies: answers to drafts that left.
        refusals: answers that were refusals, by code.
        disconnects: connections that ended without a word.
        connections: connections that are open.
        open_requests: requests that are open.
        waiting: drafts that wait for a batch.
        received_bytes: from clients.
        sent_bytes: to clients.
        wait_bounds_ns: upper bounds of the waits that are counted apart, rising.
        wait_counts: drafts by how long they waited from their arrival to their launch: one for each
            bound, and one for what lasted longer.
        wait_sum_ns: all of these waits together.
        cache_hits: positions whose previous token had a cached bias row.
        cache_misses: positions whose previous token had none.
        epochs_left: epochs that the most used row of the link has left; None without a link.
    """

    state: str
    blocks: int = 0
    rows: int = 0
    padded_rows: int = 0
    positions: int = 0
    replies: int = 0
    refusals: Mapping[str, int] = field(default_factory=dict)
    disconnects: int = 0
    connections: int = 0
    open_requests: int = 0
    waiting: int = 0
    received_bytes: int = 0
    sent_bytes: int = 0
    wait_bounds_ns: tuple[int, ...] = ()
    wait_counts: tuple[int, ...] = (0,)
    wait_sum_ns: int = 0
    cache_hits: int = 0
    cache_misses: int = 0
    epochs_left: int | None = None


_COUNTERS: Final = (
    ("blocks", "Batches that were drafted."),
    ("rows", "Rows of requests in these batches."),
    ("padded_rows", "Rows without a request in these batches."),
    ("positions", "Positions that were drafted for requests."),
    ("replies", "Drafts that were answered with a draft."),
    ("disconnects", "Connections that ended without a word."),
    ("received_bytes", "Bytes from clients."),
    ("sent_bytes", "Bytes to clients."),
    ("cache_hits", "Positions whose previous token had a cached bias row."),
    ("cache_misses", "Positions whose previous token had no cached bias row."),
)
_GAUGES: Final = (
    ("connections", "Connections that are open."),
    ("open_requests", "Requests that are open."),
    ("waiting", "Drafts that wait for a batch."),
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
            yield CounterMetricFamily(f"pp4_worker_{name}", text, getattr(now, name))
        for name, text in _GAUGES:
            yield GaugeMetricFamily(f"pp4_worker_{name}", text, getattr(now, name))
        refused = CounterMetricFamily("pp4_worker_refusals", "Refusals by code.", labels=["code"])
        for code, count in sorted(now.refusals.items()):
            refused.add_metric([code], count)
        yield refused
        yield _waits(now)
        if now.epochs_left is not None:
            text = "Epochs that the most used row of the link has left."
            yield GaugeMetricFamily("pp4_worker_epochs_left", text, now.epochs_left)


def _waits(now: Figures) -> Metric:
    bounds = [f"{bound / 1e9:g}" for bound in now.wait_bounds_ns] + ["+Inf"]
    reached = list(accumulate(now.wait_counts))
    text = "Seconds from the arrival of a draft to its launch."
    buckets = [(bound, float(count)) for bound, count in zip(bounds, reached, strict=True)]
    return HistogramMetricFamily("pp4_worker_wait_seconds", text, buckets, now.wait_sum_ns / 1e9)


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
        _join(thread)


def _join(thread: threading.Thread) -> None:
    # it is a daemon and answers at most one scrape more
    thread.join(_END_S)
