"""The sizes that the kernels of a backbone are compiled for, and which of them they take."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

MAX_HIDDEN: Final = 16384
"""Elements of a row that one program holds."""
MAX_ROWS: Final = 64
"""Queries that share a key head: the rows of one program's tile."""
MAX_BLOCK: Final = 32
HEAD_DIMS: Final = (16, 32, 64, 128, 256)
MULTIPLE: Final = 8
"""BF16 elements in 16 bytes: rows start where a load can take as many."""
CHUNK: Final = 128
"""Cached places that are dealt to a program at once."""
TILE: Final = 64
"""Of these, how many it looks at in one go."""
SPLITS: Final = 16
"""Programs that share the places of a row: one has the block's own, the others the cached ones.
None of the three may depend on a batch or on a length: a row's bits would."""
_TENSOR_CORE: Final = 16
"""Fewest rows and columns that a tensor core multiplies."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of a backbone.

    Attributes:
        hidden: width of the hidden states.
        heads: query heads.
        kv_heads: key and value heads.
        head_dim: width of a head.
        intermediate: width inside the feed-forward network.
        block: queries of a block.
        eps: added to the mean square in every RMSNorm.
    """

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    block: int
    eps: float

    @property
    def qkv(self) -> int:
        """Elements of a token's queries, keys and values side by side."""
        return (self.heads + 2 * self.kv_heads) * self.head_dim

    @property
    def sharing(self) -> int:
        """Queries of a block that share a key head."""
        return self.block * (self.heads // self.kv_heads)

    @property
    def rows(self) -> int:
        """Rows of the tile that these queries make."""
        return _padded(self.sharing)

    @property
    def own(self) -> int:
        """Places of the tile that the block's own keys make."""
        return _padded(self.block)

    @property
    def padded_hidden(self) -> int:
        """Elements that a program of a row has, the unused ones included."""
        return 1 << (self.hidden - 1).bit_length()

    @property
    def scale(self) -> float:
        """What a product of query and key is multiplied by, to be an exponent of two."""
        return math.log2(math.e) / math.sqrt(self.head_dim)

    @property
    def unsupported(self) -> tuple[str, ...]:
        """A reason for each size that the kernels do not take; none where they take all."""
        return tuple(_reasons(self))


def _padded(count: int) -> int:
    return max(_TENSOR_CORE, 1 << (count - 1).bit_length())


def _reasons(sizes: Sizes) -> Iterator[str]:
    if sizes.hidden % MULTIPLE or sizes.hidden > MAX_HIDDEN:
        yield f"hidden size {sizes.hidden} is no multiple of {MULTIPLE} up to {MAX_HIDDEN}"
    if sizes.intermediate % MULTIPLE:
        yield f"intermediate size {sizes.intermediate} is no multiple of {MULTIPLE}"
    if sizes.head_dim not in HEAD_DIMS:
        yield f"heads are {sizes.head_dim} wide, not one of {', '.join(map(str, HEAD_DIMS))}"
    if sizes.block > MAX_BLOCK:
        yield f"a block of {sizes.block} queries is longer than {MAX_BLOCK}"
    if sizes.sharing > MAX_ROWS:
        yield f"{sizes.sharing} queries share a key head, more than {MAX_ROWS}"
