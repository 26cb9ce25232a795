"""BF16 tensors for kernels that compute in FP32 and may multiply on tensor cores.

Triton's interpreter truncates where a GPU rounds to even, and multiplies BF16 patterns as integers.
So where kernels are interpreted, rounding is done in integers and operands are widened first.
"""

import triton
import triton.language as tl

from pp4.kernels.device import bf16


@triton.jit
def narrow(value, INTERPRETED: tl.constexpr):
    """float32 -> BF16, ties to even."""
    if INTERPRETED:
        return bf16.round_to_bf16(value).to(tl.int16).to(tl.bfloat16, bitcast=True)
    else:
        return value.to(tl.bfloat16)


@triton.jit
def rounded(value, INTERPRETED: tl.constexpr):
    """float32 -> float32 of the nearest BF16 value."""
    return narrow(value, INTERPRETED).to(tl.float32)


@triton.jit
def product(left, right, INTERPRETED: tl.constexpr):
    """BF16 [M, K] times BF16 [K, N] -> float32 [M, N], summed in FP32."""
    if INTERPRETED:
        return tl.dot(left.to(tl.float32), right.to(tl.float32), input_precision="ieee")
    else:
        return tl.dot(left, right)


@triton.jit
def inverse_root(mean_square, EPS: tl.constexpr):
    """float32 -> 1 / sqrt(mean_square + EPS), both steps rounded to nearest."""
    return tl.div_rn(1.0, tl.sqrt_rn(mean_square + EPS))
