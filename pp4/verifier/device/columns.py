"""Target distributions as integers: one tile each, then what the tiles of a position say together.

A floor has up to 51 bits and a place in a tile up to 12, so one word orders both: the larger floor
first, of equal ones the lower id.
"""

import triton
import triton.language as tl

from pp4.verifier.units import SLACK, TOTAL, Mode

POINTERS = ["p_ptr", "mode_ptr", "sums_ptr", "keys_ptr"]
SCALARS = ["vocabulary", "places", "tiles", "row_stride", "place_stride"]

_INACTIVE = tl.constexpr(int(Mode.INACTIVE))
_TOTAL = tl.constexpr(TOTAL)
_SLACK = tl.constexpr(SLACK)
_SCALE = tl.constexpr(float(TOTAL))
_NO_PROBABILITY = tl.constexpr(4.0)
"""Weighs more than a distribution may, and 2**12 of them less than 2**63."""
_BEYOND = tl.constexpr(4 * TOTAL)
"""A sum that refuses whatever is added to it, for the same reasons."""


@triton.jit
def floors(p):
    """``floor(p * 2**48)`` int64 of probabilities; scaling by a power of two is exact."""
    return (p * _SCALE).to(tl.int64)


@triton.jit
def _largest(p, weights, TILE: tl.constexpr):
    """The largest floor of a tile and, in the low bits, its inverted place; the first on ties.

    The largest of a distribution is at least 2**-19.  FP32 has no two such p of one floor, so they
    are compared themselves, in a quarter of the instructions that 64 bits take.
    """
    at = tl.arange(0, TILE)
    if p.dtype == tl.float32:
        largest = tl.max(p, 0)
        place = tl.min(tl.where(p == largest, at, TILE - 1), 0)
        weight = floors(largest)
    else:
        weight = tl.max(weights, 0)
        place = tl.min(tl.where(weights == weight, at, TILE - 1), 0)
    return weight * TILE + (TILE - 1 - place)


# Nothing that varies at run time makes another binary; WIDE says what a pointer's alignment would.
@triton.jit(do_not_specialize=SCALARS, do_not_specialize_on_alignment=POINTERS)
def scanned(
    p_ptr, mode_ptr, sums_ptr, keys_ptr,
    vocabulary: tl.int32, places: tl.int32, tiles: tl.int32,
    row_stride: tl.int64, place_stride: tl.int64,
    TILE: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Sum and largest word of one tile; neither depends on an order.

    Grid: rows * places * tiles.  WIDE: addresses, strides and vocabulary are such that every 16
    bytes of a tile are aligned, and inside or outside together.
    """
    column = tl.program_id(0) // tiles
    tile = tl.program_id(0) % tiles
    row = column // places
    if tl.load(mode_ptr + row) != _INACTIVE:
        place = column % places
        start = row.to(tl.int64) * row_stride + place.to(tl.int64) * place_stride + tile * TILE
        p = p_ptr + start
        left = vocabulary - tile * TILE
        if WIDE:
            p = tl.multiple_of(p, 16)
            left = tl.multiple_of(left, 16)
        at = tl.arange(0, TILE)
        found = tl.load(p + at, mask=at < left, other=0.0)
        # a NaN compares false, and no integer is made of one
        found = tl.where((found >= 0) & (found <= 1), found, _NO_PROBABILITY)
        weights = floors(found)
        out = column.to(tl.int64) * tiles + tile
        tl.store(sums_ptr + out, tl.sum(weights, 0))
        tl.store(keys_ptr + out, _largest(found, weights, TILE))


@triton.jit
def merged(found, depth, PLACES: tl.constexpr, TILES: tl.constexpr, TILE: tl.constexpr):
    """What is known of the distributions of a row.

    found: (sums, keys, tiles), both ``[depth + 1, tiles]`` in memory.  -> (argmax of the floors
    [PLACES] int32, what goes to it [PLACES] int64, whether all are distributions).
    """
    sums_ptr, keys_ptr, tiles = found
    place = tl.arange(0, PLACES)
    tile = tl.arange(0, TILES)
    at = place[:, None] * tiles + tile[None, :]
    real = (place <= depth)[:, None] & (tile < tiles)[None, :]
    sums = tl.load(sums_ptr + at, mask=real, other=0)
    keys = tl.load(keys_ptr + at, mask=real, other=0)
    rest = _TOTAL - tl.sum(tl.minimum(sums, _BEYOND), 1)
    floor = keys // TILE
    top = tl.max(floor, 1)
    ids = tile[None, :] * TILE + (TILE - 1 - (keys & (TILE - 1)).to(tl.int32))
    first = tl.min(tl.where(floor == top[:, None], ids, TILES * TILE), 1)
    sound = (rest <= _SLACK) & (rest >= -_SLACK) & (top + rest >= 0)
    return first, rest, tl.min((sound | (place > depth)).to(tl.int32), 0) != 0
