"""A rank's part of a drafter's tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from pp4.drafter.checkpoint import tensors as names
from pp4.drafter.config import DrafterConfig, bounds_of


@dataclass(frozen=True, slots=True)
class Weights:
    """What one rank holds: the whole backbone, and its rows of the two heads.

    Attributes:
        config: what the drafter is.
        rank: this rank.
        world: ranks that the draft vocabulary is split over, 1 or 2.
        tensors: by the checkpoint's names; of the LM head and of W2 the rank's rows.
        token_map: ``[draft vocab]`` int32 ids that are emitted, strictly rising; None where the
            ids are the same.
    """

    config: DrafterConfig
    rank: int
    world: int
    tensors: Mapping[str, Tensor]
    token_map: Tensor | None = None

    @property
    def bounds(self) -> tuple[int, int]:
        """First and past-the-last draft id of this rank."""
        return bounds_of(self.config.draft_vocab, self.world)[self.rank]

    @property
    def device(self) -> torch.device:
        """Where the tensors lie."""
        return self.head.device

    @property
    def bytes(self) -> int:
        """Bytes of all tensors."""
        own = list(self.tensors.values())
        own += [] if self.token_map is None else [self.token_map]
        return sum(one.numel() * one.element_size() for one in own)

    @property
    def embedding(self) -> Tensor:
        """``[vocab, hidden]``: a row for each token of the target."""
        return self.tensors[names.EMBEDDING]

    @property
    def head(self) -> Tensor:
        """``[columns, hidden]``: the rank's rows of the LM head."""
        return self.tensors[names.LM_HEAD]

    @property
    def w1(self) -> Tensor:
        """``[vocab, markov_rank]``: a row for each token of the target."""
        return self.tensors[names.W1]

    @property
    def w2(self) -> Tensor:
        """``[columns, markov_rank]``: the rank's rows, a row for each draft id."""
        return self.tensors[names.W2]

    @property
    def confidence(self) -> tuple[Tensor, Tensor | None] | None:
        """``[1, width]`` and ``[1]`` or None; None where there is no confidence head."""
        weight = self.tensors.get(names.CONFIDENCE)
        return None if weight is None else (weight, self.tensors.get(names.CONFIDENCE_BIAS))

    def layer(self, index: int, part: str) -> Tensor:
        """A tensor of a decoder layer, such as ``self_attn.q_proj``."""
        return self.tensors[names.layer_name(index, part)]
