"""Bias rows of tokens by the tree, for whoever adds them later: a cache, a greedy selector."""

import triton
import triton.language as tl

from pp4.kernels.device import markov

POINTERS = ["previous_ptr", "w1_ptr", "w2_ptr", "out_ptr"]
SCALARS = ["columns", "target_vocab", "stride"]
UNKNOWN = tl.constexpr(0x7FC0)
"""NaN as a BF16 pattern: the row of a token that there is none of."""


# weights and result start on 16 bytes, which the host checks: loads may take as many at once
@triton.jit(do_not_specialize=SCALARS, do_not_specialize_on_alignment=["previous_ptr"])
def bias_rows(
    previous_ptr, w1_ptr, w2_ptr, out_ptr,
    columns: tl.int32, target_vocab: tl.int32, stride: tl.int32,
    RANK_DIM: tl.constexpr, SPAN: tl.constexpr,
):  # fmt: skip
    """One span of columns of one row."""
    column = tl.program_id(0) * SPAN + tl.arange(0, SPAN)
    row = tl.program_id(1).to(tl.int64)
    inside = column < columns
    token = tl.load(previous_ptr + row)
    found = tl.full([SPAN], UNKNOWN, tl.int32)
    if (token >= 0) & (token < target_vocab):
        w1_row = w1_ptr + token.to(tl.int64) * RANK_DIM
        found = markov.bias(w1_row, w2_ptr, column, inside, RANK_DIM)
    tl.store(out_ptr + row * stride + column, found.to(tl.int16), mask=inside)
