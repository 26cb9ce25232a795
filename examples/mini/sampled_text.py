"""Text sampled from the target, which is what a drafter meets when the pair decodes."""

from __future__ import annotations

import torch
from torch import Tensor

from examples.mini.target_model import TargetModel


@torch.no_grad()
def continued(
    model: TargetModel, prompts: Tensor, *, never: int, warmth: Tensor, generator: torch.Generator
) -> Tensor:
    """Sample until the context is full.

    Args:
        model: the target, in evaluation mode.
        prompts: ``[B, P]`` int64, P from 1.
        never: token that is not sampled.
        warmth: ``[B]`` temperatures above 0.
        generator: on the model's device.

    Returns:
        ``[B, context]`` int64: the prompts and what follows.
    """
    sizes, batch = model.sizes, len(prompts)
    shape = (sizes.layers, batch, sizes.kv_heads, model.context, sizes.head_dim)
    keys = torch.zeros(shape, dtype=model.dtype, device=model.device)
    values = torch.zeros_like(keys)
    tokens = torch.zeros(batch, model.context, dtype=torch.int64, device=model.device)
    tokens[:, : prompts.shape[1]] = prompts
    for position in range(model.context - 1):
        logits = model.stepped(tokens[:, position], position, keys, values)
        if position + 1 < prompts.shape[1]:
            continue
        logits[:, never] = -torch.inf
        chances = (logits / warmth[:, None]).softmax(-1)
        tokens[:, position + 1] = torch.multinomial(chances, 1, generator=generator)[:, 0]
    return tokens


def warmths(batch: int, device: torch.device) -> Tensor:
    """Temperatures of a batch: 1.0 and 0.7 in turn; -> ``[B]`` float32."""
    places = torch.arange(batch, device=device)
    return torch.where(places % 2 == 0, 1.0, 0.7)
