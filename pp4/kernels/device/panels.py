"""Products with W2 for two rows at once, thread by thread.

W2 lies in panels: of each panel all columns of one place stand beside each other, so a thread
multiplies columns of its own and adds them up without a look at another thread.  A word holds what
the tree adds first, the places r and r + R/2.  Two rows take each word of W2 that was read.
"""

import triton
import triton.language as tl

from pp4.kernels.device import bf16

_PARTS = tl.constexpr(4)
"""Parts of the tree that a loop goes through, so that its body stays in the instruction cache."""


@triton.jit
def _leaf(left, right):
    """The two products that the tree adds first."""
    near = bf16.lower(left) * bf16.lower(right)
    return near + bf16.upper(left) * bf16.upper(right)


@triton.jit
def _tree(
    one,
    two,
    w2,
    FIRST: tl.constexpr,
    STRIDE: tl.constexpr,
    PANEL: tl.constexpr,
    WORDS: tl.constexpr,
):
    """Sums over the words FIRST, FIRST + STRIDE, ... in the order of the halving tree.

    The tree adds i and i + WORDS/2 first, then i and i + WORDS/4, and so on, so the sum over one
    stride is the sum of the two sums over twice that stride.  -> two [PANEL] float32.
    """
    if STRIDE == WORDS:
        right = tl.load(w2 + FIRST * PANEL)
        return _leaf(tl.load(one + FIRST), right), _leaf(tl.load(two + FIRST), right)
    else:
        near, beside = _tree(one, two, w2, FIRST, STRIDE * 2, PANEL, WORDS)
        far, below = _tree(one, two, w2, FIRST + STRIDE, STRIDE * 2, PANEL, WORDS)
        return near + far, beside + below


@triton.jit
def bias(one, two, w2, PANEL: tl.constexpr, WORDS: tl.constexpr):
    """BF16 patterns of the bias of every column of a panel, of two rows.  -> two [PANEL] int32.

    one, two: pointers to the WORDS words of each row of W1; w2: to the [WORDS, PANEL] of the panel.
    """
    w2 += tl.arange(0, PANEL)
    if WORDS < _PARTS:
        first, second = _tree(one, two, w2, 0, 1, PANEL, WORDS)
    else:
        # what the tree adds last, in the order in which it needs the fewest sums at a time
        first = tl.full([PANEL], 0.0, tl.float32)
        second = first
        half, half_too, part, part_too = first, first, first, first
        for turn in range(4):
            at = (turn >> 1) | ((turn & 1) << 1)
            sums = _tree(one + at, two + at, w2 + at * PANEL, 0, _PARTS, PANEL, WORDS)
            if (turn & 1) == 0:
                part, part_too = sums
            else:
                first, second = part + sums[0], part_too + sums[1]
                if turn == 1:
                    half, half_too = first, second
                else:
                    first, second = half + first, half_too + second
    return bf16.round_to_bf16(first), bf16.round_to_bf16(second)
