"""What a worker counts; others turn it into metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from pp4.wire.facts import BUCKETS


def _buckets() -> list[int]:
    return [0] * BUCKETS


@dataclass(slots=True)
class Counters:
    """Since the start; everything only rises.

    Attributes:
        blocks: batches that were launched.
        rows: drafts in them.
        padded_rows: rows that filled a batch up to the next captured size.
        positions: drafted positions that left.
        asked: drafts that were taken.
        replies: drafts that left.
        without_reply: drafts that ended otherwise: given up, or refused by the ranks.
        appended: tokens whose features were taken.
        appends: calls in which features went to the ranks.
        append_parts: FEATURES in them, also those that were refused there.
        opened: requests.
        closed: requests, those of connections that ended included.
        aborted: drafts that were given up by an ABORT.
        connections: that were let in.
        disconnects: of those.
        received_bytes: from clients.
        sent_bytes: to clients.
        wait_ns: from arrival to launch, of all rows together.
        waits: rows by the powers of two of their wait: bucket ``i`` is below ``2**i`` ns.
        refusals: by code.
    """

    blocks: int = 0
    rows: int = 0
    padded_rows: int = 0
    positions: int = 0
    asked: int = 0
    replies: int = 0
    without_reply: int = 0
    appended: int = 0
    appends: int = 0
    append_parts: int = 0
    opened: int = 0
    closed: int = 0
    aborted: int = 0
    connections: int = 0
    disconnects: int = 0
    received_bytes: int = 0
    sent_bytes: int = 0
    wait_ns: int = 0
    waits: list[int] = field(default_factory=_buckets)
    refusals: Counter[str] = field(default_factory=Counter)

    def launched(self, waits_ns: Sequence[int], captured: int) -> None:
        """Count a batch.

        Args:
            waits_ns: how long each row has waited.
            captured: rows of the captured size that it takes.
        """
        self.blocks += 1
        self.rows += len(waits_ns)
        self.padded_rows += captured - len(waits_ns)
        for wait in waits_ns:
            self.wait_ns += wait
            self.waits[min(wait.bit_length(), BUCKETS - 1)] += 1

    def as_dict(self) -> dict[str, int]:
        """Every count that is one number, and the refusals as ``refused_CODE``."""
        plain = {name: getattr(self, name) for name in self.__slots__}
        numbers = {name: value for name, value in plain.items() if isinstance(value, int)}
        return numbers | {f"refused_{code}": count for code, count in self.refusals.items()}
