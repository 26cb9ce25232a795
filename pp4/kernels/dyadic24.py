"""``dyadic24-floor-first-v1``: a distribution over at most 32 values as exactly 2**24 tickets.

Plain integers throughout.  The weights follow exp((v - v0) / 0.7) by a fixed-point polynomial for
2**-x, each candidate gets the floor of its share, and what is left goes to the first.  A ticket is
worth 2**-24, so every q and every partial sum of q is exact in FP32.  Any change of a constant is
another definition and needs another name.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Sequence
from typing import Final

from pp4.errors import BadInputError

DEFINITION: Final = "dyadic24-floor-first-v1"
WIDTH: Final = 32
TICKET_BITS: Final = 24
TICKETS: Final = 1 << TICKET_BITS
TAU: Final = "0.7"

CLAMP: Final = 32
"""Differences beyond this weigh nothing; it also keeps infinity out of the integers."""
FRACTION_BITS: Final = 16
SCALE: Final = 2212974292
"""round(2**30 * log2(e) / 0.7)."""
EXPONENT_BITS: Final = 30
POLYNOMIAL: Final = (2147483645, -1488521945, 515877823, -119165869, 20572593, -2739202, 234782)
"""c0..c6 of 2**31 * 2**-x on [0, 1), the argument scaled by 2**30."""
WEIGHT_SHIFT: Final = 7
FULL_WEIGHT: Final = 1 << 38
MAX_SHIFT: Final = 62

VECTORS: Final[tuple[tuple[tuple[float, ...], str], ...]] = (
    ((3.0,), "b40711a88c703975"),
    ((3.0, 3.0), "50e2ee711561ea04"),
    ((3.0, 3.0, 3.0), "f3484d8b3490d9b5"),
    ((1.0,) * 32, "d7a4b181b5a76fdf"),
    (tuple(10 - i / 2 for i in range(32)), "0a704cef7f502733"),
    ((20.0,) + (8.0,) * 31, "82914769a894eb2b"),
    ((12.0, 0.5, 0.0), "9f0e726aa021efbd"),
)
"""Values and the first 16 hex digits of sha256 over their tickets as little-endian int32."""


def definition_digest() -> str:
    """Return the sha256 that pins every constant and vector of the definition."""
    record = {
        "id": DEFINITION,
        "width": WIDTH,
        "ticket_bits": TICKET_BITS,
        "tau": TAU,
        "clamp": CLAMP,
        "fraction_bits": FRACTION_BITS,
        "scale": SCALE,
        "exponent_bits": EXPONENT_BITS,
        "polynomial": POLYNOMIAL,
        "weight_shift": WEIGHT_SHIFT,
        "full_weight": FULL_WEIGHT,
        "max_shift": MAX_SHIFT,
        "vectors": VECTORS,
    }
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def _checked(values: Sequence[float]) -> tuple[float, ...]:
    row = tuple(float(value) for value in values)
    if not 1 <= len(row) <= WIDTH:
        raise BadInputError.of("values", f"1 to {WIDTH} values", f"{len(row)} values")
    for index, value in enumerate(row):
        if not math.isfinite(value):
            raise BadInputError.of(f"values[{index}]", "a finite value", repr(value))
        if abs(value) > _MAX_FLOAT32 or struct.unpack("<f", struct.pack("<f", value))[0] != value:
            raise BadInputError.of(f"values[{index}]", "a value that FP32 holds", repr(value))
        if index and value > row[index - 1]:
            raise BadInputError.of(
                f"values[{index}]", "values in falling order", f"{value} after {row[index - 1]}"
            )
    return row


_MAX_FLOAT32: Final = struct.unpack("<f", b"\xff\xff\x7f\x7f")[0]


def _difference(first: float, value: float) -> int:
    """Return trunc(min(fp32(first - value), 32) * 65536).

    The difference of two FP32 values rounded to FP64 and then to FP32 is the FP32 difference: 53
    bits are at least 2 * 24 + 2, so the second rounding never sees a tie that the first made.
    """
    exact = first - value
    if exact >= CLAMP:
        return CLAMP << FRACTION_BITS
    rounded = struct.unpack("<f", struct.pack("<f", exact))[0]
    return int(rounded * (1 << FRACTION_BITS))


def _weight(difference: int) -> int:
    if difference == 0:
        return FULL_WEIGHT
    scaled = (difference * SCALE) >> FRACTION_BITS
    whole = scaled >> EXPONENT_BITS
    fraction = scaled & ((1 << EXPONENT_BITS) - 1)
    accumulator = POLYNOMIAL[-1]
    for coefficient in reversed(POLYNOMIAL[:-1]):
        accumulator = ((accumulator * fraction) >> EXPONENT_BITS) + coefficient
    return (accumulator << WEIGHT_SHIFT) >> min(whole, MAX_SHIFT)


def allocate(values: Sequence[float]) -> tuple[int, ...]:
    """Return the tickets of selected values, as many as there are values.

    Args:
        values: 1 to 32 finite FP32 values in falling order.

    Returns:
        Tickets >= 0 that sum to exactly 2**24; a value far below the first may get none.

    Raises:
        BadInputError: no value, more than 32, one not finite, not FP32 or out of order.
    """
    row = _checked(values)
    weights = [_weight(_difference(row[0], value)) for value in row]
    total = sum(weights)
    tickets = [(weight << TICKET_BITS) // total for weight in weights]
    tickets[0] += TICKETS - sum(tickets)
    return tuple(tickets)


def draw(tickets: Sequence[int], ticket: int) -> int:
    """Return the index that owns a ticket: the first whose running sum exceeds it.

    Args:
        tickets: tickets that sum to 2**24.
        ticket: 0 <= ticket < 2**24.

    Returns:
        The index.

    Raises:
        BadInputError: the sum or the ticket is out of range.
    """
    if sum(tickets) != TICKETS or not 0 <= ticket < TICKETS:
        raise BadInputError.of("draw", "2**24 tickets and one of them", f"{sum(tickets)}, {ticket}")
    running = 0
    for index, count in enumerate(tickets):
        running += count
        if running > ticket:
            return index
    raise BadInputError.of("tickets", "no negative count", repr(tuple(tickets)))
