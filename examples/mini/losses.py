"""The losses of DSpark (arXiv 2607.05147), with the published weights."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from examples.mini.blocks import Drafted

CROSS_ENTROPY: Final = 0.1
"""Weight of the cross entropy to the text's token."""
VARIATION: Final = 0.9
"""Weight of the total variation to the target's distribution."""
CONFIDENCE: Final = 1.0
"""Weight of the confidence's binary cross entropy."""


def position_weights(block: int, device: torch.device) -> Tensor:
    """``exp(-(k - 1) / block)`` for k from 1, their sum 1; -> ``[block]`` float32."""
    places = torch.arange(block, dtype=torch.float32, device=device)
    weights = torch.exp(-places / block)
    return weights / weights.sum()


def variation(drafter: Tensor, target: Tensor) -> Tensor:
    """Total variation of two distributions given by logits ``[..., V]``; -> ``[...]`` float32."""
    difference = drafter.float().softmax(-1) - target.float().softmax(-1)
    return 0.5 * difference.abs().sum(-1)


def drafter_loss(drafted: Drafted, target: Tensor, labels: Tensor) -> Tensor:
    """The weighted loss of blocks, averaged over them.

    Args:
        drafted: of ``[B, A]`` blocks.
        target: ``[B, A, block, V]`` logits.
        labels: ``[B, A, block]`` int64: the text's tokens.

    Returns:
        A scalar, float32.
    """
    entropy = functional.cross_entropy(
        drafted.logits.float().flatten(0, 2), labels.flatten(), reduction="none"
    ).view(labels.shape)
    apart = variation(drafted.logits, target)
    confidence = functional.binary_cross_entropy_with_logits(
        drafted.scores, 1 - apart.detach(), reduction="none"
    )
    each = CROSS_ENTROPY * entropy + VARIATION * apart + CONFIDENCE * confidence
    return (each * position_weights(labels.shape[-1], labels.device)).sum(-1).mean()
