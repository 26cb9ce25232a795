"""The original selector: greedy, one winner per rank, eight bytes exchanged.

It is what the sampled path is compared with, so it is written as engines do it and imports nothing
of the sampled code.  Per position: Markov bias of the token before, argmax of the rank's own
columns, an all-gather of (value, id), the larger value wins and the lower id on ties.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch

Bias = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""Tokens ``[B]`` int64, ``[vocab, R]`` and ``[columns, R]`` BF16 -> ``[B, columns]`` BF16."""
Gather = Callable[[torch.Tensor], torch.Tensor]
"""``[B, 2]`` int32 of this rank -> ``[2, B, 2]`` of both, in rank order."""

PRODUCTS: Final = 1 << 26
"""FP32 products of the bias that are alive at once: 256 MiB, half as much again for their sums."""


@dataclass(frozen=True, slots=True)
class GreedyOutputs:
    """Fixed outputs of a captured shape.

    Attributes:
        token: ``[B, n_out]`` int64.
        q: ``[B, n_out, 32]`` float32, always zero: nothing was drawn.
    """

    token: torch.Tensor
    q: torch.Tensor


@dataclass(frozen=True, slots=True)
class Columns:
    """One shard's columns.

    Attributes:
        w2: ``[columns, R]`` BF16.
        first_id: id of the first column.
        base: ``[B, n_out, columns]`` BF16 base logits, in whatever strides.
    """

    w2: torch.Tensor
    first_id: int
    base: torch.Tensor


class OriginalSelector:
    """Buffers and the launch sequence of one (batch, n_out) on one rank.

    Args:
        w1: ``[target vocab, R]`` BF16.
        w2: ``[columns, R]`` BF16, the rank's own rows.
        first_id: id of the rank's first column.
        gather: the all-gather of the winners.
        batch: rows.
        n_out: positions.
        token_map: ``[draft vocab]`` int32 ids that are emitted, strictly rising, of a reduced
            vocabulary; None where the ids are the same.
        base: ``[B, n_out, columns]`` BF16, where the base logits lie already; None for a buffer of
            the selector's own.
        beside: the columns that follow, where both shards are here; nothing is gathered then.
        products: of the bias, alive at once; at least those of one column are.
        bias: another way to the same bits: previous tokens ``[B]``, W1 and W2 -> ``[B, columns]``.
    """

    def __init__(
        self,
        w1: torch.Tensor,
        w2: torch.Tensor,
        *,
        first_id: int,
        gather: Gather,
        batch: int,
        n_out: int,
        token_map: torch.Tensor | None = None,
        base: torch.Tensor | None = None,
        beside: Columns | None = None,
        products: int = PRODUCTS,
        bias: Bias | None = None,
    ) -> None:
        self._w1, self._gather, self._token_map = w1, gather, token_map
        if base is None:
            base = torch.zeros(batch, n_out, len(w2), dtype=torch.bfloat16, device=w2.device)
        self.base = base
        self._shards = (Columns(w2, first_id, base), *(() if beside is None else (beside,)))
        self._at_once = max(1, products // (batch * w1.shape[1]))
        self._bias = self._by_tree if bias is None else bias
        self.anchor = torch.zeros(batch, dtype=torch.int64, device=w2.device)
        self.outputs = GreedyOutputs(
            token=torch.zeros(batch, n_out, dtype=torch.int64, device=w2.device),
            q=torch.zeros(batch, n_out, 32, device=w2.device),
        )

    def _by_tree(self, previous: torch.Tensor, w1: torch.Tensor, w2: torch.Tensor) -> torch.Tensor:
        """[B] tokens -> [B, columns] BF16 by the halving tree that all paths share."""
        rows, parts = w1[previous].float()[:, None, :], []
        for first in range(0, len(w2), self._at_once):
            terms = rows * w2[first : first + self._at_once].float()[None]
            while terms.shape[-1] > 1:
                half = terms.shape[-1] // 2
                terms = terms[..., :half] + terms[..., half:]
            parts.append(terms[..., 0].to(torch.bfloat16))
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)

    def _winner(self, shard: Columns, index: int, previous: torch.Tensor) -> torch.Tensor:
        """[B] tokens -> [B, 2] int32: FP32 bits of a shard's best value, and its id."""
        bias = self._bias(previous, self._w1, shard.w2)
        row = (shard.base[:, index].float() + bias.float()).to(torch.bfloat16)
        best = row.max(dim=-1, keepdim=True).values
        # argmax of a mask is the first maximum; torch.argmax promises no order among ties
        column = (row == best).to(torch.uint8).argmax(dim=-1)
        return torch.stack(
            [best[:, 0].float().view(torch.int32), (column + shard.first_id).to(torch.int32)],
            dim=-1,
        )

    def replay(self) -> GreedyOutputs:
        """Run every position; -> the fixed outputs, the same objects every time."""
        previous = self.anchor
        for index in range(self.base.shape[1]):
            winners = [self._winner(shard, index, previous) for shard in self._shards]
            low, high = self._gather(winners[0]) if len(winners) == 1 else winners
            wins = high[:, 0].contiguous().view(torch.float32) > low[:, 0].contiguous().view(
                torch.float32
            )
            previous = torch.where(wins, high[:, 1], low[:, 1]).long()
            if self._token_map is not None:
                previous = self._token_map[previous].long()
            self.outputs.token[:, index] = previous
        return self.outputs
