"""The shapes that a compiled kernel depends on, and nothing that varies while it runs."""

from __future__ import annotations

from dataclasses import dataclass

from pp4.errors import BadInputError
from pp4.kernels.layout import NARROW_BITS, WIDE_BITS

WIDTH = 32
STRIDE = 128
"""Rows of shards are padded to a multiple of this many elements."""
GROUP = 4
"""Columns that a tile compares by their best."""
REGISTERS = 128
"""Of a thread at most.  Products with W2 would take more, in blocks that have none too."""
FEW_BLOCKS = 16
"""Of a tile, in launches of few rows.  Those that find nothing to do cost next to nothing."""
MAX_VOCAB = (1 << 31) - 1
MAX_TILES = 1024
MAX_TILE = 1 << 15


def _power_of_two(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0


def _padded_power(value: int) -> int:
    return 1 << (value - 1).bit_length()


@dataclass(frozen=True, slots=True)
class Geometry:
    """Vocabulary, shard bounds and tiling of one specialisation.

    Attributes:
        vocab: columns of the (draft) vocabulary over both shards.
        split: first id of the second shard; shard 0 is [0, split), shard 1 is [split, vocab).
        tile: columns of a tile, a power of two from 32.
        rank_dim: inner dimension of the Markov weights, a power of two.
        mapped: whether a reduced draft vocabulary is mapped to target ids.
        warps: warps of a block.
        panel: columns that a block multiplies with W2 at once, a power of two from 32; of a smaller
            tile all of it.

    Raises:
        BadInputError: a bound is empty or out of range.
    """

    vocab: int
    split: int
    tile: int = 2048
    rank_dim: int = 256
    mapped: bool = False
    warps: int = 4
    panel: int = 512

    def __post_init__(self) -> None:
        if not 2 <= self.vocab <= MAX_VOCAB:
            raise BadInputError.of("vocab", f"2 to {MAX_VOCAB}", str(self.vocab))
        if not 0 < self.split < self.vocab:
            raise BadInputError.of(
                "split", f"both shards of {self.vocab} columns nonempty", str(self.split)
            )
        if not (_power_of_two(self.tile) and WIDTH <= self.tile <= MAX_TILE):
            raise BadInputError.of(
                "tile", f"a power of two from {WIDTH} to {MAX_TILE}", str(self.tile)
            )
        if not (_power_of_two(self.panel) and WIDTH <= self.panel <= MAX_TILE):
            raise BadInputError.of(
                "panel", f"a power of two from {WIDTH} to {MAX_TILE}", str(self.panel)
            )
        if not _power_of_two(self.rank_dim):
            raise BadInputError.of("rank_dim", "a power of two", str(self.rank_dim))
        if self.warps not in (1, 2, 4, 8, 16):
            raise BadInputError.of("warps", "1, 2, 4, 8 or 16", str(self.warps))
        if self.tiles > MAX_TILES:
            raise BadInputError.of(
                "tile", f"at most {MAX_TILES} tiles a shard", f"{self.tiles} of {self.tile}"
            )

    @property
    def bounds(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """First and past-the-last id of each shard."""
        return (0, self.split), (self.split, self.vocab)

    @property
    def widest(self) -> int:
        """Columns of the larger shard."""
        return max(self.split, self.vocab - self.split)

    @property
    def stride(self) -> int:
        """Elements from one padded row of a shard to the next, the same on both ranks."""
        return -(-self.widest // STRIDE) * STRIDE

    @property
    def tiles(self) -> int:
        """Tiles of a shard, the same on both ranks so that both run the same binary."""
        return -(-self.widest // self.tile)

    @property
    def panel_width(self) -> int:
        """Columns of a panel of W2."""
        return min(self.panel, self.tile)

    @property
    def panels(self) -> int:
        """Panels of a tile."""
        return self.tile // self.panel_width

    @property
    def pairs(self) -> int:
        """Words of a row of the Markov weights, of two places each."""
        return max(1, self.rank_dim // 2)

    @property
    def group(self) -> int:
        """Neighbours that a tile compares by their best: a tile has 32 groups at least."""
        return min(GROUP, self.tile // WIDTH)

    @property
    def groups(self) -> int:
        """Groups of a tile."""
        return self.tile // self.group

    def bits(self, shards: int) -> int:
        """Bits of the number of a group, over all shards of a launch."""
        groups = shards * self.tiles * self.groups
        return NARROW_BITS if groups <= 1 << NARROW_BITS else WIDE_BITS

    def scratch_words(self, batch: int, shards: int) -> int:
        """int64 words that the launches of a batch leave to each other's blocks.

        Of each row 32 words of the peer, and 32 for each tile and each of several panels.
        """
        lists = shards * self.tiles * (1 + self.panels if self.panels > 1 else 1)
        return batch * (1 + lists) * WIDTH

    def grid(self, batch: int, shards: int) -> tuple[int, int]:
        """Programs of a launch: tiles, and blocks for each row.

        Of few rows there are more, so that of rows without a bias row each takes one panel.
        """
        panels_of_all = self.panels * -(-batch // 2)
        return shards * self.tiles, max(batch, min(FEW_BLOCKS, panels_of_all))

    def constants(self, *, shards: int, interpreted: bool) -> dict[str, int | bool]:
        """Compile-time arguments of the kernel: 1 shard for a rank of a pair, 2 for solo."""
        if shards not in (1, 2):
            raise BadInputError.of("shards", "1 (a rank of a pair) or 2 (solo)", str(shards))
        return {
            "SHARDS": shards,
            "TILES": self.tiles,
            "PADDED_LISTS": _padded_power(shards * self.tiles),
            "TILE": self.tile,
            "PANEL": self.panel_width,
            "GROUP": self.group,
            "BITS": self.bits(shards),
            "WORDS": self.pairs,
            "HAS_MAP": self.mapped,
            "INTERPRETED": interpreted,
        }

    def options(self) -> dict[str, int | bool]:
        """Compiler options: no fusion of products and sums, since it would change roundings.

        Registers are few enough that a multiprocessor holds four blocks of four warps.
        """
        return {"num_warps": self.warps, "enable_fp_fusion": False, "maxnreg": REGISTERS}
