"""Random words on the device, and what is multiplied with them; see :mod:`pp4.verifier.words`."""

import triton
import triton.language as tl

from pp4.kernels.philox import DEFINITION_WORD
from pp4.verifier.units import ACCEPT_BITS, WORD_BITS

_DEFINITION = tl.constexpr(DEFINITION_WORD)
_MASK = tl.constexpr((1 << 32) - 1)
_LIMB = tl.constexpr(24)
_LIMB_MASK = tl.constexpr((1 << 24) - 1)
_ACCEPT_SHIFT = tl.constexpr(ACCEPT_BITS - 32)
_CARRY_SHIFT = tl.constexpr(32 - 24)
_SHARE_SHIFT = tl.constexpr(WORD_BITS - 32 - 24)


@triton.jit
def streamed(counter, place, purpose):
    """The words of a request's own streams at some places of its block; -> (high, low) int64.

    counter: (key, position, round); purpose: int32 of the shape of place.
    """
    key, position, round = counter
    at = (position + place).to(tl.uint32)
    rounds = (round + place * 0).to(tl.uint32)
    high, low, _, _ = tl.philox(
        key, at, rounds, purpose.to(tl.uint32), (place * 0 + _DEFINITION).to(tl.uint32)
    )
    return high.to(tl.int64), low.to(tl.int64)


@triton.jit
def halves(word):
    """Words of 64 bits, the sign bit their top bit; -> (high, low) int64."""
    return (word >> 32) & _MASK, word & _MASK


@triton.jit
def accepts(u, weight, tickets):
    """``u * tickets < weight << ACCEPT_BITS``; weight 0 to 2**48, tickets 0 to 2**24, int64."""
    high, low = u
    return ((high * tickets + ((low * tickets) >> 32)) >> _ACCEPT_SHIFT) < weight


@triton.jit
def share(u, total):
    """``floor(u * total / 2**64)``; total 0 to 2**48, int64."""
    high, low = u
    upper, lower = total >> _LIMB, total & _LIMB_MASK
    carried = (low * upper + ((low * lower) >> _LIMB)) >> _CARRY_SHIFT
    carried = (high * lower + carried) >> _LIMB
    return (high * upper + carried) >> _SHARE_SHIFT
