"""Proposals of one step side by side, as tensors on the device of the target's distributions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pp4.errors import BadInputError
from pp4.kernels import dyadic24
from pp4.kernels.vectorised_rows import require
from pp4.verifier.proposal import Proposal
from pp4.verifier.units import Mode


@dataclass(frozen=True, slots=True)
class Batch:
    """B proposals of one depth n.

    Attributes:
        ids: ``[B, n, 32]`` int32.
        tickets: ``[B, n, 32]`` int32.
        tokens: ``[B, n]`` int32.
        mode: ``[B]`` int32, a :class:`Mode`; what an ``INACTIVE`` row has elsewhere means nothing.
        key: ``[B]`` int64; the sign bit is the key's top bit.
        position: ``[B]`` int64, 32 bits.
        round: ``[B]`` int64, 32 bits.
    """

    ids: Tensor
    tickets: Tensor
    tokens: Tensor
    mode: Tensor
    key: Tensor
    position: Tensor
    round: Tensor

    def check(self) -> tuple[int, int]:
        """Return B and n.

        Raises:
            BadInputError: a dtype or shape does not fit; no value is looked at.
        """
        require("tokens", self.tokens, torch.int32, (None, None))
        count, depth = self.tokens.shape
        if not depth:
            raise BadInputError.of("tokens", "at least one position", "none")
        for name, candidates in (("ids", self.ids), ("tickets", self.tickets)):
            require(name, candidates, torch.int32, (count, depth, dyadic24.WIDTH))
        require("mode", self.mode, torch.int32, (count,))
        for name, words in (("key", self.key), ("position", self.position), ("round", self.round)):
            require(name, words, torch.int64, (count,))
        return count, depth


def stacked(
    proposals: Sequence[Proposal | None], depth: int, device: torch.device | str = "cpu"
) -> Batch:
    """Put proposals side by side, one copy to the device for each member.

    Args:
        proposals: of that depth; None gives an inactive row.
        depth: n.
        device: of the tensors.

    Raises:
        BadInputError: a proposal of another depth.
    """
    count, shape = len(proposals), (len(proposals), depth)
    ids = np.full((*shape, dyadic24.WIDTH), -1, np.int32)
    tickets = np.zeros((*shape, dyadic24.WIDTH), np.int32)
    tokens = np.zeros(shape, np.int32)
    mode = np.full(count, int(Mode.INACTIVE), np.int32)
    key = np.zeros(count, np.uint64)
    position, round = np.zeros(count, np.int64), np.zeros(count, np.int64)
    for row, one in enumerate(proposals):
        if one is None:
            continue
        if one.depth != depth:
            raise BadInputError.of(f"proposals[{row}]", f"depth {depth}", f"depth {one.depth}")
        ids[row], tickets[row], tokens[row], mode[row] = one.ids, one.tickets, one.tokens, one.mode
        key[row], position[row], round[row] = one.key, one.position, one.round
    arrays = (ids, tickets, tokens, mode, key.view(np.int64), position, round)
    return Batch(*(torch.from_numpy(array).to(device) for array in arrays))
