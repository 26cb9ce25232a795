"""``dyadic24-floor-first-v1`` on the device; :mod:`pp4.kernels.dyadic24` is its definition."""

import triton
import triton.language as tl

from pp4.kernels import dyadic24

_SCALE = tl.constexpr(dyadic24.SCALE)
_CLAMP = tl.constexpr(float(dyadic24.CLAMP))
_FULL = tl.constexpr(dyadic24.FULL_WEIGHT)
_C0 = tl.constexpr(dyadic24.POLYNOMIAL[0])
_C1 = tl.constexpr(dyadic24.POLYNOMIAL[1])
_C2 = tl.constexpr(dyadic24.POLYNOMIAL[2])
_C3 = tl.constexpr(dyadic24.POLYNOMIAL[3])
_C4 = tl.constexpr(dyadic24.POLYNOMIAL[4])
_C5 = tl.constexpr(dyadic24.POLYNOMIAL[5])
_C6 = tl.constexpr(dyadic24.POLYNOMIAL[6])


@triton.jit
def _weights(values, first):
    """[32] falling float32 -> [32] int64 weights, 2**38 for the first."""
    gap = tl.minimum(first - values, _CLAMP)
    scaled = (gap * 65536.0).to(tl.int32).to(tl.int64)
    exponent = (scaled * _SCALE) >> 16
    fraction = exponent & ((1 << 30) - 1)
    term = fraction * 0 + _C6
    term = ((term * fraction) >> 30) + _C5
    term = ((term * fraction) >> 30) + _C4
    term = ((term * fraction) >> 30) + _C3
    term = ((term * fraction) >> 30) + _C2
    term = ((term * fraction) >> 30) + _C1
    term = ((term * fraction) >> 30) + _C0
    return tl.where(scaled == 0, _FULL, (term << 7) >> tl.minimum(exponent >> 30, 62))


@triton.jit
def _quotient(weight, total):
    """floor(weight * 2**24 / total), exact: an FP64 estimate is off by at most one, then corrected.

    The estimate's relative error is below 2**-51 and the quotient is at most 2**24.
    """
    estimate = (weight.to(tl.float64) * (16777216.0 / total.to(tl.float64))).to(tl.int64)
    rest = (weight << 24) - estimate * total
    return tl.where(rest < 0, estimate - 1, tl.where(rest >= total, estimate + 1, estimate))


@triton.jit
def allocate(values, used, first):
    """Tickets of a row.

    values: [32] float32, falling over the used slots; used: [32] bool; first: the largest value.
    -> [32] int32, sum 2**24.
    """
    slot = tl.arange(0, 32)
    weight = tl.where(used, _weights(tl.where(used, values, first), first), 0)
    share = _quotient(weight, tl.sum(weight, 0)).to(tl.int32)
    rest = 16777216 - tl.sum(share, 0)
    return tl.where(slot == 0, share + rest, share)


@triton.jit
def draw(tickets, ticket):
    """Index of the first slot whose running sum exceeds ``ticket``."""
    return tl.sum((tl.cumsum(tickets, 0) <= ticket).to(tl.int32), 0)
