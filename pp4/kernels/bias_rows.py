"""Markov bias rows of previous tokens, bit for bit by the tree of docs/numerics.md.

On a GPU one kernel streams the weights once for each row and keeps no product outside of registers;
elsewhere it is :func:`pp4.kernels.vectorised.markov_bias`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pp4.errors import BadInputError
from pp4.kernels import vectorised
from pp4.kernels.compile import Compiled
from pp4.kernels.device import bias_rows as device_rows
from pp4.kernels.loading import load_as_called, stand_in
from pp4.kernels.vectorised_rows import require

SPAN = 128
ALIGNMENT = 16
_OPTIONS = {"num_warps": 4, "enable_fp_fusion": False}
_TYPES = {"previous_ptr": "*i32", "w1_ptr": "*i16", "w2_ptr": "*i16", "out_ptr": "*i16"}


def bias_rows(previous: Tensor, w1: Tensor, w2: Tensor) -> Tensor:
    """Bias of every column after some tokens; nothing is read back to the host.

    Args:
        previous: ``[N]`` int32 tokens.  On a GPU a token that does not exist gives a row of NaN.
        w1: ``[target vocab, R]`` int16 BF16 patterns, R a power of two.
        w2: ``[V, R]`` int16 BF16 patterns.

    Returns:
        ``[N, V]`` int16 BF16 patterns.

    Raises:
        BadInputError: a dtype or shape does not fit, or weights start where no kernel reads them.
    """
    if w2.device.type != "cuda":
        return vectorised.markov_bias(w1.index_select(0, previous), w2)
    out = torch.empty((len(previous), len(w2)), dtype=torch.int16, device=w2.device)
    launch(previous, w1, w2, out)
    return out


def launch(previous: Tensor, w1: Tensor, w2: Tensor, out: Tensor) -> None:
    """Launch the kernel; arguments as for :func:`bias_rows`, ``out`` its result."""
    require("previous", previous, torch.int32, (None,))
    require("w1", w1, torch.int16, (None, None))
    width = w1.shape[1]
    require("w2", w2, torch.int16, (None, width))
    require("out", out, torch.int16, (len(previous), len(w2)))
    if width < 1 or width & (width - 1):
        raise BadInputError.of("w1", "R a power of two", f"R = {width}")
    for name, tensor in (("w1", w1), ("w2", w2), ("out", out)):
        if tensor.data_ptr() % ALIGNMENT or not tensor.is_contiguous():
            found = f"{tensor.data_ptr() % ALIGNMENT} bytes off, strides {tensor.stride()}"
            raise BadInputError.of(name, f"contiguous, from {ALIGNMENT} bytes on", found)
    device_rows.bias_rows[(-(-len(w2) // SPAN), len(previous))](
        previous_ptr=previous,
        w1_ptr=w1,
        w2_ptr=w2,
        out_ptr=out,
        columns=len(w2),
        target_vocab=len(w1),
        stride=out.stride(0),
        **_constants(width),
    )


def prime(rank_dim: int, device: torch.device) -> Compiled:
    """Compile and load the kernel on a GPU, launching nothing; -> what came out.

    Raises:
        BadInputError: ``device`` is no numbered GPU, or kernels are interpreted in this process.
        RefusedError: ``UNPRIMED``, it does not compile or does not load.
    """
    arguments = {
        **{name: stand_in(kind) for name, kind in _TYPES.items()},
        **dict.fromkeys(device_rows.SCALARS, 0),
        **_constants(rank_dim),
    }
    return load_as_called(device_rows.bias_rows, arguments, device=device)


def _constants(rank_dim: int) -> dict[str, int | bool]:
    return {"RANK_DIM": rank_dim, "SPAN": SPAN, **_OPTIONS}
