"""Acceptance by position for each temperature, over all batch sizes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, Literal

from pp4.receipts.runs import Measurement, Round

Switch = Literal["OFF", "ON"]
SWITCHES: Final[tuple[Switch, Switch]] = ("OFF", "ON")


@dataclass(frozen=True, slots=True)
class Acceptance:
    """One temperature, headline rounds alone.

    Attributes:
        temperature: as its first round spells it.
        drafted: rows of steps that had a proposal, by switch.
        rates: of these rows, the part that accepted at least so many tokens, by position from 1.
    """

    temperature: str
    drafted: Mapping[Switch, int]
    rates: Mapping[Switch, tuple[float, ...]]

    def length(self, switch: Switch) -> float | None:
        """Tokens that a drafted row accepted on average; None where nothing was drafted."""
        return math.fsum(self.rates[switch]) if self.rates[switch] else None


def headline(halves: Sequence[Measurement], switch: Switch) -> Iterator[Round]:
    """Yield the headline rounds of a switch, half by half."""
    for half in halves:
        for arm in half.arms:
            if arm.switch == switch:
                yield from (one for one in arm.rounds if one.phase == "headline")


def acceptance(halves: Sequence[Measurement]) -> tuple[Acceptance, ...]:
    """Return the figures of each temperature, smallest first."""
    every = {switch: list(headline(halves, switch)) for switch in SWITCHES}
    spelled: dict[Decimal, str] = {}
    for rounds in every.values():
        for one in rounds:
            spelled.setdefault(Decimal(one.temperature), one.temperature)
    return tuple(_of(spelled[value], value, every) for value in sorted(spelled))


def _of(spelled: str, value: Decimal, every: Mapping[Switch, Sequence[Round]]) -> Acceptance:
    chosen = {
        switch: [one for one in rounds if Decimal(one.temperature) == value]
        for switch, rounds in every.items()
    }
    return Acceptance(
        spelled,
        {switch: sum(one.drafted for one in rounds) for switch, rounds in chosen.items()},
        {switch: _rates(rounds) for switch, rounds in chosen.items()},
    )


def _rates(rounds: Sequence[Round]) -> tuple[float, ...]:
    drafted = sum(one.drafted for one in rounds)
    if not drafted:
        return ()
    depth = max(len(one.accepted_by_position) for one in rounds)
    return tuple(
        sum(sum(one.accepted_by_position[place : place + 1]) for one in rounds) / drafted
        for place in range(depth)
    )
