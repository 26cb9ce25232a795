"""What a block must give, by the exact reference: the other side of every ``==``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pp4.kernels import dyadic24, reference
from pp4.kernels.block import Outputs, Request
from pp4.kernels.faults import Fault
from pp4.kernels.reference import Row
from pp4.kernels.sampled_fused import GREEDY, INACTIVE


def reference_outputs(
    w1: Row,
    w2: Row,
    requests: Sequence[Request],
    logits: Row,
    token_map: Sequence[int] | None = None,
) -> Outputs:
    """What the block must give, row by row through the exact reference; stamps are zero.

    Args:
        w1: ``[target vocab, R]``.
        w2: ``[V, R]``.
        requests: one per row.
        logits: ``[B, n_out, V]`` base logits.
        token_map: emitted id per draft id.
    """
    batch, n_out, _ = logits.shape
    ids = np.zeros((batch, n_out, dyadic24.WIDTH), np.int32)
    q = np.zeros((batch, n_out, dyadic24.WIDTH), np.float32)
    token, error = np.zeros((batch, n_out), np.int32), np.zeros((batch, n_out), np.int32)
    emitted = np.arange(len(w2)) if token_map is None else np.asarray(token_map)
    for row, request in enumerate(requests):
        if request.mode == INACTIVE:
            continue
        previous, broken = request.anchor, Fault.NONE
        for index in range(n_out):
            bias = reference.markov_bias(w1[previous], w2)
            chosen = reference.select_row(
                reference.conditioned(logits[row, index], bias),
                key=request.key, position=request.position + index, round=request.round,
                greedy=request.mode == GREEDY,
            )  # fmt: skip
            broken = broken or chosen.error
            if broken:
                ids[row, index], token[row, index], error[row, index] = -1, -1, broken
                previous = 0
                continue
            listed = np.array(chosen.ids)
            ids[row, index] = np.where(listed >= 0, emitted[listed], -1)
            q[row, index] = chosen.q
            previous = int(emitted[chosen.token])
            token[row, index] = previous
    return Outputs(ids, q, token, error, np.zeros((batch, n_out), np.int64))
