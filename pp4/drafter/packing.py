"""How a batch crosses between a host and a rank: one buffer of inputs, one of outputs.

Both are 32-bit words, little-endian, so each takes one copy to or from a device, and the outputs
of both ranks can be compared as bytes.  Inputs lie member by member, since a kernel reads a member
of all rows; outputs lie row by row, since a row is what a reply is made of.

    inputs    slot [B]  length [B]  anchor [B]  mode [B]  position [B]  round [B]  key [B] 64 bit
    outputs   [B] of: ids [k, 32]  q [k, 32]  token [k]  confidence [k]  error [k]  stamp [k] 64 bit
              then the own error, 64 bit, and errors told by the peer [ERROR_WORDS] 64 bit

``k`` is the query block of the checkpoint; positions that were not asked for are zero throughout.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from pp4.kernels.dyadic24 import WIDTH
from pp4.kernels.layout import ERROR_WORDS

MEMBERS: Final = ("slot", "length", "anchor", "mode", "position", "round")
"""32-bit members of the inputs in their order; the 64-bit keys follow them."""
TAIL_WORDS: Final = 2 * (1 + ERROR_WORDS)


def input_words(batch: int) -> int:
    """32-bit words of the inputs of a batch."""
    return (len(MEMBERS) + 2) * batch


def input_type(batch: int) -> np.dtype[Any]:
    """The inputs of a batch as one record: each of MEMBERS ``[B]``, ``key`` ``[B]`` uint64."""
    members: list[tuple[str, str, tuple[int, ...]]] = [
        (name, "<u4" if name == "round" else "<i4", (batch,)) for name in MEMBERS
    ]
    return np.dtype([*members, ("key", "<u8", (batch,))])


def row_type(block: int) -> np.dtype[Any]:
    """One row of the outputs.

    Args:
        block: queries of the checkpoint's block.
    """
    return np.dtype(
        [
            ("ids", "<i4", (block, WIDTH)),
            ("q", "<f4", (block, WIDTH)),
            ("token", "<i4", (block,)),
            ("confidence", "<f4", (block,)),
            ("error", "<i4", (block,)),
            ("stamp", "<i8", (block,)),
        ]
    )


REPLY_MEMBERS: Final = ("ids", "q", "token", "confidence")
"""Members of a row that leave with a reply; they come first, so they are one piece of bytes."""


def row_words(block: int) -> int:
    """32-bit words of one row of the outputs."""
    return row_type(block).itemsize // 4


def output_words(batch: int, block: int) -> int:
    """32-bit words of the outputs of a batch, the words of errors at the end included."""
    return batch * row_words(block) + TAIL_WORDS
