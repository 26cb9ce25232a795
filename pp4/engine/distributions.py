"""From logits to the distribution that is verified: in FP64, once, for drafted and plain rows."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def distributions(logits: Tensor, temperatures: Sequence[float], given: Tensor) -> Tensor:
    """Return ``softmax(logits / T)``; for T = 0 all of it on the largest logit, lower id on ties.

    Logits are compared before they are rounded to probabilities, so that at T = 0 no two of them
    tie that are different.  A row whose logits have no finite maximum gives no distribution, which
    the verifier reports.

    Args:
        logits: ``[B, m, V]``.
        temperatures: of each row, 0 or above.
        given: the same, ``[B]`` float64 on the device of the logits.

    Returns:
        ``[B, m, V]`` float64, on the device of the logits.
    """
    wide = logits.to(torch.float64)
    most = wide.amax(dim=-1, keepdim=True)
    if max(temperatures) == 0:
        return _largest(wide, most)
    given = given[:, None, None]
    # the maximum goes first: divided by a tiny temperature it would be infinite
    p = ((wide - most) / given).softmax(dim=-1)
    if min(temperatures) > 0:
        return p
    # what came of a division by 0 is not taken
    return torch.where(given > 0, p, _largest(wide, most))


def _largest(wide: Tensor, most: Tensor) -> Tensor:
    """All of it on the first of the largest, nothing where none is finite."""
    ids = torch.arange(wide.shape[-1], device=wide.device)
    # torch promises no order among ties on every device
    first = torch.where(wide == most, ids, len(ids)).amin(dim=-1, keepdim=True)
    return ((ids == first) & most.isfinite()).to(torch.float64)
