"""Arithmetic whose bits do not depend on how a library cuts its work: products and SiLU.

In a GEMM of FP32 a row can have other bits in another place of the same matrix: a library splits
rows between threads and cuts them into tiles, and parts may add in orders of their own.  Seen with
torch 2.13 on a CPU: seven rows by a matrix of 256 by 256 with two threads, and, with one thread,
batches of six rows of 100 by a matrix of 100 by 10.  GEMMs of BF16 were not seen to do it.

So both factors are brought to a grid, multiples of a power of two, in float64.  As long as the sum
of the absolute products stays below 2^53 steps of the product's grid, every partial sum is a number
of float64, and the result is the same in any order, on any device.  Beyond that it is as good as
any product of float64, and has an order again.

An exponential has last bits of its own in every library, and on a CPU torch takes by another one
what does not fill its vectors.  Of SiLU's 65,536 possible results none is so near to a border
between two numbers of BF16 that the last bits of float64 decide; those of FP32 would.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

VALUE_BITS: Final = 18
"""Grid of hidden states, queries, keys, values and the head: exact while the sum of the absolute
products is below 2^17.  A BF16 number lies on this grid unless it is smaller than 2^-11."""
WEIGHT_BITS: Final = 24
"""Grid of attention's weights, which sum to 1: exact while values are below 2^11."""


def on_grid(values: Tensor, bits: int = VALUE_BITS) -> Tensor:
    """The nearest multiples of ``2^-bits``, float64; ties to even."""
    return torch.round(values.double() * 2.0**bits) * 2.0**-bits


def silu(values: Tensor) -> Tensor:
    """``x / (1 + exp(-x))``, taken in float64 and rounded to the type of the values."""
    return functional.silu(values.double()).to(values.dtype)
