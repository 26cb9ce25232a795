"""What a token's row goes through between the products of a layer: norms, sums, the gate.

One program has a whole row, or a part of one whose elements do not meet, so the bits of a row
depend on the row alone.  Sums, products and roots round where the operators of torch do.
"""

import triton
import triton.language as tl

from pp4.kernels.device.rounding import inverse_root, narrow, rounded


@triton.jit
def _store_normalised(
    values, weight_ptr, out, at, inside, WIDTH: tl.constexpr, EPS: tl.constexpr,
    INTERPRETED: tl.constexpr,
):  # fmt: skip
    """RMSNorm of a row; values: [PADDED] float32, zero outside; out: where the row begins."""
    scale = inverse_root(tl.sum(values * values, 0) / WIDTH, EPS)
    weight = tl.load(weight_ptr + at, mask=inside, other=0).to(tl.float32)
    found = weight * rounded(values * scale, INTERPRETED)
    tl.store(out + at, narrow(found, INTERPRETED), mask=inside)


# anchors are a part of the inputs' buffer and start anywhere in it
@triton.jit(do_not_specialize=["mask_token"], do_not_specialize_on_alignment=["anchors_ptr"])
def embedded(
    anchors_ptr, embedding_ptr, weight_ptr, hidden_ptr, taken_ptr, mask_token: tl.int32,
    BLOCK: tl.constexpr, WIDTH: tl.constexpr, PADDED: tl.constexpr, EPS: tl.constexpr,
    INTERPRETED: tl.constexpr,
):  # fmt: skip
    """A query's embedding, and its norm; query 0 of a block is the anchor, the others masks."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, PADDED)
    inside = at < WIDTH
    anchor = tl.load(anchors_ptr + row // BLOCK)
    token = tl.where(row % BLOCK == 0, anchor, mask_token)
    found = tl.load(embedding_ptr + token * WIDTH + at, mask=inside, other=0)
    tl.store(hidden_ptr + row * WIDTH + at, found, mask=inside)
    _store_normalised(
        found.to(tl.float32), weight_ptr, taken_ptr + row * WIDTH, at, inside, WIDTH, EPS,
        INTERPRETED,
    )  # fmt: skip


@triton.jit
def added(
    hidden_ptr, more_ptr, weight_ptr, taken_ptr,
    WIDTH: tl.constexpr, PADDED: tl.constexpr, EPS: tl.constexpr, INTERPRETED: tl.constexpr,
):  # fmt: skip
    """Add more to hidden, and take the norm of the sum."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, PADDED)
    inside = at < WIDTH
    hidden = tl.load(hidden_ptr + row * WIDTH + at, mask=inside, other=0).to(tl.float32)
    more = tl.load(more_ptr + row * WIDTH + at, mask=inside, other=0).to(tl.float32)
    total = narrow(hidden + more, INTERPRETED)
    tl.store(hidden_ptr + row * WIDTH + at, total, mask=inside)
    _store_normalised(
        total.to(tl.float32), weight_ptr, taken_ptr + row * WIDTH, at, inside, WIDTH, EPS,
        INTERPRETED,
    )  # fmt: skip


@triton.jit
def gated(
    gate_up_ptr, out_ptr,
    WIDTH: tl.constexpr, SPAN: tl.constexpr, INTERPRETED: tl.constexpr,
):  # fmt: skip
    """SiLU(gate) * up; a row of gate_up is the gate's WIDTH elements, then those of up."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * SPAN + tl.arange(0, SPAN)
    inside = at < WIDTH
    gate = tl.load(gate_up_ptr + row * (2 * WIDTH) + at, mask=inside, other=0).to(tl.float32)
    up = tl.load(gate_up_ptr + row * (2 * WIDTH) + WIDTH + at, mask=inside, other=0)
    opened = rounded(gate / (1.0 + tl.exp(-gate)), INTERPRETED)
    found = narrow(opened * up.to(tl.float32), INTERPRETED)
    tl.store(out_ptr + row * WIDTH + at, found, mask=inside)
