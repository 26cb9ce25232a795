"""BF16 as bit patterns: rounding in integers, order-preserving images, what counts as a candidate.

Tensors of BF16 are loaded as int16 bit patterns.  The interpreter truncates where a GPU rounds to
even, and a GPU writes its own NaN (0x7fffffff) that an integer rounding would turn into -0; with
patterns and integers both give the same bits.
"""

import triton
import triton.language as tl

MASKED = tl.constexpr(-0x80)
"""The pattern of -inf, as an int16."""


@triton.jit
def widen(pattern):
    """int16 BF16 pattern -> float32 of the same value."""
    return (pattern.to(tl.int32) << 16).to(tl.float32, bitcast=True)


@triton.jit
def lower(word):
    """float32 of the BF16 pattern in the lower half of an int32."""
    return (word << 16).to(tl.float32, bitcast=True)


@triton.jit
def upper(word):
    """float32 of the BF16 pattern in the upper half of an int32."""
    return (word & -0x10000).to(tl.float32, bitcast=True)


@triton.jit
def round_to_bf16(value):
    """float32 -> int32 BF16 pattern (0..0xFFFF), ties to even; what was NaN before stays NaN."""
    bits = value.to(tl.int32, bitcast=True)
    rounded = ((bits + (0x7FFF + ((bits >> 16) & 1))) >> 16) & 0xFFFF
    return tl.where((bits & 0x7FFFFFFF) > 0x7F800000, 0x7FC0, rounded)


@triton.jit
def is_bad(pattern):
    """NaN of any sign, or +inf: the row may not be used."""
    return ((pattern & 0x7FFF) >= 0x7F80) & (pattern != 0xFF80)


@triton.jit
def is_finite(pattern):
    """Neither NaN nor an infinity; -inf is a masked column and no candidate."""
    return (pattern & 0x7FFF) < 0x7F80


@triton.jit
def image(pattern):
    """BF16 pattern -> 16-bit integer that rises with the value; -0 takes the image of +0.

    Finite values lie in 0x0080..0xFF7F, so 0 is free to mean "no candidate".  Below them is -inf;
    above them are +inf and the NaN that :func:`round_to_bf16` gives.
    """
    plain = tl.where(pattern == 0x8000, 0, pattern)
    return tl.where(plain >= 0x8000, 0xFFFF - plain, plain | 0x8000)


@triton.jit
def value_of(key):
    """Inverse of :func:`image`, as float32."""
    pattern = tl.where(key >= 0x8000, key & 0x7FFF, 0xFFFF - key)
    return (pattern << 16).to(tl.float32, bitcast=True)


@triton.jit
def order(total, INTERPRETED: tl.constexpr):
    """A float32 sum -> int32 that rises with its value; NaN lies above everything.

    A GPU's sums have one NaN, 0x7fffffff; the interpreter's can have a sign.
    """
    bits = total.to(tl.int32, bitcast=True)
    if INTERPRETED:
        bits = tl.where(total != total, 0x7FFFFFFF, bits)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def image_of(ordered):
    """:func:`order` of a float32 -> image of its BF16 rounding.

    Rounding puts no two values into the other order, so of several the largest is rounded alone.
    """
    bits = ordered ^ ((ordered >> 31) & 0x7FFFFFFF)
    return image(round_to_bf16(bits.to(tl.float32, bitcast=True)))
