"""What a contender is given: its inputs' home, and on a pair the way to the other rank."""

from dataclasses import dataclass
from typing import Any

import torch

from benchmarks.racing.material import Material


@dataclass(frozen=True)
class Setting:
    """One line of the race.

    ``rows``: "cached" or "uncached"; ``tile``: tile and warps of the product's geometry, empty for
    its own choice; ``link``: makes or returns the link of this many seats; ``agree``: on a pair
    tells the other rank a word and returns its word.
    """

    material: Material
    rows: str
    batch: int
    tile: dict[str, int]
    device: torch.device
    link: Any
    agree: Any
