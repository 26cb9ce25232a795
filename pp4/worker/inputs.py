"""Inputs of an exercised block, made from a seed: every process that asks gets the same bytes."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from pp4.kernels.block import Request
from pp4.kernels.geometry import WIDTH, Geometry
from pp4.kernels.reference import Row, round_bf16
from pp4.wire.facts import Case, Shape

_WEIGHT_SEED = 20260707
_FLAT = 4
"""Every fourth token has a zero Markov row, so that ties of the base logits stay ties."""


def geometry_of(shape: Shape) -> Geometry:
    """The geometry that a shape on the wire means."""
    return Geometry(
        vocab=shape.vocab,
        split=shape.split,
        tile=shape.tile,
        rank_dim=shape.rank_dim,
        warps=shape.warps,
    )


@lru_cache(maxsize=4)
def weights(geometry: Geometry) -> tuple[Row, Row]:
    """Markov weights ``[V, R]`` each, float32 that holds BF16."""
    rng = np.random.default_rng(_WEIGHT_SEED)
    size = (geometry.vocab, geometry.rank_dim)
    w1 = rng.standard_normal(size).astype(np.float32)
    w1[::_FLAT] = 0
    w2 = rng.standard_normal(size).astype(np.float32) * np.float32(0.3)
    return round_bf16(w1), round_bf16(w2)


def cached_tokens(geometry: Geometry, cached: str) -> tuple[int, ...]:
    """Tokens whose bias rows are cached: ``none``, ``all``, or every other one (``mixed``)."""
    step = {"none": 0, "mixed": 2, "all": 1}[cached]
    return tuple(range(0, geometry.vocab, step)) if step else ()


def requests(geometry: Geometry, case: Case) -> list[Request]:
    """One request per row; keys and positions differ in every row and seed."""
    rng = np.random.default_rng([case.seed, 1])
    rows = []
    for mode in case.modes:
        anchor = int(rng.integers(geometry.vocab))
        if case.content != "random":
            anchor -= anchor % _FLAT
        rows.append(
            Request(
                mode=mode,
                key=int(rng.integers(1 << 64, dtype=np.uint64)),
                position=int(rng.integers(1 << 20)),
                round=int(rng.integers(1 << 32)),
                anchor=anchor,
            )
        )
    return rows


def logits(geometry: Geometry, case: Case) -> Row:
    """Base logits ``[B, n_out, V]``, float32 that holds BF16."""
    rng = np.random.default_rng([case.seed, 2])
    shape = (case.batch, case.n_out, geometry.vocab)
    base = _CONTENTS[case.content](rng, shape, geometry)
    for row in case.poisoned:
        base[row] = np.nan
    if case.flaw != "none":
        _spoil(base[0, case.flaw_at], geometry.bounds[case.flaw_rank], case.flaw)
    return base


def _spoil(row: Row, bounds: tuple[int, int], flaw: str) -> None:
    if flaw == "empty":
        row[:] = -np.inf
    else:
        row[sum(bounds) // 2] = {"nan": np.nan, "inf": np.inf}[flaw]


def _random(rng: np.random.Generator, shape: tuple[int, ...], _: Geometry) -> Row:
    return round_bf16(rng.standard_normal(shape).astype(np.float32) * np.float32(3))


def _constant(_: np.random.Generator, shape: tuple[int, ...], __: Geometry) -> Row:
    return np.full(shape, 1.5, np.float32)


def _plateau(shape: tuple[int, ...], around: int) -> Row:
    # more equal columns than there are places, on both sides of a border
    base = np.full(shape, -4.0, np.float32)
    base[..., max(0, around - WIDTH) : around + WIDTH] = 2.0
    return base


def _tile_ties(_: np.random.Generator, shape: tuple[int, ...], geometry: Geometry) -> Row:
    return _plateau(shape, min(geometry.tile, geometry.split - 1))


def _shard_ties(_: np.random.Generator, shape: tuple[int, ...], geometry: Geometry) -> Row:
    return _plateau(shape, geometry.split)


def _two_finite(rng: np.random.Generator, shape: tuple[int, ...], geometry: Geometry) -> Row:
    base = np.full(shape, -np.inf, np.float32)
    base[..., 3], base[..., geometry.vocab - 1] = 1.0, 0.5
    return base


def _extremes(rng: np.random.Generator, shape: tuple[int, ...], _: Geometry) -> Row:
    largest = np.array(0x7F7F0000, np.uint32).view(np.float32)
    smallest = np.array(0x00010000, np.uint32).view(np.float32)
    values = np.array([largest, -largest, smallest, -smallest, 0, -0.0, 1, -np.inf], np.float32)
    return values[rng.integers(len(values), size=shape)]


_CONTENTS = {
    "random": _random,
    "constant": _constant,
    "tile-ties": _tile_ties,
    "shard-ties": _shard_ties,
    "two-finite": _two_finite,
    "extremes": _extremes,
}
