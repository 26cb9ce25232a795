"""Blocks of a batch of sequences: what the drafter says there, and what the target would."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from examples.mini.drafter_model import DrafterModel
from examples.mini.target_model import TargetModel


class Asked(NamedTuple):
    """What the target gives for A blocks of each sequence.

    Attributes:
        features: ``[B, T, feature width]``.
        logits: ``[B, A, block, vocab]`` float32 of the tokens 1 to ``block`` places after each
            anchor.
    """

    features: Tensor
    logits: Tensor


class Drafted(NamedTuple):
    """What the drafter makes of the same blocks, the text's own tokens before each position.

    Attributes:
        logits: ``[B, A, block, vocab]``, conditioned.
        scores: ``[B, A, block]`` float32, confidences before the logistic function.
    """

    logits: Tensor
    scores: Tensor


def last_place(length: int, block: int) -> int:
    """Last position of an anchor whose block has all of its tokens in a sequence."""
    return length - block - 1


def at(tokens: Tensor, places: Tensor, first: int, count: int) -> Tensor:
    """Entries of every sequence near each anchor.

    Args:
        tokens: ``[B, T, ...]``.
        places: ``[A]`` int64 positions of the anchors.
        first: from the anchor to the first one.
        count: of consecutive ones.

    Returns:
        ``[B, A, count, ...]``.
    """
    near = places[:, None] + torch.arange(first, first + count, device=places.device)
    return tokens[:, near]


def previous(tokens: Tensor, places: Tensor, block: int) -> Tensor:
    """Tokens before each position of a block, the anchor first; -> ``[B, A, block]``."""
    return at(tokens, places, 0, block)


def labels(tokens: Tensor, places: Tensor, block: int) -> Tensor:
    """The text's token at each position of a block; -> ``[B, A, block]``."""
    return at(tokens, places, 1, block)


@torch.no_grad()
def asked(target: TargetModel, tokens: Tensor, places: Tensor, block: int) -> Asked:
    """Run the target over sequences ``[B, T]`` for blocks whose anchors stand at ``[A]`` places."""
    hidden, features = target(tokens)
    return Asked(features, target.logits(at(hidden, places, 0, block)))


def drafted(drafter: DrafterModel, features: Tensor, tokens: Tensor, places: Tensor) -> Drafted:
    """Run the drafter over the same."""
    before = previous(tokens, places, drafter.config.block)
    hidden = drafter.hidden(features, before[:, :, 0], places)
    logits = drafter.conditioned(drafter.base(hidden), before)
    return Drafted(logits, drafter.scores(hidden, before))
