"""Memory that an owner and both ranks share: made before the fork, so nobody has to find it.

Big arrays never go through the pipes.  The owner writes a batch's inputs and a request's features
here and both ranks read them; each rank has a place of its own for what it drafted.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from typing import Any

import numpy as np

from pp4.drafter import packing

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
_PAGE = mmap.PAGESIZE
_RANKS = 2


def _pages(size: int) -> int:
    return -(-size // _PAGE) * _PAGE


@dataclass(frozen=True, slots=True)
class Sizes:
    """What has to fit.

    Attributes:
        batch: rows of the largest batch.
        block: queries of the checkpoint's block.
        features: bytes of features that are handed over at once.
    """

    batch: int
    block: int
    features: int


class Arena:
    """Anonymous shared memory with a place for everything that is big.

    Args:
        sizes: what has to fit.
    """

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        inputs = _pages(4 * packing.input_words(sizes.batch))
        outputs = _pages(4 * packing.output_words(sizes.batch, sizes.block))
        self._outputs_at = inputs
        self._outputs_size = outputs
        self._features_at = inputs + _RANKS * outputs
        self.memory = mmap.mmap(-1, self._features_at + _pages(sizes.features))
        self._bytes: Bytes = np.frombuffer(self.memory, dtype=np.uint8)

    @property
    def whole(self) -> Bytes:
        """All of it, page by page."""
        return self._bytes

    def input_bytes(self, batch: int) -> Bytes:
        """The inputs of a batch, see :mod:`pp4.drafter.packing`."""
        return self._bytes[: 4 * packing.input_words(batch)]

    def output_bytes(self, rank: int, batch: int) -> Bytes:
        """What a rank drafted for a batch."""
        first = self._outputs_at + rank * self._outputs_size
        return self._bytes[first : first + 4 * packing.output_words(batch, self.sizes.block)]

    def feature_bytes(self, size: int) -> Bytes:
        """Place for the features that are handed over now."""
        return self._bytes[self._features_at : self._features_at + size]
