"""A target's tensors: which ones its config calls for, and what is held of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from pp4.drafter.checkpoint.tensors import LM_HEAD, Wanted, layer_name, layer_parts
from pp4.engine.target.config import TargetConfig

EMBEDDING: Final = "model.embed_tokens.weight"
NORM: Final = "model.norm.weight"


def wanted(config: TargetConfig) -> dict[str, Wanted]:
    """The tensors of a checkpoint by name, in the order in which they are used."""
    return {one.name: one for one in _wanted(config)}


def _wanted(config: TargetConfig) -> Iterator[Wanted]:
    yield Wanted(EMBEDDING, (config.vocab, config.hidden))
    for index in range(config.layers):
        for part, shape in layer_parts(config).items():
            yield Wanted(f"model.{layer_name(index, part)}", shape)
    yield Wanted(NORM, (config.hidden,))
    # Some exports write a tied head out all the same; the embedding is what counts.
    own = not config.tied
    yield Wanted(LM_HEAD, (config.vocab, config.hidden), required=own, read=own)


@dataclass(frozen=True, slots=True)
class TargetWeights:
    """A whole target.

    Attributes:
        config: what it is.
        tensors: by the checkpoint's names, all of one type on one device; a tied head is not
            among them.
    """

    config: TargetConfig
    tensors: Mapping[str, Tensor]

    @property
    def device(self) -> torch.device:
        """Where the tensors lie."""
        return self.embedding.device

    @property
    def embedding(self) -> Tensor:
        """``[vocab, hidden]``: a row for each token."""
        return self.tensors[EMBEDDING]

    @property
    def head(self) -> Tensor:
        """``[vocab, hidden]``: a row for each token; the embedding where the head is tied."""
        return self.tensors[EMBEDDING if self.config.tied else LM_HEAD]

    @property
    def norm(self) -> Tensor:
        """``[hidden]``: of the norm before the head."""
        return self.tensors[NORM]

    def layer(self, index: int, part: str) -> Tensor:
        """A tensor of a decoder layer, such as ``self_attn.q_proj``."""
        return self.tensors[f"model.{layer_name(index, part)}"]
