"""What a drafter is, as its checkpoint says it; sizes alone, without torch."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pp4.errors import BadInputError
from pp4.kernels.geometry import MAX_TILE, MAX_TILES, Geometry

WORLDS: Final = (1, 2)
"""Ranks that a vocabulary is split over: one holds the whole, two hold about half each."""
MAX_VOCAB: Final = 2 * MAX_TILES * MAX_TILE
"""Largest vocabulary that splits into two shards."""


class Layout(StrEnum):
    """The published way in which a checkpoint is written."""

    DEEPSPEC = "deepspec"
    SPECULATORS = "speculators"


@dataclass(frozen=True, slots=True)
class DrafterConfig:
    """Sizes of a DSpark drafter with a backbone of the Qwen3 family.

    Attributes:
        layout: how the checkpoint is written.
        hidden: width of the hidden states, of the drafter and of the target.
        layers: decoder layers of the drafter.
        heads: query heads.
        kv_heads: key and value heads; a divisor of ``heads``.
        head_dim: width of a head, even.
        intermediate: width inside the feed-forward network.
        norm_eps: added to the mean square in every RMSNorm.
        rope_theta: base of the rotary frequencies.
        max_positions: positions that the backbone was made for.
        vocab: tokens of the target: rows of the embedding and of the Markov head's W1.
        draft_vocab: tokens that can be drafted: rows of the LM head and of W2.
        block: queries of a block, the anchor among them; as many positions can be drafted.
        mask_token: token that stands in the queries after the anchor.
        target_layers: layers of the target whose outputs are the features, rising; -1 is the
            embedding's output.
        markov_rank: inner dimension of the Markov head.
        confidence: whether there is a confidence head.
        confidence_with_markov: whether it sees W1 of the token before beside the hidden state.
        softcap: bound of the base logits by tanh, None where they are not bounded.
    """

    layout: Layout
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    norm_eps: float
    rope_theta: float
    max_positions: int
    vocab: int
    draft_vocab: int
    block: int
    mask_token: int
    target_layers: tuple[int, ...]
    markov_rank: int
    confidence: bool
    confidence_with_markov: bool
    softcap: float | None = None

    @property
    def feature_width(self) -> int:
        """Elements of the target's features of one token, all layers side by side."""
        return len(self.target_layers) * self.hidden

    @property
    def confidence_width(self) -> int:
        """Inputs of the confidence head; 0 where there is none."""
        if not self.confidence:
            return 0
        return self.hidden + (self.markov_rank if self.confidence_with_markov else 0)

    @property
    def mapped(self) -> bool:
        """Whether draft ids differ from target ids."""
        return self.draft_vocab < self.vocab


def split_of(vocab: int) -> int:
    """First id of the second shard; of an odd vocabulary the first shard has one more."""
    return (vocab + 1) // 2


def bounds_of(vocab: int, world: int) -> tuple[tuple[int, int], ...]:
    """First and past-the-last id of each rank's shard.

    Args:
        vocab: rows that are split, those of the draft vocabulary.
        world: ranks, 1 or 2.

    Raises:
        BadInputError: another world, or a vocabulary that does not split.
    """
    if world not in WORLDS:
        raise BadInputError.of("world", "1 or 2 ranks", str(world))
    if world == 1:
        return ((0, vocab),)
    return Geometry(vocab=vocab, split=split_of(vocab), tile=MAX_TILE).bounds
