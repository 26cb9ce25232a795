"""The argmax of conditioned rows by blocks of columns: the least that a row at T = 0 needs.

Ties go to the lower id, as everywhere.  NaN and +inf are not looked for.
"""

import torch
import triton
import triton.language as tl

from pp4.kernels.device import bf16, markov, words

BLOCK, SMALL_BLOCK = 2048, 32
"""Columns of a block on a GPU, and in the interpreter, where vocabularies are small."""


@triton.jit
def nothing(_pointer):
    """An empty kernel."""


@triton.jit
def _blocks(
    base, bias, previous, slot_of, out, columns, first, LOOKED_UP: tl.constexpr, BLOCK: tl.constexpr
):
    """Best word of one block of one row; the bias row is the row's own or that of its token."""
    row = tl.program_id(1).to(tl.int64)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < columns
    bias_row = row
    if LOOKED_UP:
        bias_row = tl.load(slot_of + tl.load(previous + row)).to(tl.int64)
    left = tl.load(base + row * columns + place, mask=inside, other=0)
    right = tl.load(bias + bias_row * columns + place, mask=inside, other=0).to(tl.int32)
    pattern = markov.conditioned(left, right)
    key = tl.where(inside & bf16.is_finite(pattern), bf16.image(pattern), 0).to(tl.int64)
    word = (key << 32) | ((first + place).to(tl.int64) ^ words.ALL_ONES)
    tl.store(out + row * tl.num_programs(0) + tl.program_id(0), tl.max(word, 0))


@triton.jit
def _greatest(words_ptr, out, row_stride, stride, COUNT: tl.constexpr, PADDED: tl.constexpr,
              TOKEN: tl.constexpr):  # fmt: skip
    """The greatest of a row's words, or the token that it names."""
    place = tl.arange(0, PADDED)
    row = tl.program_id(0)
    at = words_ptr + row * row_stride + place * stride
    word = tl.max(tl.load(at, mask=place < COUNT, other=0), 0)
    if TOKEN:
        word = (word & words.ALL_ONES) ^ words.ALL_ONES
    tl.store(out + row, word)


def best_of_blocks(base, bias, previous, slot_of, first):
    """Best column of each block of each row as a word, value above and inverted id below.

    Args:
        base: ``[B, columns]`` BF16.
        bias: ``[slots, columns]`` BF16, or ``[B, columns]``.
        previous: ``[B]`` tokens whose rows of ``bias`` are meant; None where row b is b's own.
        slot_of: ``[V]`` int32, row of a token; None where there are no tokens.
        first: id of the first column.

    Returns:
        ``[B, blocks]`` int64.
    """
    batch, columns = base.shape
    block = BLOCK if base.is_cuda else SMALL_BLOCK
    count = -(-columns // block)
    found = torch.empty((batch, count), dtype=torch.int64, device=base.device)
    _blocks[(count, batch)](
        base.view(torch.int16),
        bias.view(torch.int16),
        base if previous is None else previous,
        base if slot_of is None else slot_of,
        found,
        columns,
        first,
        LOOKED_UP=previous is not None,
        BLOCK=block,
        enable_fp_fusion=False,
    )
    return found


def greatest(found, *, token):
    """``[B, count]`` words with any strides -> ``[B]`` int64: the greatest, or its token's id."""
    batch, count = found.shape
    out = torch.empty(batch, dtype=torch.int64, device=found.device)
    padded = triton.next_power_of_2(count)
    _greatest[(batch,)](found, out, *found.stride(), COUNT=count, PADDED=padded, TOKEN=token)
    return out
