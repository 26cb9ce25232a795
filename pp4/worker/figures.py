"""A worker in numbers, for its metrics and for its log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

STATES: Final = ("starting", "primed", "serving", "failed", "torn down")
_TOLD: Final = ("blocks", "rows", "padded_rows", "positions", "replies", "appends", "wait_ns")


class Counted(Protocol):
    """What a server counts, as far as it becomes metrics.

    Attributes:
        blocks: batches that were launched.
        rows: requests' rows in them.
        padded_rows: rows without a request in them.
        positions: drafted positions that left.
        replies: drafts that left.
        appends: calls in which features went to the ranks.
        append_parts: FEATURES in them.
        appended: tokens whose features were taken.
        aborted: drafts that were given up.
        connections: that were let in.
        disconnects: of those.
        received_bytes: from clients.
        sent_bytes: to clients.
        wait_ns: from arrival to launch, of all rows together.
        waits: rows by their wait: bucket ``i`` is below ``2**i`` ns, the last is all the rest.
        refusals: by code.
    """

    blocks: int
    rows: int
    padded_rows: int
    positions: int
    replies: int
    appends: int
    append_parts: int
    appended: int
    aborted: int
    connections: int
    disconnects: int
    received_bytes: int
    sent_bytes: int
    wait_ns: int

    @property
    def waits(self) -> Sequence[int]:
        """See above."""

    @property
    def refusals(self) -> Mapping[str, int]:
        """See above."""


@dataclass(frozen=True, slots=True)
class Figures:
    """How a worker is at one moment.

    Attributes:
        state: one of :data:`STATES`.
        counted: since its start.
        open_requests: requests that are open.
        waiting: drafts that wait for a batch.
        cache_hits: positions whose previous token had a cached bias row, on one rank.
        cache_misses: positions whose previous token had none, on one rank.
        epochs_left: part of the link's epochs that is left before a new rendezvous, from 1 down to
            0; None without a link.
    """

    state: str
    counted: Counted
    open_requests: int = 0
    waiting: int = 0
    cache_hits: int = 0
    cache_misses: int = 0
    epochs_left: float | None = None

    def fields(self) -> dict[str, object]:
        """Return what a line of the log says."""
        counted = {name: getattr(self.counted, name) for name in _TOLD}
        left = {} if self.epochs_left is None else {"epochs_left": round(self.epochs_left, 6)}
        return {
            "state": self.state,
            **counted,
            "refusals": dict(self.counted.refusals),
            "open_requests": self.open_requests,
            "waiting": self.waiting,
            "cache_hits": self.cache_hits,
            "cache_misses": self.cache_misses,
            **left,
        }


async def tell_figures(
    log: Callable[[str, Mapping[str, object]], None],
    figures: Callable[[], Figures],
    every_s: float,
) -> None:
    """Tell how the worker is from time to time, until this is cancelled; idle times are one line.

    Args:
        log: takes the event ``figures``.
        figures: takes them.
        every_s: seconds between two lines.
    """
    last: dict[str, object] = {}
    while True:
        await asyncio.sleep(every_s)
        now = figures().fields()
        if now != last:
            log("figures", now)
        last = now
