"""The registry of random streams: no two uses of randomness share one.

A stream shared by two purposes correlates decisions that must be independent and biases the
output, so a purpose is a word of the Philox counter and is never invented at the call site.
"""

from enum import IntEnum


class Purpose(IntEnum):
    """Third word of the Philox counter."""

    DRAFT = 1
    ACCEPT = 2
    RESIDUAL = 3
    BONUS = 4


DRAFT = Purpose.DRAFT
ACCEPT = Purpose.ACCEPT
RESIDUAL = Purpose.RESIDUAL
BONUS = Purpose.BONUS
