"""A control: a graph that captured one input by value, as a host that bakes arguments would."""

from __future__ import annotations

from pp4.kernels.block import SampledBlock
from pp4.kernels.graph import RecordedGraph
from pp4.kernels.priming import Priming


class FrozenInputGraph(RecordedGraph):
    """Replays with the request keys of the capture, whatever the requests bring."""

    def __init__(self, block: SampledBlock, priming: Priming) -> None:
        super().__init__(block, priming)
        frozen = block.key.clone()
        for arguments in self.launches:
            arguments["key_ptr"] = frozen
