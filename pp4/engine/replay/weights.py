"""A target's probabilities as the verifier's integers, and how many words accept a token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pp4.verifier.units import ACCEPT_BITS, SLACK, TOTAL, WORD_BITS

WORDS: Final = 1 << WORD_BITS
"""How many words there are; each is as likely as any other."""


@dataclass(frozen=True, slots=True)
class Weights:
    """R distributions in units of 2**-48.

    Attributes:
        rows: ``[R, V]`` int64; each row sums to exactly 2**48.
        sound: ``[R]`` bool: whether the verifier takes them; others mean nothing.
    """

    rows: NDArray[np.int64]
    sound: NDArray[np.bool_]


def target_weights(probabilities: NDArray[np.float32]) -> Weights:
    """Quantise distributions; per row as :func:`pp4.verifier.reference.quantised`.

    Args:
        probabilities: ``[R, V]`` float32, each from 0 to 1.
    """
    rows = (probabilities * np.float32(TOTAL)).astype(np.int64)
    rest = TOTAL - rows.sum(axis=1)
    # the first of the largest is the one of the lowest id
    first = rows.argmax(axis=1)[:, None]
    largest = np.take_along_axis(rows, first, axis=1) + rest[:, None]
    np.put_along_axis(rows, first, largest, axis=1)
    return Weights(rows, (np.abs(rest) <= SLACK) & (largest[:, 0] >= 0))


def accepting_words(weight: int, tickets: int) -> int:
    """How many of the 2**64 words accept a token: those with ``u * tickets < weight << 40``.

    Args:
        weight: the target's, 0 to 2**48.
        tickets: the drafter's, above 0; 2**24 where the token is the whole proposal.
    """
    return min(WORDS, -(-(weight << ACCEPT_BITS) // tickets))
