"""From logits to the distribution that is verified: in FP64, once, for drafted and plain rows."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def distributions(logits: Tensor, temperatures: Sequence[float]) -> Tensor:
    """Return ``softmax(logits / T)``; for T = 0 all of it on the largest logit, lower id on ties.

    Logits are compared before they are rounded to probabilities, so that at T = 0 no two of them
    tie that are different.  A row whose logits have no finite maximum gives no distribution, which
    the verifier reports.

    Args:
        logits: ``[B, m, V]``.
        temperatures: of each row, 0 or above.

    Returns:
        ``[B, m, V]`` float64, on the device of the logits.
    """
    wide = logits.to(torch.float64)
    most = wide.amax(dim=-1, keepdim=True)
    given = torch.tensor(temperatures, dtype=torch.float64, device=logits.device)[:, None, None]
    # the maximum goes first: divided by a tiny temperature it would be infinite
    p = ((wide - most) / torch.where(given > 0, given, 1.0)).softmax(dim=-1)
    if min(temperatures) > 0:
        return p
    ids = torch.arange(logits.shape[-1], device=logits.device)
    # torch promises no order among ties on every device
    first = torch.where(wide == most, ids, len(ids)).amin(dim=-1, keepdim=True)
    greedy = (ids == first) & most.isfinite()
    return torch.where(given > 0, p, greedy.to(torch.float64))
