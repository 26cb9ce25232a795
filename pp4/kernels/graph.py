"""The launches of one block, recorded once and replayed with other inputs in the same buffers.

:class:`RecordedGraph` is what a captured graph is where there is no GPU: it keeps scalars as they
were at capture and reads tensors as they are at replay.  :class:`CapturedGraph` is a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pp4.kernels.block import SampledBlock


def launches_of(block: SampledBlock) -> list[dict[str, Any]]:
    """Arguments of every launch of a block, in order."""
    return [block.arguments(index) for index in range(block.n_out)]


class RecordedGraph:
    """Launches that are made again at every replay.

    Args:
        block: the block whose buffers are bound.
        key: the specialisation that they need; whoever captures has seen that it is primed.
        launches: arguments of each launch, as :func:`launches_of` gives them.
    """

    def __init__(self, block: SampledBlock, key: str, launches: list[dict[str, Any]]) -> None:
        self.block, self.key = block, key
        self._launches = launches

    def replay(self) -> None:
        """Launch every position with the arguments of the capture."""
        for arguments in self._launches:
            self.block.kernel[self.block.grid](**arguments)


class CapturedGraph(RecordedGraph):
    """The same launches as one CUDA graph, on the current device.

    Everything that it launches must be loaded, and the device idle; nothing runs at the capture.
    """

    def __init__(self, block: SampledBlock, key: str, launches: list[dict[str, Any]]) -> None:
        super().__init__(block, key, launches)
        self._captured = capture(super().replay)

    def replay(self) -> None:
        """Launch the graph on the current stream."""
        self._captured.replay()


def capture(launch: Callable[[], object], pool: Any = None) -> torch.cuda.CUDAGraph:
    """Capture what a function launches on the current stream as a CUDA graph.

    Args:
        launch: reads nothing back.
        pool: memory of tensors that are made meanwhile, as torch names it; its own where None.
            Graphs that share one never run at once, and nothing of it is read after a graph.
    """
    captured = torch.cuda.CUDAGraph()
    # other threads of the process (a watchdog of NCCL) may query events meanwhile
    with torch.cuda.graph(captured, pool=pool, capture_error_mode="thread_local"):
        launch()
    return captured
