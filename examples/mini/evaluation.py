"""What the pair does on a split, the text's own tokens before each position.

The draft distribution is the one that pp4 proposes from: the 32 best conditioned logits at tau 0.7,
here in FP32 where pp4 has integer tickets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from examples.mini import losses
from examples.mini.blocks import Drafted, asked, drafted, labels, last_place
from examples.mini.drafter_model import DrafterModel
from examples.mini.target_model import TargetModel, text_loss
from pp4.kernels.dyadic24 import WIDTH

TAU: Final = 0.7
"""Temperature of the draft distribution, whatever the request's is."""
TEMPERATURES: Final = (0.7, 1.0)
"""Temperatures of the target at which acceptance is told."""
BINS: Final = 10
"""Bins of confidences, equally wide, for the calibration error."""
_AT_ONCE: Final = 32
"""Sequences of a forward pass."""


@torch.no_grad()
def target_loss(model: TargetModel, windows: Tensor) -> float:
    """Mean cross entropy of all but the first tokens of windows ``[N, T + 1]``, in nats."""
    total = torch.zeros((), dtype=torch.float64, device=windows.device)
    for part in windows.split(_AT_ONCE):
        total += text_loss(model, part).double() * len(part)
    return float(total) / len(windows)


def spread_places(first: int, last: int, count: int, device: torch.device) -> Tensor:
    """Positions evenly spread from the first to the last one; -> ``[count]`` int64."""
    return torch.linspace(first, last, count, device=device).round().long()


@torch.no_grad()
def drafter_loss(
    drafter: DrafterModel, target: TargetModel, windows: Tensor, anchors: int
) -> float:
    """The loss of :mod:`examples.mini.losses` on windows ``[N, T]``."""
    block = drafter.config.block
    last = last_place(windows.shape[1], block)
    places = spread_places(1, last, anchors, windows.device)
    total = torch.zeros((), dtype=torch.float64, device=windows.device)
    for part in windows.split(_AT_ONCE):
        wanted = asked(target, part, places, block)
        made = drafted(drafter, wanted.features, part, places)
        loss = losses.drafter_loss(made, wanted.logits, labels(part, places, block))
        total += loss.double() * len(part)
    return float(total) / len(windows)


def proposal(conditioned: Tensor) -> Tensor:
    """Conditioned logits ``[..., V]`` -> probabilities of a draft ``[..., V]`` float32.

    Of equal logits the lower id comes first, as in pp4.
    """
    values, ids = conditioned.float().sort(dim=-1, descending=True, stable=True)
    best = (values[..., :WIDTH] / TAU).softmax(-1)
    return torch.zeros_like(values).scatter_(-1, ids[..., :WIDTH], best)


def acceptance(conditioned: Tensor, target: Tensor, temperature: float) -> Tensor:
    """Chance that a draft is accepted: ``sum_v min(p, q)``; logits ``[..., V]`` -> ``[...]``."""
    chances = (target.float() / temperature).softmax(-1)
    return torch.minimum(chances, proposal(conditioned)).sum(-1)


@dataclass(slots=True)
class _Sums:
    """Sums over blocks, by name: ``[block]`` each."""

    blocks: int
    by_name: dict[str, Tensor]
    bins: Tensor

    def add(self, name: str, values: Tensor) -> None:
        """Add ``[B, A, block]`` values."""
        summed = values.double().sum((0, 1))
        self.by_name[name] = self.by_name.get(name, torch.zeros_like(summed)) + summed


@torch.no_grad()
def measured(
    drafter: DrafterModel, target: TargetModel, windows: Tensor, anchors: int, first: int = 1
) -> dict[str, Any]:
    """Acceptance, agreement and confidence per position.

    Args:
        drafter: in evaluation mode.
        target: in evaluation mode.
        windows: ``[N, T]`` int64.
        anchors: blocks of a window.
        first: position of the first anchor.

    Returns:
        Ready for JSON; see the record.
    """
    block = drafter.config.block
    last = last_place(windows.shape[1], block)
    places = spread_places(first, last, anchors, windows.device)
    sums = _Sums(0, {}, torch.zeros(3, BINS, dtype=torch.float64, device=windows.device))
    for part in windows.split(_AT_ONCE):
        wanted = asked(target, part, places, block)
        made = drafted(drafter, wanted.features, part, places)
        _count(sums, made, wanted.logits)
        sums.blocks += len(part) * len(places)
    means = {
        name: [round(value / sums.blocks, 5) for value in values.tolist()]
        for name, values in sums.by_name.items()
    }
    calibration = {
        "mean_confidence": means.pop("confidence"),
        "mean_label": means.pop("label"),
        "expected_calibration_error": round(_calibration_error(sums.bins), 5),
    }
    return {"blocks": sums.blocks, **means, "confidence": calibration}


def _count(sums: _Sums, made: Drafted, wanted: Tensor) -> None:
    for temperature in TEMPERATURES:
        chance = acceptance(made.logits, wanted, temperature)
        sums.add(f"acceptance_at_temperature_{temperature}", chance)
    sums.add("greedy_agreement", made.logits.argmax(-1) == wanted.argmax(-1))
    label, confidence = 1 - losses.variation(made.logits, wanted), made.scores.sigmoid()
    sums.add("label", label)
    sums.add("confidence", confidence)
    places = (confidence * BINS).long().clamp(max=BINS - 1).flatten()
    for row, values in enumerate((torch.ones_like(confidence), confidence, label)):
        sums.bins[row].index_add_(0, places, values.flatten().double())


def _calibration_error(bins: Tensor) -> float:
    """Mean distance of confidence and label, by bins, weighted by what is in them."""
    count, confidence, label = bins
    return float((confidence - label).abs().sum() / count.sum())


def bits_per_byte(nats: float, tokens: int, size: int) -> float:
    """Nats of a mean token -> bits of a byte.

    Args:
        nats: mean cross entropy.
        tokens: of the split, end tokens too.
        size: bytes of the split's files.
    """
    return nats / math.log(2) * tokens / size
