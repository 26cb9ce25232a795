"""Queries and keys of a block: each head's norm, then its turn by the token's position."""

import triton
import triton.language as tl

from pp4.kernels.device.rounding import inverse_root, narrow, rounded


# lengths are a part of the inputs' buffer and start anywhere in it
@triton.jit(do_not_specialize_on_alignment=["lengths_ptr"])
def turned(
    qkv_ptr, lengths_ptr, query_norm_ptr, key_norm_ptr, cos_ptr, sin_ptr,
    BLOCK: tl.constexpr, HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr,
    AT_ONCE: tl.constexpr, EPS: tl.constexpr, INTERPRETED: tl.constexpr,
):  # fmt: skip
    """AT_ONCE heads of one token, in place: a row of qkv is the queries' heads, keys', values'."""
    HALF: tl.constexpr = HEAD_DIM // 2
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * AT_ONCE + tl.arange(0, AT_ONCE)
    at = tl.arange(0, HALF)
    inside = (head < HEADS + KV_HEADS)[:, None]
    lying = qkv_ptr + row * ((HEADS + 2 * KV_HEADS) * HEAD_DIM)
    places = lying + head[:, None] * HEAD_DIM + at[None, :]
    low = tl.load(places, mask=inside, other=0).to(tl.float32)
    high = tl.load(places + HALF, mask=inside, other=0).to(tl.float32)
    mean = (tl.sum(low * low, 1) + tl.sum(high * high, 1)) / HEAD_DIM
    scale = inverse_root(mean, EPS)[:, None]

    is_query = (head < HEADS)[:, None]
    low_query, high_query = _halves(query_norm_ptr, at, HALF)
    low_key, high_key = _halves(key_norm_ptr, at, HALF)
    low_weight = tl.where(is_query, low_query, low_key)
    high_weight = tl.where(is_query, high_query, high_key)
    low = rounded(low_weight * rounded(low * scale, INTERPRETED), INTERPRETED)
    high = rounded(high_weight * rounded(high * scale, INTERPRETED), INTERPRETED)

    position = tl.load(lengths_ptr + row // BLOCK) + row % BLOCK
    # both halves turn by the same angles, so the first half of a row has them all
    cos = tl.load(cos_ptr + position * HEAD_DIM + at).to(tl.float32)[None, :]
    sin = tl.load(sin_ptr + position * HEAD_DIM + at).to(tl.float32)[None, :]
    low_out = rounded(low * cos, INTERPRETED) - rounded(high * sin, INTERPRETED)
    high_out = rounded(high * cos, INTERPRETED) + rounded(low * sin, INTERPRETED)
    tl.store(places, narrow(low_out, INTERPRETED), mask=inside)
    tl.store(places + HALF, narrow(high_out, INTERPRETED), mask=inside)


@triton.jit
def _halves(weight_ptr, at, HALF: tl.constexpr):
    """Both halves of a norm's weight as [1, HALF] float32."""
    low = tl.load(weight_ptr + at).to(tl.float32)
    high = tl.load(weight_ptr + HALF + at).to(tl.float32)
    return low[None, :], high[None, :]
