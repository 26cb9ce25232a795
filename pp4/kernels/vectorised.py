"""The exact reference over whole batches, in torch, on the device where the tensors lie.

:mod:`pp4.kernels.reference` and :mod:`pp4.kernels.expected` give one row at a time and say what is
right; this module gives the same bits for millions of rows, and its tests compare it with them by
``==``.  It shares no arithmetic with the kernels that it is used against.  Nothing is read back to
the host and no shape depends on a value, so dtypes and shapes are checked here, but no values.

BF16 values travel as their bit patterns: int16, or int32 0..0xFFFF where a function says so.
FP32 is used for what is one rounding of two exact operands.  In eager mode a product is stored as
FP32 before another operator adds it, so no fused multiply-add can span the two, on a CPU or a GPU;
do not wrap these functions in a compiler that fuses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from pp4.errors import BadInputError
from pp4.kernels import dyadic24
from pp4.kernels.faults import Fault
from pp4.kernels.sampled_fused import GREEDY, INACTIVE
from pp4.kernels.vectorised_rows import allocate, draft_tickets, draw, require

PRODUCTS = 1 << 26
"""FP32 products of the tree that are alive at once: 256 MiB, half as much again for their sums."""

_ID_BITS = 32
_ID_MASK = (1 << _ID_BITS) - 1
_MASKED_IMAGE = 0x007F
"""Image of -inf; NaNs of negative sign lie below it, every finite value above."""
_INFINITE_IMAGE = 0xFF80
"""Image of +inf; NaNs of positive sign lie above it."""
_MINUS_ZERO_IMAGE = 0x7FFF


@dataclass(frozen=True, slots=True)
class Rows:
    """Selections of N rows; per row what :class:`pp4.kernels.reference.Selection` means.

    Attributes:
        ids: ``[N, 32]`` int32, -1 where no candidate is.
        tickets: ``[N, 32]`` int32.
        q: ``[N, 32]`` float32.
        token: ``[N]`` int32, -1 on an error.
        error: ``[N]`` int32, a :class:`Fault`.

    An ``INACTIVE`` row is zero throughout.
    """

    ids: Tensor
    tickets: Tensor
    q: Tensor
    token: Tensor
    error: Tensor


@dataclass(frozen=True, slots=True)
class Block:
    """Outputs of a block, as :class:`pp4.kernels.block.Outputs` without stamps.

    Attributes:
        ids: ``[B, n_out, 32]`` int32.
        q: ``[B, n_out, 32]`` float32.
        token: ``[B, n_out]`` int32.
        error: ``[B, n_out]`` int32.
    """

    ids: Tensor
    q: Tensor
    token: Tensor
    error: Tensor


def _widened(patterns: Tensor) -> Tensor:
    """int16 BF16 patterns -> the float32 values that they are."""
    return (patterns.to(torch.int32) << 16).view(torch.float32)


def _rounded(values: Tensor) -> Tensor:
    """float32 -> int32 BF16 patterns 0..0xFFFF, ties to even; as ``reference.round_bf16``."""
    bits = values.view(torch.int32)
    # int32 overflows here on NaNs alone, and those are replaced
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) & 0xFFFF
    return torch.where((bits & 0x7FFFFFFF) > 0x7F800000, 0x7FC0, rounded)


def markov_bias(w1_rows: Tensor, w2: Tensor, chunk: int = PRODUCTS) -> Tensor:
    """Return the bias rows of previous tokens; per row as :func:`reference.markov_bias`.

    Args:
        w1_rows: ``[N, R]`` int16 BF16 patterns, R a power of two.
        w2: ``[V, R]`` int16 BF16 patterns, on the same device.
        chunk: products that are alive at once, at least those of one column.  Temporaries take
            about 6 bytes for each.

    Returns:
        ``[N, V]`` int16 BF16 patterns.

    Raises:
        BadInputError: a dtype or shape does not fit, or ``chunk`` is below 1.
    """
    require("w1_rows", w1_rows, torch.int16, (None, None))
    count, width = w1_rows.shape
    require("w2", w2, torch.int16, (None, width))
    if width < 1 or width & (width - 1) or chunk < 1:
        raise BadInputError.of(
            "markov weights", "R a power of two and chunk >= 1", f"R = {width}, chunk = {chunk}"
        )
    vocab = w2.shape[0]
    bias = torch.empty((count, vocab), dtype=torch.int16, device=w2.device)
    # R leads, so that both halves of each sum lie in one piece
    left = _widened(w1_rows).t().contiguous()[:, :, None]
    columns = max(1, chunk // max(1, count * width))
    for first in range(0, vocab, columns):
        right = _widened(w2[first : first + columns]).t().contiguous()[:, None, :]
        terms = left * right
        for half in (width >> level for level in range(1, width.bit_length())):
            terms = terms[:half] + terms[half:]
        bias[:, first : first + columns] = _rounded(terms[0]).to(torch.int16)
    return bias


def conditioned(base: Tensor, bias: Tensor) -> Tensor:
    """Return ``bf16(fp32(base) + fp32(bias))``; as :func:`reference.conditioned`.

    Args:
        base: ``[N, V]`` int16 BF16 patterns.
        bias: likewise.

    Returns:
        ``[N, V]`` int32 patterns 0..0xFFFF.

    Raises:
        BadInputError: a dtype or shape does not fit.
    """
    require("base", base, torch.int16, (None, None))
    require("bias", bias, torch.int16, base.shape)
    return _rounded(_widened(base) + _widened(bias))


def _image(patterns: Tensor) -> Tensor:
    """Order-preserving image of BF16 patterns, int32 0..0xFFFF; -0 has the image of +0."""
    image = torch.where(patterns >= 0x8000, 0xFFFF - patterns, patterns | 0x8000)
    return image + (image == _MINUS_ZERO_IMAGE)


def _top(image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Ids, values and whether finite of the first 32; int64, float32 and bool ``[N, 32]``.

    A key holds the image above and the inverted id below.  No two keys of a row are equal, so the
    largest 32 and their order are unique, however ``topk`` breaks ties.
    """
    vocab = image.shape[1]
    inverted = _ID_MASK - torch.arange(vocab, dtype=torch.int64, device=image.device)
    keys = image.to(torch.int64).bitwise_left_shift_(_ID_BITS).bitwise_or_(inverted)
    best = torch.topk(keys, min(dyadic24.WIDTH, vocab), dim=1, sorted=True).values
    best = torch.nn.functional.pad(best, (0, dyadic24.WIDTH - best.shape[1]))
    image = (best >> _ID_BITS).to(torch.int32)
    pattern = torch.where(image >= 0x8000, image & 0x7FFF, 0xFFFF - image)
    return _ID_MASK - (best & _ID_MASK), (pattern << 16).view(torch.float32), image > _MASKED_IMAGE


def _errors(image: Tensor, finite: Tensor) -> Tensor:
    """Error words ``[N]`` int32 of rows, the larger taking precedence."""
    lowest, highest = torch.aminmax(image, dim=1)
    bad = (lowest < _MASKED_IMAGE) | (highest >= _INFINITE_IMAGE)
    empty = torch.where(finite[:, 0], int(Fault.NONE), int(Fault.EMPTY_ROW))
    return torch.where(bad, int(Fault.BAD_LOGITS), empty).to(torch.int32)


def select(patterns: Tensor, *, key: Tensor, position: Tensor, round: Tensor, mode: Tensor) -> Rows:
    """Select, allocate and draw on each row; per row as :func:`reference.select_row`.

    Args:
        patterns: ``[N, V]`` int32 BF16 patterns 0..0xFFFF of conditioned logits; a word outside
            makes its row ``BAD_LOGITS``.
        key: ``[N]`` int64, 64-bit keys; the sign bit is the key's top bit.
        position: ``[N]`` int64, absolute positions of the predicted tokens, 32 bits.
        round: ``[N]`` int64, rounds, 32 bits.
        mode: ``[N]`` int32, ``SAMPLED``, ``GREEDY`` or ``INACTIVE``.

    Returns:
        The selections.  Besides them, about 13 bytes for each logit are alive.

    Raises:
        BadInputError: a dtype or shape does not fit.
    """
    require("patterns", patterns, torch.int32, (None, None))
    count, vocab = patterns.shape
    if not vocab:
        raise BadInputError.of("patterns", "at least one column", "none")
    for name, words in (("key", key), ("position", position), ("round", round)):
        require(name, words, torch.int64, (count,))
    require("mode", mode, torch.int32, (count,))

    image = _image(patterns)
    ids, values, finite = _top(image)
    error = _errors(image, finite)
    greedy, failed, active = mode == GREEDY, error != 0, mode != INACTIVE
    listed = finite & ~failed[:, None]
    tickets = allocate(values, listed)
    drawn = draw(tickets, draft_tickets(key=key, position=position, round=round))
    place = torch.where(greedy, 0, drawn)
    token = torch.where(failed, -1, ids.gather(1, place[:, None])[:, 0])
    ids = torch.where(listed, ids, -1)
    tickets = torch.where((greedy | failed | ~active)[:, None], 0, tickets)
    return Rows(
        ids=torch.where(active[:, None], ids, 0).to(torch.int32),
        tickets=tickets.to(torch.int32),
        q=tickets.to(torch.float32) * (1.0 / dyadic24.TICKETS),
        token=torch.where(active, token, 0).to(torch.int32),
        error=torch.where(active, error, 0),
    )


def emitted(ids: Tensor, token_map: Tensor | None) -> Tensor:
    """Draft ids -> ids that are emitted; -1 stays.

    Args:
        ids: int32 of any shape.
        token_map: ``[V]`` int32, None where the ids are the same.
    """
    if token_map is None:
        return ids
    return torch.where(ids < 0, ids, token_map[ids.clamp(min=0).to(torch.int64)])


def block(
    w1: Tensor,
    w2: Tensor,
    *,
    base: Tensor,
    mode: Tensor,
    key: Tensor,
    position: Tensor,
    round: Tensor,
    anchor: Tensor,
    bias_of: Callable[[Tensor], Tensor] | None = None,
    token_map: Tensor | None = None,
) -> Block:
    """Return what a block must give; as :func:`pp4.kernels.expected.reference_outputs`.

    An error stays with its row: later positions carry the first one, and start from token 0.

    Args:
        w1: ``[target vocab, R]`` int16 BF16 patterns.
        w2: ``[V, R]`` int16 BF16 patterns.
        base: ``[B, n_out, V]`` int16 BF16 patterns of the base logits.
        mode: ``[B]`` int32, ``SAMPLED``, ``GREEDY`` or ``INACTIVE``.
        key: ``[B]`` int64, 64-bit keys.
        position: ``[B]`` int64, absolute position of the first predicted token.
        round: ``[B]`` int64.
        anchor: ``[B]`` int64, token before the first predicted one, below ``target vocab``; what
            an inactive row has there is not looked at.
        bias_of: ``[B]`` int64 previous tokens -> ``[B, V]`` int16 bias rows, in place of the tree.
        token_map: ``[V]`` int32, id that is emitted per draft id.

    Returns:
        The outputs.

    Raises:
        BadInputError: a dtype or shape does not fit.
    """
    vocab, width = w2.shape[0], w2.shape[-1]
    require("w2", w2, torch.int16, (None, None))
    require("w1", w1, torch.int16, (None, width))
    require("base", base, torch.int16, (None, None, vocab))
    if not base.shape[1]:
        raise BadInputError.of("base", "at least one position", "none")
    require("anchor", anchor, torch.int64, (base.shape[0],))
    require("mode", mode, torch.int32, (base.shape[0],))
    if token_map is not None:
        require("token_map", token_map, torch.int32, (vocab,))
    active = mode != INACTIVE
    previous, broken = torch.where(active, anchor, 0), torch.zeros_like(mode)
    positions = []
    for index in range(base.shape[1]):
        bias = bias_of(previous) if bias_of else markov_bias(w1.index_select(0, previous), w2)
        patterns = conditioned(base[:, index], bias)
        rows = select(patterns, key=key, position=position + index, round=round, mode=mode)
        broken = torch.where(broken != 0, broken, rows.error)
        failed = (broken != 0)[:, None]
        ids = torch.where(active[:, None], emitted(rows.ids, token_map), 0)
        token = torch.where(active, emitted(rows.token, token_map), 0)
        token = torch.where(broken != 0, -1, token)
        q = torch.where(failed, 0.0, rows.q)
        positions.append((torch.where(failed, -1, ids), q, token, broken))
        previous = token.clamp(min=0).to(torch.int64)
    return Block(*(torch.stack(parts, dim=1) for parts in zip(*positions, strict=True)))
