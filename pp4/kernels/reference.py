"""The exact reference in NumPy and Python integers; the kernel equals it with ``==``.

BF16 values travel as float32 arrays whose low 16 bits are zero.  Nothing here depends on the order
of a framework's sum: every addition that is not exact stands in a fixed tree.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pp4.errors import BadInputError
from pp4.kernels import dyadic24
from pp4.kernels.faults import Fault
from pp4.kernels.philox import draft_ticket

Row = npt.NDArray[np.float32]

_QUIET_NAN = np.uint32(0x7FC00000)


@dataclass(frozen=True, slots=True)
class Selection:
    """What one row of one position gives.

    Attributes:
        ids: 32 token ids in order of selection, -1 where no candidate is.
        tickets: 32 tickets; they sum to 2**24 on a sampled row and are zero on others.
        q: 32 probabilities, ``tickets * 2**-24``, exact in FP32.
        token: the drawn token, the argmax on a greedy row, -1 on an error.
        error: ``Fault.NONE`` or the reason why the row may not be used.
    """

    ids: tuple[int, ...]
    tickets: tuple[int, ...]
    q: tuple[float, ...]
    token: int
    error: Fault

    @property
    def continuation(self) -> int:
        """The token that the next position of the block starts from; 0 after an error."""
        return 0 if self.error else self.token


def round_bf16(values: Row) -> Row:
    """Round float32 to BF16, ties to even, in integers; NaN stays NaN, overflow becomes infinity.

    Args:
        values: any float32 array.

    Returns:
        float32 of the same shape that BF16 holds exactly.
    """
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> 16) & np.uint32(1))) & np.uint32(0xFFFF0000)
    is_nan = (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    return np.where(is_nan, _QUIET_NAN, rounded).astype(np.uint32).view(np.float32)


def require_bf16(name: str, values: npt.ArrayLike) -> Row:
    """Return ``values`` as a contiguous array.

    Raises:
        BadInputError: another dtype than float32, or a value that BF16 does not hold.
    """
    array = np.asarray(values)
    if array.dtype != np.float32:
        raise BadInputError.of(name, "float32 that holds BF16 values", f"dtype {array.dtype}")
    array = np.ascontiguousarray(array)
    low = array.view(np.uint32) & np.uint32(0xFFFF)
    # a NaN is no exception: one with a payload only in the low half would become an infinity
    if np.any(low):
        where = np.argwhere(low)[0].tolist()
        raise BadInputError.of(
            name, "values that BF16 holds", f"{array[tuple(where)]!r} at {where}"
        )
    return array


def markov_bias(w1_row: npt.ArrayLike, w2: npt.ArrayLike) -> Row:
    """Return the bias that a previous token adds to every column.

    ``bf16(tree(w1_row[r] * w2[v, r]))`` with the halving tree ``x[:R/2] + x[R/2:]``, each sum
    rounded to FP32.

    Args:
        w1_row: ``[R]`` float32 that holds BF16, R a power of two.
        w2: ``[V, R]`` float32 that holds BF16.

    Returns:
        ``[V]`` float32 that holds BF16.

    Raises:
        BadInputError: a shape, dtype or value does not fit.
    """
    left, right = require_bf16("w1_row", w1_row), require_bf16("w2", w2)
    width = left.shape[-1] if left.ndim == 1 else 0
    if width < 1 or width & (width - 1) or right.ndim != 2 or right.shape[1] != width:
        raise BadInputError.of(
            "markov weights", "[R] and [V, R], R a power of two", f"{left.shape} and {right.shape}"
        )
    with np.errstate(all="ignore"):
        terms = left[None, :] * right
        while width > 1:
            width //= 2
            terms = terms[:, :width] + terms[:, width:]
    return round_bf16(terms[:, 0])


def conditioned(base: npt.ArrayLike, bias: npt.ArrayLike) -> Row:
    """Return ``bf16(fp32(base) + fp32(bias))``, ties to even.

    Args:
        base: float32 that holds BF16, any shape.
        bias: the same shape.

    Returns:
        float32 that holds BF16; NaN and infinities stay what they are.

    Raises:
        BadInputError: shapes differ, or a value is not BF16.
    """
    left, right = require_bf16("base", base), require_bf16("bias", bias)
    if left.shape != right.shape:
        raise BadInputError.of("base and bias", "equal shapes", f"{left.shape} and {right.shape}")
    with np.errstate(all="ignore"):
        return round_bf16(left + right)


def _failed(error: Fault) -> Selection:
    nothing = (0,) * dyadic24.WIDTH
    return Selection((-1,) * dyadic24.WIDTH, nothing, (0.0,) * dyadic24.WIDTH, -1, error)


def top_ids(row: Row) -> list[int]:
    """Return the ids of the 32 largest finite values, value falling, lower id first on ties.

    Args:
        row: ``[V]`` float32 without NaN or +inf; -inf is masked.
    """
    ids = np.flatnonzero(np.isfinite(row))
    values = row[ids] + np.float32(0)  # -0 becomes +0
    order = np.lexsort((ids, -values.astype(np.float64)))[: dyadic24.WIDTH]
    return [int(token) for token in ids[order]]


def select_row(
    logits: npt.ArrayLike, *, key: int, position: int, round: int, greedy: bool = False
) -> Selection:
    """Select the top 32 of a conditioned row, allocate tickets and draw.

    Args:
        logits: ``[V]`` conditioned logits, float32 that holds BF16.
        key: the request's own 64-bit key.
        position: absolute position of the predicted token.
        round: the request's round.
        greedy: a row at T = 0: the argmax, no draw, q zero.

    Returns:
        The selection; errors of the row are words in it, not exceptions.

    Raises:
        BadInputError: the row is not a vector of BF16 values or a counter word does not fit.
    """
    row = require_bf16("logits", logits)
    if row.ndim != 1 or not row.size:
        raise BadInputError.of("logits", "one row of at least one column", f"shape {row.shape}")
    ticket = draft_ticket(key=key, position=position, round=round)
    if np.any(np.isnan(row) | np.isposinf(row)):
        return _failed(Fault.BAD_LOGITS)
    chosen = top_ids(row)
    if not chosen:
        return _failed(Fault.EMPTY_ROW)
    spare = dyadic24.WIDTH - len(chosen)
    ids = tuple(chosen) + (-1,) * spare
    if greedy:
        nothing = (0,) * dyadic24.WIDTH
        return Selection(ids, nothing, (0.0,) * dyadic24.WIDTH, ids[0], Fault.NONE)
    tickets = dyadic24.allocate([float(row[token] + np.float32(0)) for token in chosen])
    padded = tickets + (0,) * spare
    q = tuple(count / dyadic24.TICKETS for count in padded)
    return Selection(ids, padded, q, ids[dyadic24.draw(tickets, ticket)], Fault.NONE)
