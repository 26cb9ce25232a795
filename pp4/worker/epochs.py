"""Epochs of a link as its owner counts them: what a clean block has to be stamped with."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from pp4.wire.facts import Grid

_START_RANGE = (1 << 20) - 1
_STRIDE = 648_056
"""Has no divisor in common with the range, and lies near its golden section: the starts of
successive generations are all different and far apart."""


def start_epoch(nonce: str, fence: int, generation: int) -> int:
    """First epoch of a link: below 2**20, and another one for every rendezvous of a HOLD."""
    seed = hashlib.sha256(f"{nonce}:{fence}".encode()).digest()
    return (int.from_bytes(seed[:8], "big") + generation * _STRIDE) % _START_RANGE + 1


class Epochs:
    """The last epoch of each row, from a start that both ranks have.

    Args:
        start: epoch before the first.
        rows: rows of the link.
    """

    def __init__(self, start: int, rows: int) -> None:
        self.start = start
        self._last = [start] * rows

    @property
    def rows(self) -> int:
        """Rows of the link."""
        return len(self._last)

    @property
    def furthest(self) -> int:
        """Epochs that the busiest row has used."""
        return max(self._last) - self.start

    def expected(self, modes: Sequence[int], n_out: int) -> Grid:
        """Stamps of a clean block: the row's next epochs, a padded row's last one."""
        return tuple(
            tuple(self._last[row] + (index + 1 if mode else 0) for index in range(n_out))
            for row, mode in enumerate(modes)
        )

    def advance(self, modes: Sequence[int], n_out: int) -> None:
        """Count a block that was released."""
        for row, mode in enumerate(modes):
            self._last[row] += n_out if mode else 0
