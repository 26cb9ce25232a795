"""The original selector: greedy, one winner per rank, eight bytes exchanged.

It is what the sampled path is compared with, so it is written as engines do it and imports nothing
of the sampled code.  Per position: Markov bias of the token before, argmax of the rank's own
columns, an all-gather of (value, id), the larger value wins and the lower id on ties.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

Gather = Callable[[torch.Tensor], torch.Tensor]
"""``[B, 2]`` int32 of this rank -> ``[2, B, 2]`` of both, in rank order."""


@dataclass(frozen=True, slots=True)
class GreedyOutputs:
    """Fixed outputs of a captured shape.

    Attributes:
        token: ``[B, n_out]`` int64.
        q: ``[B, n_out, 32]`` float32, always zero: nothing was drawn.
    """

    token: torch.Tensor
    q: torch.Tensor


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
    ) -> None:
        self._w1, self._w2, self._first_id, self._gather = w1, w2, first_id, gather
        self._token_map = token_map
        self.base = torch.zeros(batch, n_out, len(w2), dtype=torch.bfloat16, device=w2.device)
        self.anchor = torch.zeros(batch, dtype=torch.int64, device=w2.device)
        self.outputs = GreedyOutputs(
            token=torch.zeros(batch, n_out, dtype=torch.int64, device=w2.device),
            q=torch.zeros(batch, n_out, 32, device=w2.device),
        )

    def _bias(self, previous: torch.Tensor) -> torch.Tensor:
        """[B] tokens -> [B, columns] BF16 by the halving tree that all paths share."""
        terms = self._w1[previous].float()[:, None, :] * self._w2.float()[None]
        while terms.shape[-1] > 1:
            half = terms.shape[-1] // 2
            terms = terms[..., :half] + terms[..., half:]
        return terms[..., 0].to(torch.bfloat16)

    def replay(self) -> GreedyOutputs:
        """Run every position; -> the fixed outputs, the same objects every time."""
        previous = self.anchor
        for index in range(self.base.shape[1]):
            row = (self.base[:, index].float() + self._bias(previous).float()).to(torch.bfloat16)
            best = row.max(dim=-1, keepdim=True).values
            # argmax of a mask is the first maximum; torch.argmax promises no order among ties
            column = (row == best).to(torch.uint8).argmax(dim=-1)
            mine = torch.stack(
                [best[:, 0].float().view(torch.int32), (column + self._first_id).to(torch.int32)],
                dim=-1,
            )
            low, high = self._gather(mine)
            wins = high[:, 0].contiguous().view(torch.float32) > low[:, 0].contiguous().view(
                torch.float32
            )
            previous = torch.where(wins, high[:, 1], low[:, 1]).long()
            if self._token_map is not None:
                previous = self._token_map[previous].long()
            self.outputs.token[:, index] = previous
        return self.outputs
