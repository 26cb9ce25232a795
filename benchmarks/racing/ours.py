"""pp4's kernel as the product launches it: solo, and on a pair over symmetric memory."""

import torch

from benchmarks.racing import judging
from benchmarks.racing.field import DEPTH
from pp4.kernels import loading, sampled_fused, vectorised
from pp4.kernels.block import SampledBlock
from pp4.kernels.graph import CapturedGraph, RecordedGraph, launches_of
from pp4.kernels.priming import specialisation


class Solo:
    """Both shards in one launch per position.

    Args:
        setting: the :class:`benchmarks.racing.setting.Setting` of this race.
    """

    chains = 1

    def __init__(self, setting):
        self.setting = setting
        self.head = setting.material.head(setting.tile, setting.rows)
        self.link = setting.link()
        geometry, shards = self.head.geometry, self.link.shards
        self.key = specialisation(geometry, shards)
        if setting.device.type == "cuda":
            loading.load(
                sampled_fused._kernel, geometry=geometry, shards=shards, device=setting.device
            )
        # neither rank launches before the other has everything loaded
        setting.agree("primed")

    def prepare(self, made):
        """One graph with buffers of its own."""
        return Prepared(self, made)

    def judge(self, prepared, made):
        """What is wrong with the last replay, by ``==``."""
        found = judging.exact(prepared.outputs(), made, self.setting.material, self.setting.rows)
        words = self.link.words()
        return found if words.clean else [*found, f"the link says {words.own}, {words.peer}"]


class Pair(Solo):
    """One of two ranks."""


class Prepared:
    """A captured block."""

    def __init__(self, contender, made):
        self._block = SampledBlock(
            contender.head, contender.link, batch=contender.setting.batch, n_out=DEPTH
        )
        self.load(made)
        kind = RecordedGraph
        if contender.setting.device.type == "cuda":
            torch.cuda.synchronize()
            kind = CapturedGraph
        self.replay = kind(self._block, contender.key, launches_of(self._block)).replay

    def load(self, made):
        """Other inputs in the same buffers, and outputs that no kernel writes."""
        self._block.load(made.requests, made.bits)
        self._block.poison()

    def outputs(self):
        """What the last replay gave, on the device."""
        block = self._block
        return vectorised.Block(block.ids, block.q, block.token, block.error)

    def digest(self):
        """Tokens and q of the last replay, for the other rank to compare."""
        return self._block.outputs().digest()
