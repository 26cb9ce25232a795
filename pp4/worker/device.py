"""What a rank's kernels run on: the only difference between a rehearsal and a physical run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch

from pp4.drafter.config import DrafterConfig
from pp4.drafter.heads import Original
from pp4.drafter.selector import OriginalSelector
from pp4.drafter.tp_drafter import MakeBlock
from pp4.kernels.block import SampledBlock
from pp4.kernels.graph import RecordedGraph
from pp4.kernels.link import Bounds, Link, SoloLink
from pp4.wire.facts import Compiled, Shape

Launches = list[dict[str, Any]]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Seats:
    """Where two ranks run.

    Attributes:
        gpus: UUIDs; two for a pair, one for solo, none where kernels are interpreted.
        solo: whether each rank holds both shards, on one device, and neither needs the other.
        reference: whether the exact reference runs in the kernels' place, on the CPU.
    """

    gpus: tuple[str, ...] = ()
    solo: bool = False
    reference: bool = False

    @property
    def shards(self) -> int:
        """Shards of one launch."""
        return 2 if self.solo else 1


class PairLink(Link, Protocol):
    """A link that is made in two steps, with a host barrier between them."""

    def connect(self) -> None:
        """Reach the peer's words, which exist by now."""

    def recount(self, start: int) -> None:
        """A control: count from another epoch, as after a reset on this side alone."""


class Device(Protocol):
    """One rank's device.

    Attributes:
        name: as the HOLD names it.
        model: what it is.
        where: torch's name of it.
        shards: that one launch holds: 1 on a pair, 2 solo.
    """

    name: str
    model: str
    where: torch.device
    shards: int

    def prime(self, shape: Shape, shards: int, *, recorded: bool) -> tuple[Compiled, bool]:
        """Compile and load; -> what came out, and whether an earlier record was believed."""

    def plant(self, shape: Shape, control: str, home: Path) -> Any:
        """Build a mutant and load it; -> its kernel."""

    def seal(self) -> None:
        """Whatever compiles from now on is a fault."""

    def compilations(self) -> int | None:
        """How many compilations there were since :meth:`seal`; None where none could be seen."""

    def link(self, generation: int, *, rows: int, start: int, bounds: Bounds) -> PairLink:
        """Make this rank's part of a new link."""

    def peer_access(self) -> bool:
        """Whether this device may write the peer's memory, by the driver's word."""

    def solo_link(self, rows: int) -> SoloLink:
        """The stand-in link of one launch that holds both shards."""

    def graph(self, block: SampledBlock, key: str, launches: Launches) -> RecordedGraph:
        """Capture launches over a block's buffers."""

    def repeated(self, launch: Callable[[], T]) -> Callable[[], T]:
        """Make launches over fixed buffers cheap to repeat; -> what makes them and gives the same.

        ``launch`` reads nothing back and returns the tensors that it fills.
        """

    @property
    def make_block(self) -> MakeBlock:
        """Makes buffers and launches of a shape of the sampled path."""

    def prime_drafter(self, config: DrafterConfig) -> Compiled | None:
        """Compile and load what a drafter launches besides the kernel of the sampled path.

        Returns:
            the kernel that makes bias rows, which sampled rows rest on; None where there is none.
        """

    def pin(self, memory: torch.Tensor) -> None:
        """Let this device copy from and to the host's memory directly, for as long as it runs."""

    def original(self, selector: OriginalSelector) -> Original:
        """Capture the original selector."""

    def gather(self, mine: torch.Tensor) -> torch.Tensor:
        """``[B, 2]`` of this rank -> ``[2, B, 2]`` of both, in rank order."""

    def delay(self, nanoseconds: int) -> None:
        """Hold what is launched next back for about this long, on the device."""

    def settle(self) -> None:
        """Wait until everything that was launched has ended."""
