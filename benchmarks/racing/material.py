"""Weights and cached bias rows of one vocabulary, as each contender wants them."""

from dataclasses import replace
from functools import cached_property

import torch
from torch.nn import functional

from benchmarks.racing import places
from pp4.kernels import vectorised
from pp4.kernels.geometry import Geometry
from pp4.kernels.head import Head, sharded, values_of

SLOTS = 1024
"""Different bias rows; together far more than an L2 cache holds."""


def bias_of(previous, first, second, cached):
    """The bias as torch's operators make it: ``[B]`` tokens -> ``[B, columns here]`` BF16.

    ``first``, ``second``: what :meth:`Material.weights` gives.
    """
    chosen = first.index_select(0, previous)
    return second.index_select(0, chosen) if cached else functional.linear(chosen, second)


class Material:
    """Everything that outlasts an input set.

    Cached rows repeat: token t has the row t modulo SLOTS.  Everybody looks the slot up, as the
    product does.

    Args:
        vocab: columns, an even number.
        rank_dim: inner dimension of the Markov weights.
        device: where everything lies.
        shards: (0, 1) on one GPU, (rank,) on a pair.
    """

    def __init__(self, vocab, rank_dim, device, shards):
        self.vocab, self.rank_dim, self.device, self.shards = vocab, rank_dim, device, shards
        split = vocab // 2
        self.first, self.last = shards[0] * split, (shards[-1] + 1) * split
        self.w1 = places.normal(11, (vocab, rank_dim), 1.0, device)
        self.w2 = places.normal(12, (vocab, rank_dim), 0.05, device)
        self.slots = min(SLOTS, vocab // 4)
        self.rows = places.normal(13, (self.slots, vocab), 1.0, device)
        self._heads = {}

    def bias_bits(self, previous, rows):
        """The exact bias: ``[B]`` int64 tokens -> ``[B, V]`` int16 patterns."""
        if rows == "cached":
            return self.rows[previous % self.slots]
        return vectorised.markov_bias(self.w1.index_select(0, previous), self.w2)

    @cached_property
    def slot_of(self):
        """``[V]`` int32, the cached row of each token."""
        return torch.arange(self.vocab, dtype=torch.int32, device=self.device) % self.slots

    @cached_property
    def _table(self):
        return self.rows[:, self.first : self.last].contiguous().view(torch.bfloat16)

    @cached_property
    def _output(self):
        return self.w2[self.first : self.last].contiguous().view(torch.bfloat16)

    def weights(self, rows):
        """What torch's operators make the bias of.

        Cached: ``[V]`` int32 slots and ``[slots, columns here]`` BF16.  Uncached: ``[V, R]`` and
        ``[columns here, R]`` BF16.
        """
        if rows == "cached":
            return self.slot_of, self._table
        return self.w1.view(torch.bfloat16), self._output

    @cached_property
    def _bare(self):
        return values_of(self.w1), values_of(self.w2)

    def head(self, tile, rows):
        """The product's head; its cached rows are looked up by slot."""
        name = (rows, *sorted(tile.items()))
        if name not in self._heads:
            self._heads[name] = self._built(tile, rows)
        return self._heads[name]

    def _built(self, tile, rows):
        geometry = Geometry(vocab=self.vocab, split=self.vocab // 2, rank_dim=self.rank_dim, **tile)
        head = Head.build(geometry, *self._bare, shards=self.shards, device=self.device)
        if rows == "uncached":
            return head
        bias = sharded(self.rows, geometry, self.shards)
        return replace(head, bias=bias, slot_of=self.slot_of)
