"""What keeping the 32 best candidates, as integer tickets, costs against the whole softmax.

These figures are FP64 on the host and are not part of any digest: an exponential may round
otherwise on another machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from pp4.engine.replay.heldout import TEMPERATURES, Heldout
from pp4.engine.replay.producing import Drafts
from pp4.engine.replay.weights import target_weights
from pp4.kernels import dyadic24, vectorised
from pp4.verifier.units import TOTAL

TAU: Final = float(dyadic24.TAU)


@dataclass(frozen=True, slots=True)
class Loss:
    """One block.

    Attributes:
        variation: ``[n]`` total variation from q to the softmax that is not truncated.
        shared: ``[T, n]`` sum of min(p, softmax) at each temperature of the target: what acceptance
            would be without truncation.
    """

    variation: NDArray[np.float64]
    shared: NDArray[np.float64]


def untruncated(held: Heldout, first: int, last: int) -> NDArray[np.float64]:
    """The softmax of the conditioned logits of the sampled chain at tau, all of the vocabulary.

    Returns:
        ``[B, n, V]`` float64.
    """
    w1, w2 = (one.view(torch.int16) for one in (held.w1, held.w2))
    rows = []
    for index in range(held.sizes.depth):
        previous = held.sampled.previous[first:last, index].long()
        bias = vectorised.markov_bias(w1.index_select(0, previous), w2)
        base = held.base[first:last, index].contiguous().view(torch.int16)
        patterns = vectorised.conditioned(base, bias)
        # a BF16 pattern is the upper half of the FP32 value
        values = (patterns << 16).view(torch.float32).double().numpy()
        powers = np.exp((values - values.max(axis=1, keepdims=True)) / TAU)
        rows.append(powers / powers.sum(axis=1, keepdims=True))
    return np.stack(rows, axis=1)


def losses(held: Heldout, drafts: Drafts, first: int) -> list[Loss]:
    """Measure the sampled chains of some blocks.

    Args:
        held: the file.
        drafts: of the blocks from ``first``.
        first: of the blocks.
    """
    last = first + len(drafts.tokens)
    whole = untruncated(held, first, last)
    q = np.zeros_like(whole)
    rows, places, slots = np.nonzero(drafts.ids >= 0)
    q[rows, places, drafts.ids[rows, places, slots]] = drafts.q[rows, places, slots]
    variation = np.abs(q - whole).sum(axis=2) / 2
    found = []
    for row in range(last - first):
        target = held.sampled.targets[first + row, :, :-1].numpy()
        flat = target_weights(target.reshape(-1, target.shape[2])).rows / TOTAL
        p = flat.reshape(target.shape)
        found.append(Loss(variation[row], np.minimum(p, whole[row]).sum(axis=2)))
    return found


def summary(blocks: Sequence[Loss]) -> list[dict[str, Any]]:
    """Sum up by position; ready for JSON.

    Args:
        blocks: at least one.

    Returns:
        For each position the ``mean`` and the ``largest`` total variation, and by temperature what
        would be ``shared`` with the target without truncation.
    """
    variation = np.stack([one.variation for one in blocks])
    shared = np.stack([one.shared for one in blocks])
    return [
        {
            "mean": float(variation[:, index].mean()),
            "largest": float(variation[:, index].max()),
            "shared": {
                temperature: float(shared[:, place, index].mean())
                for place, temperature in enumerate(TEMPERATURES)
            },
        }
        for index in range(variation.shape[1])
    ]
