"""Plain counters, since the start of what counts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields

from pp4.engine.drafting import Cause


@dataclass(slots=True)
class DecodingCounters:
    """Of an engine.

    Attributes:
        requests: that were begun.
        finished: that have ended.
        steps: of the target.
        tokens: emitted.
        drafted_rows: rows of steps with a proposal.
        plain_rows: rows without one; the sum of those by cause.
        proposed: tokens of proposals.
        accepted: tokens of them.
        plain: rows without a proposal, by cause.
    """

    requests: int = 0
    finished: int = 0
    steps: int = 0
    tokens: int = 0
    drafted_rows: int = 0
    plain_rows: int = 0
    proposed: int = 0
    accepted: int = 0
    plain: Counter[Cause] = field(default_factory=Counter)

    def as_dict(self) -> dict[str, int]:
        """Names and numbers; rows by cause as ``plain_CAUSE``, each of them."""
        named = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "plain"}
        return {**named, **{f"plain_{cause}": self.plain[cause] for cause in Cause}}


@dataclass(slots=True)
class DraftCounters:
    """Of the side that asks a worker; replies are counted by :class:`pp4.verifier.slots.Slots`.

    Attributes:
        connections: that were greeted.
        attempts: to connect, also those that failed.
        ended: connections that ended before they were closed here.
        opened: requests that a worker has opened, again after a loss or a refusal.
        features: tokens whose features a worker has taken.
    """

    connections: int = 0
    attempts: int = 0
    ended: int = 0
    opened: int = 0
    features: int = 0

    def as_dict(self) -> dict[str, int]:
        """Names and numbers."""
        return {one.name: getattr(self, one.name) for one in fields(self)}
