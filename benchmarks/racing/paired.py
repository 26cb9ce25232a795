"""Contenders on two GPUs: each rank has half of the columns, NCCL gathers inside the graph.

Where there is no GPU the same operators run over gloo.
"""

import torch

from benchmarks.racing import argmax, contenders
from benchmarks.racing.contenders import Chain, Step, drawn
from pp4.kernels.dyadic24 import WIDTH
from pp4.worker.group import gather


def _both(mine):
    """``[...]`` of this rank -> ``[2, ...]`` of both, as bytes, which every backend can carry."""
    return gather(mine.view(torch.uint8)).view(mine.dtype)


class TopK(Chain):
    """The honest rival: top-k of each shard, 32 words of a value and an id, top-k of 64, draw."""

    def step(self, buffers, index, previous):
        """Six small operators more than on one GPU."""
        logits = self.conditioned(buffers.base[index], previous)
        values, ids = torch.topk(logits, WIDTH, dim=-1)
        words = torch.empty((2, *values.shape), dtype=torch.float32, device=values.device)
        words[0].copy_(values)
        torch.add(ids, self.setting.material.first, out=words[1].view(torch.int32))
        both = _both(words)
        values, place = torch.topk(self._rows(both[:, 0]), WIDTH, dim=-1)
        ids = self._rows(both[:, 1].view(torch.int32)).gather(1, place)
        return Step(drawn(values, ids, buffers.uniform[index]), ids, values)

    @staticmethod
    def _rows(both):
        """``[2, B, 32]`` -> ``[B, 64]``."""
        return both.transpose(0, 1).flatten(1)


class Gather(Chain):
    """All logits of both shards, then as on one GPU."""

    def step(self, buffers, index, previous):
        """One gather of half a row."""
        both = _both(self.conditioned(buffers.base[index], previous))
        values, ids = torch.topk(both.transpose(0, 1).flatten(1), WIDTH, dim=-1)
        return Step(drawn(values, ids, buffers.uniform[index]), ids, values)


class Argmax(contenders.Argmax):
    """A row at T = 0: the best word of each shard, the greater of two."""

    def step(self, buffers, index, previous):
        """One gather of a word."""
        here = argmax.greatest(self.best(buffers.base[index], previous), token=False)
        return Step(argmax.greatest(_both(here).T, token=True))
