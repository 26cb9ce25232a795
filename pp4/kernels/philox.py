"""Philox4x32-10, the counter-based generator of Salmon et al., SC'11 (Random123), in integers."""

from __future__ import annotations

from collections.abc import Sequence

from pp4.errors import BadInputError
from pp4.kernels.purposes import Purpose

_MASK = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
DEFINITION_WORD = 0
"""Fourth word of the counter: 0 names ``dyadic24-floor-first-v1``."""


def _words(name: str, words: Sequence[int], count: int) -> tuple[int, ...]:
    if len(words) != count or any(not 0 <= word <= _MASK for word in words):
        raise BadInputError.of(name, f"{count} words of 32 bits", repr(tuple(words)))
    return tuple(int(word) for word in words)


def philox4x32_10(counter: Sequence[int], key: Sequence[int]) -> tuple[int, int, int, int]:
    """Return the four 32-bit words of one block.

    Args:
        counter: four 32-bit words.
        key: two 32-bit words, low word first.

    Returns:
        Four 32-bit words.

    Raises:
        BadInputError: a word is missing or does not fit 32 bits.
    """
    c0, c1, c2, c3 = _words("philox counter", counter, 4)
    k0, k1 = _words("philox key", key, 2)
    for _ in range(_ROUNDS):
        even = _MULTIPLIERS[0] * c0
        odd = _MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (odd >> 32) ^ c1 ^ k0, odd & _MASK, (even >> 32) ^ c3 ^ k1, even & _MASK
        k0 = (k0 + _WEYL[0]) & _MASK
        k1 = (k1 + _WEYL[1]) & _MASK
    return c0, c1, c2, c3


def stream(*, key: int, position: int, round: int, purpose: Purpose) -> tuple[int, int, int, int]:
    """Return the block that belongs to one decision of one request.

    Args:
        key: the request's own key, 64 bits.
        position: absolute position of the predicted token, 32 bits.
        round: the request's round, 32 bits, strictly increasing.
        purpose: what the words decide.

    Returns:
        Four 32-bit words.

    Raises:
        BadInputError: a word does not fit.
    """
    if not 0 <= key < 1 << 64:
        raise BadInputError.of("request key", "64 bits, unsigned", str(key))
    return philox4x32_10((position, round, int(purpose), DEFINITION_WORD), (key & _MASK, key >> 32))


def draft_ticket(*, key: int, position: int, round: int) -> int:
    """Return the drawn ticket, 0 <= k < 2**24: the top 24 bits of the DRAFT stream's first word."""
    return stream(key=key, position=position, round=round, purpose=Purpose.DRAFT)[0] >> 8
