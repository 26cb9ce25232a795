"""A block that the exact reference computes in place of the kernel, over the same buffers.

For machines without a GPU: both shards are here, so nothing is exchanged, and a position costs one
vectorised selection instead of an interpreted kernel.  Rows are judged in their order, as Triton's
interpreter runs them, so a fault reaches the rows after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pp4.errors import BadInputError
from pp4.kernels import vectorised
from pp4.kernels.block import Buffers, SampledBlock
from pp4.kernels.faults import Fault
from pp4.kernels.head import Head, unpaired
from pp4.kernels.link import Link
from pp4.kernels.sampled_fused import INACTIVE


class ReferenceBlock(SampledBlock):
    """Buffers and positions of one (batch, n_out), on a CPU; reads back at every position.

    Args:
        head: Markov head of both shards.
        link: the stand-in link.
        batch: rows, at most the link's.
        n_out: positions of the block.
        buffers: where the inputs lie; None for buffers of the block's own.

    Raises:
        BadInputError: as :class:`SampledBlock`, or a link to a peer.
    """

    def __init__(
        self, head: Head, link: Link, *, batch: int, n_out: int, buffers: Buffers | None = None
    ) -> None:
        if link.shards != 2:
            raise BadInputError.of("link", "the stand-in for both shards", "a link to a peer")
        kernel = _Position(self)
        super().__init__(head, link, batch=batch, n_out=n_out, kernel=kernel, buffers=buffers)

    def fill(self, index: int) -> None:
        """Fill the outputs of one position, and what the next one starts from."""
        previous = self.chain[:, index].to(torch.int64)
        there = (previous >= 0) & (previous < self.head.target_vocab)
        inside = torch.where(there, previous, 0)
        base, bias = self.logits[:, :, index], self._bias(inside)
        rows = vectorised.select(
            vectorised.conditioned(self._whole(base), self._whole(bias)),
            key=self.key,
            position=self.position.to(torch.int64) + index,
            round=self.round.to(torch.int64),
            mode=self.mode,
        )
        own = torch.where(there, rows.error, int(Fault.PROTOCOL)).tolist()
        faults = torch.tensor(self._judged(own), dtype=torch.int32, device=self.mode.device)
        self._write(index, rows, faults)

    def _whole(self, shards: Sequence[Tensor] | Tensor) -> Tensor:
        """[B, stride] of each shard -> [B, V]."""
        bounds = self.head.geometry.bounds
        sizes = (last - first for first, last in bounds)
        return torch.cat([one[:, :size] for one, size in zip(shards, sizes, strict=True)], dim=1)

    def _bias(self, previous: Tensor) -> list[Tensor]:
        """[B] tokens -> [B, stride] bias rows of each shard: cached ones, the others computed."""
        slots = self.head.slot_of[previous].to(torch.int64)
        found = [rows[slots.clamp(min=0)] for rows in self.head.bias]
        lacking = (slots < 0).nonzero()[:, 0]
        if len(lacking):
            words = self.head.w1.index_select(0, previous[lacking])
            w1 = unpaired(words, self.head.geometry.rank_dim)
            for place, rows in enumerate(found):
                w2 = self.head.columns(place)
                rows[lacking, : len(w2)] = vectorised.markov_bias(w1, w2)
        return found

    def _judged(self, own: Sequence[int]) -> list[int]:
        """Fault of each row, words and epochs moved on as the kernel moves them."""
        words = self.link.words()
        # the first word that a peer writes of is the last that it writes, and the one looked at
        told = bool(words.own) or bool(self.link.told[0])
        sticky = max(words.own, words.peer) if told else Fault.NONE
        limit = self.link.bounds.epoch_limit
        epochs, modes, faults = list(words.epochs), self.mode.tolist(), []
        for row, fault in enumerate(own):
            if modes[row] == INACTIVE:
                faults.append(0)
                continue
            if sticky:
                fault = int(sticky)
            elif epochs[row] >= limit:
                fault = int(Fault.EPOCH_EXHAUSTED)
            else:
                epochs[row] += 1
            sticky = Fault(max(sticky, fault))
            faults.append(fault)
        self.link.own_error.clamp_(min=max(faults))
        self.link.epochs.copy_(torch.tensor(epochs))
        return faults

    def _write(self, index: int, rows: vectorised.Rows, faults: Tensor) -> None:
        failed, active = faults != 0, self.mode != INACTIVE
        ids, token = rows.ids, rows.token
        if self.head.geometry.mapped:
            ids, token = (vectorised.emitted(one, self.head.token_map) for one in (ids, token))
        ids = torch.where(active[:, None], ids, 0)
        token = torch.where(active, token, 0)
        self.ids[:, index] = torch.where(failed[:, None], -1, ids)
        self.q[:, index] = torch.where(failed[:, None], 0.0, rows.q)
        self.token[:, index] = torch.where(failed, -1, token)
        self.error[:, index] = faults
        self.chain[:, index + 1] = torch.where(failed, 0, token)
        self.stamp[:, index] = torch.where(failed, 0, self.link.epochs[: self.batch])
        self.waited[:, index] = 0


class _Position:
    """Stands where a block has its kernel: launched alike, with the same arguments."""

    def __init__(self, block: ReferenceBlock) -> None:
        self._block = block

    def __getitem__(self, grid: tuple[int, int]) -> _Position:
        return self

    def __call__(self, **arguments: Any) -> None:
        self._block.fill(arguments["index"])
