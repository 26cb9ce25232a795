"""The shapes that a compiled kernel depends on, and nothing that varies while it runs."""

from __future__ import annotations

from dataclasses import dataclass

from pp4.errors import BadInputError
from pp4.kernels.layout import HELPED, NARROW_BITS, WIDE_BITS

WIDTH = 32
STRIDE = 128
"""Rows of shards are padded to a multiple of this many elements."""
GROUP = 4
"""Columns that a tile compares by their best."""
SPAN_OF_A_WARP = 8
"""Columns that a warp multiplies with W2 at once: more would not fit the registers."""
REGISTERS = 128
"""Of a thread at most.  Products with W2 would take more, in blocks that have none too."""
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

    Raises:
        BadInputError: a bound is empty or out of range.
    """

    vocab: int
    split: int
    tile: int = 2048
    rank_dim: int = 256
    mapped: bool = False
    warps: int = 4

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

        Of each row 32 words of the peer and a list of 32 keys for each tile; of the few rows that
        all blocks share a key for each group, which no batch makes more.
        """
        in_a_word = 2 if self.bits(shards) == NARROW_BITS else 1
        lists = shards * self.tiles
        keys = batch * (in_a_word + lists) * WIDTH + HELPED * lists * self.groups
        return -(-keys // in_a_word)

    def constants(self, *, shards: int, interpreted: bool) -> dict[str, int | bool]:
        """Compile-time arguments of the kernel: 1 shard for a rank of a pair, 2 for solo."""
        if shards not in (1, 2):
            raise BadInputError.of("shards", "1 (a rank of a pair) or 2 (solo)", str(shards))
        return {
            "SHARDS": shards,
            "TILES": self.tiles,
            "PADDED_LISTS": _padded_power(shards * self.tiles),
            "TILE": self.tile,
            "GROUP": self.group,
            "SPAN": min(SPAN_OF_A_WARP * self.warps, self.tile),
            "BITS": self.bits(shards),
            "RANK_DIM": self.rank_dim,
            "HAS_MAP": self.mapped,
            "INTERPRETED": interpreted,
        }

    def options(self) -> dict[str, int | bool]:
        """Compiler options: no fusion of products and sums, since it would change roundings.

        Registers are few enough that a multiprocessor holds four blocks of four warps.
        """
        return {"num_warps": self.warps, "enable_fp_fusion": False, "maxnreg": REGISTERS}
