"""vLLM's float rules as docs/adapters.md says where they stand, counted and not drawn.

They are written here from what was read and measured; no code of vLLM was run.
"""

from fractions import Fraction

import numpy as np

from pp4.kernels.dyadic24 import TICKETS

FP32_BITS, FP64_BITS = 24, 53
"""Values of u in [0, 1): k * 2**-24 or k * 2**-53."""
UNIFORMS = 1 << FP32_BITS


def accepting(p, q, bits=FP32_BITS):
    """V1: how many of the 2**bits u accept by ``p / q >= u``, the ratio FP32; p, q FP32 scalars."""
    ratio = np.float32(p) / np.float32(q)
    assert ratio.dtype == np.float32
    if ratio >= 1:
        return 1 << bits
    # k * 2**-bits <= ratio: scaling by a power of two is exact
    return int(np.floor(np.float64(ratio) * (1 << bits))) + 1


def accepting_by_trying(p, q):
    """The same count with every u tried."""
    ratio = np.float32(p) / np.float32(q)
    u = np.arange(UNIFORMS, dtype=np.float32) * np.float32(2.0**-24)
    return int((ratio >= u).sum())


def emitted(p, tickets, bits=FP32_BITS):
    """V1: the exact distribution of one emitted token, its residual drawn without any error.

    Args:
        p: FP32 ``[V]``, the target.
        tickets: integers ``[V]`` that sum to 2**24; the token is drawn from them.
        bits: of u.

    Returns:
        Fractions ``[V]`` that sum to 1.
    """
    q = (np.asarray(tickets, np.float64) / TICKETS).astype(np.float32)
    left = [Fraction(float(one)) for one in np.maximum(p - q, np.float32(0))]
    out, rejected = [], Fraction(0)
    for one, share, count in zip(p, q, tickets, strict=True):
        kept = Fraction(accepting(one, share, bits), 1 << bits) if count else Fraction(0)
        out.append(Fraction(int(count), TICKETS) * kept)
        rejected += Fraction(int(count), TICKETS) * (1 - kept)
    if not sum(left):
        # the argmax of zeros is the first id
        out[0] += rejected
    else:
        out = [one + rejected * rest / sum(left) for one, rest in zip(out, left, strict=True)]
    assert sum(out) == 1
    return out


def distance(first, second):
    """Total variation of two distributions."""
    return sum(abs(a - b) for a, b in zip(first, second, strict=True)) / 2


def softmax(logits, dtype=np.float32):
    """Softmax over the last axis, step by step in one dtype."""
    powers = np.exp((logits - logits.max(axis=-1, keepdims=True)).astype(dtype))
    return powers / powers.sum(axis=-1, keepdims=True, dtype=dtype)


def bf16(values):
    """FP32 rounded to BF16, to nearest, ties to even; -inf stays."""
    bits = np.asarray(values, np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return np.where(np.isinf(values), values, rounded.view(np.float32)).astype(np.float32)
