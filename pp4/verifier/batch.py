"""Proposals of one step side by side, as tensors on the device of the target's distributions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pp4.errors import BadInputError
from pp4.kernels import dyadic24
from pp4.kernels.vectorised_rows import require
from pp4.verifier.proposal import Proposal
from pp4.verifier.units import Mode

_ALIGNMENT: Final = 16
"""Bytes, as kernels take it for granted of memory of its own."""


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
    """Put proposals side by side, see :func:`members`; one copy to the device.

    Args:
        proposals: of that depth; None gives an inactive row.
        depth: n.
        device: of the tensors.

    Raises:
        BadInputError: a proposal of another depth.
    """
    return Batch(*moved(members(proposals, depth), device))


def members(proposals: Sequence[Proposal | None], depth: int) -> tuple[NDArray[Any], ...]:
    """Put proposals side by side, as arrays: the members of a :class:`Batch` in order.

    Args:
        proposals: of that depth; None gives an inactive row.
        depth: n.

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
    return ids, tickets, tokens, mode, key.view(np.int64), position, round


def moved(arrays: Sequence[NDArray[Any]], device: torch.device | str) -> list[Tensor]:
    """Move arrays to a device: to a GPU by one copy for all of them, which is not waited for.

    Args:
        arrays: each in one piece, and not written to any more.
        device: of the tensors.

    Returns:
        A tensor of each, on a GPU all of one memory.
    """
    if torch.device(device).type != "cuda":
        return [torch.from_numpy(array).to(device) for array in arrays]
    # torch gives pinned memory to nobody else before what was copied from it is there
    whole = torch.empty(_places(arrays)[-1], dtype=torch.uint8, pin_memory=True)
    pack(arrays, whole.numpy())
    return unpacked(whole.to(device, non_blocking=True), arrays)


def pack(arrays: Sequence[NDArray[Any]], whole: NDArray[np.uint8]) -> None:
    """Write arrays behind each other, each to a place that kernels take for aligned.

    Args:
        arrays: each in one piece.
        whole: of at least as many bytes as that takes.
    """
    for array, first in zip(arrays, _places(arrays), strict=False):
        whole[first : first + array.nbytes] = array.reshape(-1).view(np.uint8)


def unpacked(whole: Tensor, arrays: Sequence[NDArray[Any]]) -> list[Tensor]:
    """The tensors of arrays that were packed; they share its memory.

    Args:
        whole: uint8, what :func:`pack` wrote or a copy of it.
        arrays: what was packed; only their types and shapes are looked at.
    """
    return [
        whole[first : first + array.nbytes].view(torch.from_numpy(array).dtype).view(array.shape)
        for array, first in zip(arrays, _places(arrays), strict=False)
    ]


def _places(arrays: Sequence[NDArray[Any]]) -> list[int]:
    """Where each array begins, and where the last one ends."""
    places = [0]
    for array in arrays:
        places.append(places[-1] + -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT)
    return places
