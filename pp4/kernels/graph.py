"""Recorded launches over bound buffers: what a captured graph is where there is no GPU.

Like a CUDA graph it keeps scalars as they were at capture and reads tensors as they are at replay.
"""

from __future__ import annotations

from typing import Any

from pp4.kernels.block import SampledBlock
from pp4.kernels.priming import Priming, specialisation


class RecordedGraph:
    """The launches of one block, in order.

    Args:
        block: the block whose buffers are bound.
        priming: refuses a capture of what is not primed.
        control: the mutant that the block launches, None for the product's kernel.

    Raises:
        RefusedError: ``UNPRIMED``.
    """

    def __init__(self, block: SampledBlock, priming: Priming, control: str | None = None) -> None:
        self.key = specialisation(block.head.geometry, block.link.shards, control)
        priming.require(self.key)
        self.block = block
        self.launches: list[dict[str, Any]] = [
            block.arguments(index) for index in range(block.n_out)
        ]

    def replay(self) -> None:
        """Launch every position with the arguments of the capture."""
        for arguments in self.launches:
            self.block.kernel[self.block.grid](**arguments)
