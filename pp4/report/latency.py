"""What steps waited for their drafts, by batch size: samples for a distribution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from pp4.receipts.runs import Measurement
from pp4.report.acceptance import SWITCHES, Switch, headline


@dataclass(frozen=True, slots=True)
class Distribution:
    """One batch size.

    Attributes:
        batch: requests side by side.
        samples: nanoseconds by switch, sorted.
    """

    batch: int
    samples: Mapping[Switch, tuple[int, ...]]

    def percentile(self, switch: Switch, percent: int) -> int | None:
        """Return the least sample that so many percent of all do not exceed, if there is one."""
        ordered = self.samples[switch]
        return ordered[-(-percent * len(ordered) // 100) - 1] if ordered else None


def distributions(halves: Sequence[Measurement]) -> tuple[Distribution, ...]:
    """Return the samples of each batch size that has some, of sampled rounds alone.

    At temperature 0 both switches draft by the original graph, and its waits would stand in the
    distribution of ON beside those that are asked about.
    """
    found: dict[int, dict[Switch, list[int]]] = {}
    for switch in SWITCHES:
        for one in headline(halves, switch):
            if Decimal(one.temperature) != 0:
                cell = found.setdefault(one.batch, {name: [] for name in SWITCHES})
                cell[switch] += one.draft_ns
    return tuple(
        Distribution(batch, {switch: tuple(sorted(waits)) for switch, waits in cell.items()})
        for batch, cell in sorted(found.items())
        if any(cell.values())
    )
