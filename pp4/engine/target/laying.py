"""Tokens of a run, laid into arrays of one shape."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from pp4.engine.target.decoder import Windows
from pp4.engine.target.recording import Recorder


class Added(NamedTuple):
    """Tokens that a sequence adds.

    Attributes:
        row: that they are laid in.
        slot: of the sequence.
        start: position of the first token.
        tokens: at least one, as many as a row has room for at most.
    """

    row: int
    slot: int
    start: int
    tokens: Sequence[int]


class Laid:
    """The arrays of a run, on the host and on the device; they go there by one copy.

    Args:
        recorder: of the run.
        rows: R.
        width: W, tokens of a row.
        nowhere: slot of the cache that padding is written to, and nobody reads.

    Attributes:
        windows: ``[R, W]`` each.
        slots: ``[R]`` int64: those of what is added, in order; 0 behind them.
    """

    def __init__(self, recorder: Recorder, rows: int, width: int, nowhere: int) -> None:
        self._shape, self._nowhere = (3, rows, width), nowhere
        self._size = 3 * rows * width
        self._numbers = recorder.numbers(self._size + rows)
        there = self._numbers.there
        self.windows = Windows(*there[: self._size].view(self._shape))
        self.slots = there[self._size :]
        self._places = np.arange(width)
        self.lay(())

    def lay(self, added: Iterable[Added]) -> None:
        """Lay tokens out and send them; what was laid before is gone.

        Args:
            added: a row once.
        """
        numbers = self._numbers.writable()
        numbers.fill(0)
        tokens, positions, written = numbers[: self._size].reshape(self._shape)
        written.fill(self._nowhere)
        for index, (row, slot, start, part) in enumerate(added):
            count = len(part)
            tokens[row, :count] = part
            positions[row, :count] = self._places[:count] + start
            written[row, :count] = slot
            numbers[self._size + index] = slot
        self._numbers.send()
