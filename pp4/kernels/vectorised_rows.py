"""Philox and ``dyadic24`` over many rows at once: the arithmetic of the vectorised reference.

Everything is int64 on the device of its arguments: no loop over rows, no value read back, no shape
that depends on a value.  Products stay below 2**62, so no step wraps.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pp4.errors import BadInputError
from pp4.kernels import dyadic24
from pp4.kernels.philox import _MASK, _MULTIPLIERS, _ROUNDS, _WEYL, DEFINITION_WORD
from pp4.kernels.purposes import DRAFT


def require(name: str, tensor: Tensor, dtype: torch.dtype, shape: Sequence[int | None]) -> None:
    """Refuse a tensor of another dtype or shape; looks at no value.

    Args:
        name: what it is called in the refusal.
        tensor: what was given.
        dtype: what it must hold.
        shape: its sizes, ``None`` where any size is fine.

    Raises:
        BadInputError: it is another.
    """
    sizes = tuple(tensor.shape)
    fits = len(sizes) == len(shape) and all(
        want is None or want == size for want, size in zip(shape, sizes, strict=True)
    )
    if tensor.dtype != dtype or not fits:
        wanted = ", ".join("any" if want is None else str(want) for want in shape)
        raise BadInputError.of(name, f"{dtype} [{wanted}]", f"{tensor.dtype} {list(sizes)}")


def _wide_product(multiplier: int, word: Tensor) -> tuple[Tensor, Tensor]:
    """High and low 32 bits of a 32-bit constant times 32-bit words.

    The 64-bit product does not fit a signed int64, so the word goes in two halves of 16 bits, whose
    products stay below 2**48.
    """
    low = (word & 0xFFFF) * multiplier
    high = (word >> 16) * multiplier + (low >> 16)
    return high >> 16, ((high & 0xFFFF) << 16) | (low & 0xFFFF)


def philox4x32_10(counter: Sequence[Tensor], key: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Return the four 32-bit words of many blocks; see :func:`pp4.kernels.philox.philox4x32_10`.

    Args:
        counter: four int64 tensors of one shape, words 0 to 2**32 - 1.
        key: two such tensors, low word first.

    Returns:
        Four int64 tensors of that shape, words 0 to 2**32 - 1.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        even_high, even_low = _wide_product(_MULTIPLIERS[0], c0)
        odd_high, odd_low = _wide_product(_MULTIPLIERS[1], c2)
        c0, c1, c2, c3 = odd_high ^ c1 ^ k0, odd_low, even_high ^ c3 ^ k1, even_low
        k0 = (k0 + _WEYL[0]) & _MASK
        k1 = (k1 + _WEYL[1]) & _MASK
    return c0, c1, c2, c3


def draft_tickets(*, key: Tensor, position: Tensor, round: Tensor) -> Tensor:
    """Return the drawn ticket of each row; see :func:`pp4.kernels.philox.draft_ticket`.

    Args:
        key: ``[N]`` int64, the request's own 64-bit key; its sign bit is the key's top bit.
        position: ``[N]`` int64, absolute position of the predicted token, read modulo 2**32, so
            that a word that travelled as a signed int32 is the same word.
        round: ``[N]`` int64, likewise.

    Returns:
        ``[N]`` int64, 0 <= k < 2**24.
    """
    purpose = torch.full_like(key, int(DRAFT))
    definition = torch.full_like(key, DEFINITION_WORD)
    counter = (position & _MASK, round & _MASK, purpose, definition)
    return philox4x32_10(counter, (key & _MASK, (key >> 32) & _MASK))[0] >> 8


def _weights(difference: Tensor) -> Tensor:
    """Weights of differences in units of 2**-16, at most ``CLAMP``; int64 in, int64 out."""
    scaled = (difference * dyadic24.SCALE) >> dyadic24.FRACTION_BITS
    whole = (scaled >> dyadic24.EXPONENT_BITS).clamp(max=dyadic24.MAX_SHIFT)
    fraction = scaled & ((1 << dyadic24.EXPONENT_BITS) - 1)
    accumulator = torch.full_like(fraction, dyadic24.POLYNOMIAL[-1])
    for coefficient in reversed(dyadic24.POLYNOMIAL[:-1]):
        # int64 >> is arithmetic: it floors negative products too
        accumulator = ((accumulator * fraction) >> dyadic24.EXPONENT_BITS) + coefficient
    weights = (accumulator << dyadic24.WEIGHT_SHIFT) >> whole
    return torch.where(difference == 0, dyadic24.FULL_WEIGHT, weights)


def allocate(values: Tensor, listed: Tensor) -> Tensor:
    """Return the tickets of the selected values of each row; see :func:`dyadic24.allocate`.

    Args:
        values: ``[N, 32]`` float32, finite and falling where listed, anything elsewhere.
        listed: ``[N, 32]`` bool, true on the first n places of a row.

    Returns:
        ``[N, 32]`` int64, zero where not listed; each row sums to 2**24 (a row without a listed
        value has all of them on its first place, and whoever calls leaves it out).
    """
    first = values[:, :1]
    # what is not listed may be a NaN, which has no integer
    gaps = torch.where(listed, first - values, 0.0).clamp(max=float(dyadic24.CLAMP))
    # scaling by a power of two is exact, and the conversion truncates
    difference = (gaps * float(1 << dyadic24.FRACTION_BITS)).to(torch.int64)
    weights = torch.where(listed, _weights(difference), 0)
    # at least 2**38 with a listed value; without one, nothing is divided by zero
    total = weights.sum(dim=1, keepdim=True).clamp(min=1)
    tickets = torch.div(weights << dyadic24.TICKET_BITS, total, rounding_mode="floor")
    rest = dyadic24.TICKETS - tickets.sum(dim=1, keepdim=True)
    return torch.cat((tickets[:, :1] + rest, tickets[:, 1:]), dim=1)


def draw(tickets: Tensor, ticket: Tensor) -> Tensor:
    """Return the place that owns each row's ticket; see :func:`dyadic24.draw`.

    Args:
        tickets: ``[N, 32]`` int64, rows that sum to 2**24.
        ticket: ``[N]`` int64, 0 <= k < 2**24.

    Returns:
        ``[N]`` int64: the first place whose running sum exceeds the ticket.
    """
    return (tickets.cumsum(dim=1) <= ticket[:, None]).sum(dim=1)
