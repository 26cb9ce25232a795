"""Sizes of the pair and of its training: the real ones, and tiny ones for a test on a CPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pp4.drafter.config import DrafterConfig, Layout


@dataclass(frozen=True, slots=True)
class TargetSizes:
    """What ``config.json`` of a Qwen3ForCausalLM says; the head is the embedding.

    Attributes:
        vocab: tokens.
        hidden: width of the hidden states.
        layers: decoder layers.
        heads: query heads.
        kv_heads: key and value heads; a divisor of ``heads``.
        head_dim: width of a head, even.
        intermediate: width inside the feed-forward network.
        positions: positions that the config allows.
        rope_theta: base of the rotary frequencies.
        norm_eps: added to the mean square in every RMSNorm.
    """

    vocab: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    positions: int
    rope_theta: float
    norm_eps: float


@dataclass(frozen=True, slots=True)
class Fitting:
    """How one of the two models is fitted.

    Attributes:
        batch: sequences of a step.
        rate: largest learning rate.
        warmup: steps until it is reached; it falls to a hundredth by a cosine from there on.
        weight_decay: of matrices; AdamW's.
        average: share of the averaged weights that stays at each step, once there were enough.
        evaluations: looks at the validation split, about.
        passes: most passes over the training split.
        steps: of a run that is not limited by seconds; None for one that is.
    """

    batch: int
    rate: float
    warmup: int
    weight_decay: float
    average: float
    evaluations: int
    passes: float
    steps: int | None = None


@dataclass(frozen=True, slots=True)
class Recipe:
    """The whole training.

    Attributes:
        target: sizes of the target.
        drafter: sizes of the drafter.
        context: tokens of a sequence.
        dropout: of the target's sublayers while it is trained.
        anchors: blocks of a sequence in a step of the drafter.
        sampled_rounds: how often text is sampled from the target.
        sampled_batch: sequences of such a round.
        prompt: tokens of real text that a sampled sequence starts with.
        fit_target: how the target is fitted.
        fit_drafter: how the drafter is fitted.
    """

    target: TargetSizes
    drafter: DrafterConfig
    context: int
    dropout: float
    anchors: int
    sampled_rounds: int
    sampled_batch: int
    prompt: int
    fit_target: Fitting
    fit_drafter: Fitting


def _drafter(
    target: TargetSizes, *, layers: int, intermediate: int, taps: tuple[int, ...], rank: int
) -> DrafterConfig:
    """A drafter of this target, with blocks of five; the mask is the last token."""
    return DrafterConfig(
        layout=Layout.DEEPSPEC,
        hidden=target.hidden,
        layers=layers,
        heads=target.heads,
        kv_heads=target.kv_heads,
        head_dim=target.head_dim,
        intermediate=intermediate,
        norm_eps=target.norm_eps,
        rope_theta=target.rope_theta,
        max_positions=target.positions,
        vocab=target.vocab,
        draft_vocab=target.vocab,
        block=5,
        mask_token=target.vocab - 1,
        target_layers=taps,
        markov_rank=rank,
        confidence=True,
        confidence_with_markov=True,
    )


_MINI: Final = TargetSizes(
    vocab=1024,
    hidden=256,
    layers=4,
    heads=4,
    kv_heads=2,
    head_dim=64,
    intermediate=640,
    positions=2048,
    rope_theta=1e4,
    norm_eps=1e-6,
)
_TINY: Final = TargetSizes(
    vocab=320,
    hidden=32,
    layers=3,
    heads=4,
    kv_heads=2,
    head_dim=8,
    intermediate=48,
    positions=128,
    rope_theta=1e4,
    norm_eps=1e-6,
)

MINI: Final = Recipe(
    target=_MINI,
    drafter=_drafter(_MINI, layers=2, intermediate=384, taps=(0, 1, 3), rank=64),
    context=512,
    dropout=0.15,
    anchors=64,
    sampled_rounds=4,
    sampled_batch=2048,
    prompt=128,
    fit_target=Fitting(
        batch=32,
        rate=3e-3,
        warmup=300,
        weight_decay=0.1,
        average=0.998,
        evaluations=40,
        passes=40,
    ),
    fit_drafter=Fitting(
        batch=64,
        rate=2e-3,
        warmup=300,
        weight_decay=0.05,
        average=0.998,
        evaluations=40,
        passes=400,
    ),
)
"""The pair that is published."""

SMOKE: Final = Recipe(
    target=_TINY,
    drafter=_drafter(_TINY, layers=2, intermediate=40, taps=(0, 2), rank=8),
    context=64,
    dropout=0.1,
    anchors=8,
    sampled_rounds=1,
    sampled_batch=8,
    prompt=16,
    fit_target=Fitting(
        batch=8,
        rate=1e-2,
        warmup=5,
        weight_decay=0.1,
        average=0.9,
        evaluations=4,
        passes=1000,
        steps=100,
    ),
    fit_drafter=Fitting(
        batch=8,
        rate=1e-2,
        warmup=5,
        weight_decay=0.05,
        average=0.9,
        evaluations=4,
        passes=1000,
        steps=100,
    ),
)
"""Everything in seconds on a CPU; what comes out drafts badly."""
