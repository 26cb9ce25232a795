"""A rank without a kernel: the exact reference in its place, on the CPU.

It serves what the product would, by the same integers, so that clients, queues and failures can be
tried quickly on any machine.  It says what it is wherever a device is named, and proves nothing
about a kernel or a pair.
"""

from __future__ import annotations

from pp4.drafter.tp_drafter import MakeBlock
from pp4.kernels.reference_block import ReferenceBlock
from pp4.worker.compiling import Homes
from pp4.worker.device import Seats
from pp4.worker.interpreted import Interpreted


class Referenced(Interpreted):
    """See :class:`pp4.worker.device.Device`; both ranks hold both shards.

    Args:
        rank: 0 or 1.
        homes: directories that both ranks may write.
    """

    model = "integer reference, no kernel"

    def __init__(self, rank: int, homes: Homes) -> None:
        super().__init__(rank, homes, Seats(solo=True))
        self.name = f"reference-{rank}"

    @property
    def make_block(self) -> MakeBlock:
        """The reference over the buffers of the product."""
        return ReferenceBlock
