"""What a case must give: by the exact integers of the reference, or by its tensors on a device."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import numpy as np
import torch

from pp4.kernels import vectorised
from pp4.kernels.block import Outputs, tensors_of
from pp4.kernels.expected import reference_outputs
from pp4.kernels.geometry import Geometry
from pp4.kernels.head import values_of
from pp4.kernels.reference import Row
from pp4.wire.facts import Case
from pp4.worker import inputs

_WORD = 0xFFFFFFFF


def by_integers(geometry: Geometry, case: Case, where: torch.device) -> Outputs:
    """Outputs by NumPy and Python integers; a tenth of a second for each row of a large shape."""
    w1, w2 = _weights(geometry, where)
    base = values_of(inputs.logits(geometry, case, where))
    return reference_outputs(w1, w2, inputs.requests(geometry, case), base)


@lru_cache(maxsize=1)
def _weights(geometry: Geometry, where: torch.device) -> tuple[Row, Row]:
    """The weights of a device as numbers on the host."""
    w1, w2 = inputs.weights(geometry, where)
    return values_of(w1), values_of(w2)


def by_tensors(geometry: Geometry, case: Case, where: torch.device) -> vectorised.Block:
    """Outputs by the vectorised reference, on the device."""
    requests = inputs.requests(geometry, case)
    given = {name: one.to(where) for name, one in tensors_of(requests).items()}
    return block_of(geometry, given, inputs.logits(geometry, case, where))


def block_of(
    geometry: Geometry, given: Mapping[str, torch.Tensor], base: torch.Tensor
) -> vectorised.Block:
    """The same for inputs that are there already, as a launch could be captured.

    Args:
        geometry: shapes and bounds.
        given: requests by member, as :func:`pp4.kernels.block.tensors_of` has them.
        base: ``[B, n_out, V]`` int16 patterns on the same device.
    """
    w1, w2 = inputs.weights(geometry, base.device)
    return vectorised.block(
        w1,
        w2,
        base=base,
        mode=given["mode"],
        key=given["key"],
        position=given["position"].long(),
        round=given["round"].long() & _WORD,
        anchor=given["anchor"].long(),
        bias_of=inputs.bias_of(geometry, base.device),
    )


def outputs(block: vectorised.Block) -> Outputs:
    """Copy to the host; the stamps are zero."""
    ids, q, token, error = (
        one.cpu().numpy() for one in (block.ids, block.q, block.token, block.error)
    )
    return Outputs(ids, q, token, error, stamp=np.zeros(token.shape, np.int64))
