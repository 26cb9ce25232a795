"""A DSpark drafter on one rank: hidden states of a block, and what the heads make of them.

Left to right over a block: ``logits_j = base_j + bias(token before j)``.  The base logits come from
the parallel stage; the bias, and adding it, are :mod:`pp4.kernels.vectorised`'s, which the kernels
equal, so there is one arithmetic.  ``h_j`` predicts the token ``j`` places after the anchor, the
anchor's own query the first.

A block always runs all queries of the checkpoint, also where fewer positions are wanted, because
queries attend in both directions: with fewer of them it would be another drafter.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from pp4.drafter.features import FeatureCache, Rows
from pp4.drafter.fused import backbone_of
from pp4.drafter.weights import Weights
from pp4.errors import BadInputError
from pp4.kernels import vectorised

_VECTORS: Final = 64
"""FP32 values; no CPU's loop takes more of them at once."""


class Drafter:
    """Runs blocks on one rank, eagerly; a block reads nothing back to the host.

    Args:
        weights: of this rank.
        slots: requests that can be live at once.
        context: tokens that a request may have features of.

    Raises:
        BadInputError: there would be no slot, or the context does not fit the backbone.
    """

    def __init__(self, weights: Weights, *, slots: int, context: int) -> None:
        self._backbone = backbone_of(weights, context)
        # those that the backbone laid out anew, so that the given ones can go
        self.weights, self.config = self._backbone.weights, weights.config
        self.cache = FeatureCache(self._backbone, slots, weights.embedding)

    def hidden(self, rows: Rows) -> Tensor:
        """Hidden states of a batch of blocks; -> ``[B, k, hidden]``, k the checkpoint's block."""
        places = rows.slots, rows.lengths
        return self._backbone.run(rows.anchors, places, self.cache.keys, self.cache.values)

    def base(self, hidden: Tensor, n_out: int) -> Tensor:
        """Base logits of this rank's columns.

        Soft-capping, where the config asks for it, comes before the bias is added, and each of its
        steps is rounded to the type of the logits, as published.

        Args:
            hidden: ``[B, k, hidden]`` of :meth:`hidden`.
            n_out: positions that are wanted, at most k.

        Returns:
            ``[B, n_out, columns]``; the bounds of the columns are the weights'.

        Raises:
            BadInputError: more positions than queries, or none.
        """
        block = self.config.block
        if not 1 <= n_out <= block:
            raise BadInputError.of("n_out", f"1 to {block} positions", str(n_out))
        logits = functional.linear(hidden[:, :n_out], self.weights.head)
        cap = self.config.softcap
        return logits if cap is None else torch.tanh(logits / cap) * cap

    def base_into(self, out: Tensor, hidden: Tensor, head: Tensor) -> None:
        """Base logits of some columns, bit for bit :meth:`base`'s, into a buffer.

        Args:
            out: ``[B, n_out, columns]`` BF16; rows may lie apart, all by the same stride.
            hidden: ``[B, n_out, hidden]``, the first states of :meth:`hidden`.
            head: ``[columns, hidden]``, rows of the LM head.
        """
        width = hidden.shape[-1]
        # rows of one stride are a matrix, and the GEMM writes where the logits belong
        flat = out.view(-1, out.shape[-1])
        torch.mm(hidden.reshape(-1, width), head.t(), out=flat)
        cap = self.config.softcap
        if cap is not None:
            flat.div_(cap).tanh_().mul_(cap)

    def conditioned(self, base: Tensor, previous: Tensor) -> Tensor:
        """Conditioned logits of one position, see docs/numerics.md.

        Args:
            base: ``[B, columns]`` BF16.
            previous: ``[B]`` int64 target ids of the tokens before, each below the vocabulary.

        Returns:
            ``[B, columns]`` int32 BF16 patterns 0..0xFFFF.

        Raises:
            BadInputError: a type or shape does not fit, or the Markov rank is no power of two.
        """
        w1, w2 = (one.view(torch.int16) for one in (self.weights.w1, self.weights.w2))
        bias = vectorised.markov_bias(w1.index_select(0, previous), w2)
        return vectorised.conditioned(base.contiguous().view(torch.int16), bias)

    def confidence(self, hidden: Tensor, previous: Tensor) -> Tensor | None:
        """Chance that each position will be accepted, as the drafter itself sees it.

        Published code multiplies in the type of the weights or in FP32; here it is FP32, products
        rounded before they are summed.  It decides nothing: depths are fixed.

        Args:
            hidden: ``[B, n_out, hidden]``, the first states of :meth:`hidden`.
            previous: ``[B, n_out]`` int64 target ids: the anchor, then the drafted tokens but for
                the last.

        Returns:
            ``[B, n_out]`` float32 from 0 to 1; None where there is no confidence head.
        """
        head = self.weights.confidence
        if head is None:
            return None
        weight, bias = head
        inputs = hidden.float()
        if self.config.confidence_with_markov:
            inputs = torch.cat([inputs, self.weights.w1[previous].float()], dim=-1)
        scores = (inputs * weight[0].float()).sum(-1)
        return _chances(scores if bias is None else scores + bias.float())


def _chances(scores: Tensor) -> Tensor:
    """The logistic function of FP32 scores; a value depends on its score alone.

    What does not fill a CPU's vectors torch takes one by one, and rounds otherwise, so nothing may
    be left over there.
    """
    if scores.device.type != "cpu":
        return torch.sigmoid(scores)
    flat = scores.flatten()
    filled = functional.pad(flat, (0, -len(flat) % _VECTORS))
    return torch.sigmoid(filled)[: len(flat)].view_as(scores)
