"""Units, bounds and modes that the exact verifier and the vectorised one share.

Speculative sampling as in arXiv 2211.17192 and 2302.01318, with every probability an integer: a
target's weight is worth 2**-48, a drafter's ticket 2**-24, a random word 2**-64.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from pp4.kernels.dyadic24 import TICKET_BITS

UNIT_BITS: Final = 48
TOTAL: Final = 1 << UNIT_BITS
"""Weights of a target distribution sum to this."""
WORD_BITS: Final = 64
ACCEPT_BITS: Final = WORD_BITS + TICKET_BITS - UNIT_BITS
"""``u * tickets < weight << ACCEPT_BITS`` is ``u / 2**64 < P / Q`` without a division."""
TICKET_WEIGHT: Final = 1 << (UNIT_BITS - TICKET_BITS)
"""A ticket in units of weight: Q is tickets times this."""
MAX_VOCABULARY: Final = 1 << 18
SLACK: Final = 1 << (UNIT_BITS - 14)
"""How far floored weights may sum from ``TOTAL``: an FP32 softmax of 2**18 columns stays well
within; probabilities that were rounded to BF16, or cut off and not normalised, as a rule do not."""


class Mode(IntEnum):
    """By what a proposal is verified; the first three are the kernels' own words."""

    INACTIVE = 0
    """A row of a batch without a proposal."""
    SAMPLED = 1
    """Drawn from q, which the tickets are."""
    GREEDY_T0 = 2
    """An argmax, for a request at temperature 0: equal to the target's argmax or rejected."""
    DELTA = 3
    """An argmax, for a request above temperature 0: q is 1 at the token."""
