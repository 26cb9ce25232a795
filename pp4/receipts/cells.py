"""The settings of a measurement as its receipts state them, and the rounds that follow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, Literal

from pp4.receipts.envelope import Fact
from pp4.receipts.ratios import ENDPOINT

Phase = Literal["headline", "profiled"]
Cell = tuple[int, Decimal]
"""Batch size and temperature."""
NAMES: Final = (
    "batches",
    "temperatures",
    "depth",
    "new_tokens",
    "seed",
    "warm_up",
    "greedy",
    "headline",
    "primary",
    "profiled",
)
"""Members of :class:`pp4.wire.measuring.Schedule`; a test keeps them equal."""
MOST_CELLS: Final = 256
"""Far more than anyone measures, and few enough that no receipt takes long to check."""
PRIMARY: Final[Cell] = (ENDPOINT.batch, Decimal(ENDPOINT.temperature))


@dataclass(frozen=True, slots=True)
class Planned:
    """What the settings say of an arm's timed rounds; see :class:`pp4.wire.measuring.Schedule`."""

    batches: tuple[int, ...]
    temperatures: tuple[Decimal, ...]
    depth: int
    new_tokens: int
    headline: int
    primary: int
    profiled: int

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Every cell."""
        return tuple((batch, value) for batch in self.batches for value in self.temperatures)

    def rounds(self) -> Counter[tuple[Phase, Cell]]:
        """Return how many rounds of each cell and phase an arm has."""
        found: Counter[tuple[Phase, Cell]] = Counter()
        for cell in self.cells:
            found["headline", cell] += self.primary if cell == PRIMARY else self.headline
            found["profiled", cell] += self.profiled
        return found


def name_of(cell: Cell) -> str:
    """Return the word for a cell in names of budget parts: ``b8.t0.7``."""
    batch, temperature = cell
    return f"b{batch}.t{temperature}"


def planned(settings: Mapping[str, Fact]) -> Planned | str:
    """Read settings, or say what is wrong with them.

    Args:
        settings: of a measurement, or the shapes of a budget, which have no seed.
    """
    numbers: dict[str, int] = {}
    for name in NAMES[2:]:
        value = settings.get(name, 0 if name == "seed" else None)
        if type(value) is not int or value < (0 if name == "seed" else 1):
            return f"{name} {value!r}"
        numbers[name] = value
    batches, temperatures = settings.get("batches"), settings.get("temperatures")
    sizes = [one for one in _several(batches) if type(one) is int and one >= 1]
    values = [one for one in map(_number, _several(temperatures)) if one is not None]
    for name, given, read in (
        ("batches", batches, sizes),
        ("temperatures", temperatures, values),
    ):
        if not read or len(set(read)) != len(_several(given)):
            return f"{name} {given!r}"
    if len(sizes) * len(values) > MOST_CELLS:
        return f"{len(sizes) * len(values)} cells, more than {MOST_CELLS}"
    return Planned(
        batches=tuple(sizes),
        temperatures=tuple(values),
        depth=numbers["depth"],
        new_tokens=numbers["new_tokens"],
        headline=numbers["headline"],
        primary=numbers["primary"],
        profiled=numbers["profiled"],
    )


def _several(value: Fact | None) -> tuple[object, ...]:
    return value if isinstance(value, tuple) else ()


def _number(value: object) -> Decimal | None:
    text = value if isinstance(value, str) else ""
    plain = text.replace(".", "", 1)
    if not (plain.isascii() and plain.isdigit() and len(text) < 20 and text[0] != "."):
        return None
    return Decimal(text)
