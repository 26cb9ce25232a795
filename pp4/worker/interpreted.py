"""A rank without a GPU: the kernels are interpreted, a file stands in for peer memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from pp4.drafter.config import DrafterConfig
from pp4.drafter.heads import Original
from pp4.drafter.selector import OriginalSelector
from pp4.drafter.tp_drafter import MakeBlock
from pp4.kernels import interpreting
from pp4.kernels.block import SampledBlock
from pp4.kernels.controls import build
from pp4.kernels.graph import RecordedGraph
from pp4.kernels.link import Bounds, SharedMemoryLink, SoloLink
from pp4.wire.facts import Compiled, Shape
from pp4.worker import group
from pp4.worker.compiling import Compiler, Homes
from pp4.worker.device import Launches, PairLink, Seats, T


class Interpreted:
    """See :class:`pp4.worker.device.Device`.

    Args:
        rank: 0 or 1.
        homes: directories that both ranks may write.
        seats: a pair, or solo.
    """

    model = "Triton interpreter"
    where = torch.device("cpu")

    def __init__(self, rank: int, homes: Homes, seats: Seats) -> None:
        self.name = "interpreter-0" if seats.solo else f"interpreter-{rank}"
        self.shards = seats.shards
        self._rank, self._directory = rank, homes.pair
        self._compiler = Compiler(homes.compiled / f"rank-{rank}")
        self._generation = 0
        self._joined = False
        interpreting.quicken()

    def prime(self, shape: Shape, shards: int, *, recorded: bool) -> tuple[Compiled, bool]:
        """Compile in a process of its own: this one interprets and cannot."""
        return self._compiler.prime(shape, shards, recorded=recorded)

    def plant(self, shape: Shape, control: str, home: Path) -> Any:
        """Build a mutant; the interpreter loads nothing."""
        return build(control, home)._kernel

    def seal(self) -> None:
        """The interpreter compiles nothing at a launch."""

    def compilations(self) -> int | None:
        """Nothing compiles here, so nothing could be seen."""
        return None

    def link(self, generation: int, *, rows: int, start: int, bounds: Bounds) -> PairLink:
        """Make this rank's file."""
        self._generation = generation
        if self.shards == 2:
            return SoloLink(rows, start=start, bounds=bounds)
        own, peer = (
            self._directory / f"link-{generation}-rank-{rank}"
            for rank in (self._rank, 1 - self._rank)
        )
        return SharedMemoryLink(own, peer, rank=self._rank, rows=rows, start=start, bounds=bounds)

    def peer_access(self) -> bool:
        """Both ranks run on the same memory."""
        return True

    def solo_link(self, rows: int) -> SoloLink:
        """A link in this process' memory."""
        return SoloLink(rows)

    def graph(self, block: SampledBlock, key: str, launches: Launches) -> RecordedGraph:
        """Record the launches."""
        return RecordedGraph(block, key, launches)

    def repeated(self, launch: Callable[[], T]) -> Callable[[], T]:
        """Nothing is saved where nothing is launched."""
        return launch

    @property
    def make_block(self) -> MakeBlock:
        """The product's own."""
        return SampledBlock

    def prime_drafter(self, config: DrafterConfig) -> Compiled | None:
        """On a CPU it launches no other kernels."""
        return None

    def pin(self, memory: torch.Tensor) -> None:
        """There is no other memory to copy to."""

    def original(self, selector: OriginalSelector) -> Original:
        """Its own sequence of launches is all that there is to record."""
        return selector

    def gather(self, mine: torch.Tensor) -> torch.Tensor:
        """Gather over gloo; solo, where one rank has it all, nothing is gathered."""
        if self.shards == 2:
            return torch.stack([mine, mine])
        if not self._joined:
            group.join(self._rank, self._directory / f"group-{self._generation}", "gloo")
            self._joined = True
        return group.gather(mine)

    def delay(self, nanoseconds: int) -> None:
        """Hold this rank back; its launches run in its own thread."""
        time.sleep(nanoseconds / 1e9)

    def settle(self) -> None:
        """A launch has ended when it returns."""
