"""Inputs of an exercised block, made from a seed on a device: both ranks get the same bytes.

Logits and weights are int16 BF16 patterns.  Devices of one model and one torch give equal numbers
for equal seeds; whoever compares runs on two devices compares a digest of the inputs as well.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import torch

from pp4.kernels import vectorised
from pp4.kernels.block import Request
from pp4.kernels.geometry import WIDTH, Geometry
from pp4.kernels.head import Head, laid_out, sharded
from pp4.wire.facts import Cached, Case, Shape

_WEIGHT_SEED = 20260707
_PERIOD = 512
"""Rows of the Markov weights repeat after this many tokens, so that few slots cache every token."""
_FLAT = 4
"""Every fourth token has a zero Markov row, so that ties of the base logits stay ties."""


def geometry_of(shape: Shape) -> Geometry:
    """The geometry that a shape on the wire means."""
    return Geometry(
        vocab=shape.vocab,
        split=shape.split,
        tile=shape.tile,
        rank_dim=shape.rank_dim,
        mapped=shape.mapped,
        warps=shape.warps,
    )


def _generator(device: torch.device, *words: int) -> torch.Generator:
    """A generator whose seed follows from all words."""
    seed = int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0] >> 1)
    return torch.Generator(device).manual_seed(seed)


def _normal(
    shape: tuple[int, ...], scale: float, generator: torch.Generator, device: torch.device
) -> torch.Tensor:
    """Normal numbers times a scale, rounded to BF16; -> int16 patterns."""
    drawn = torch.randn(shape, generator=generator, device=device)
    return (drawn * scale).to(torch.bfloat16).view(torch.int16)


# kept for the life of the process: captured graphs point into them
@cache
def weights(geometry: Geometry, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Markov weights ``[V, R]`` each; rows of the first repeat and every fourth is zero."""
    size = (min(_PERIOD, geometry.vocab), geometry.rank_dim)
    few = _normal(size, 1.0, _generator(device, _WEIGHT_SEED, 1), device)
    few[::_FLAT] = 0
    token = torch.arange(geometry.vocab, device=device)
    whole = (geometry.vocab, geometry.rank_dim)
    w2 = _normal(whole, 0.3, _generator(device, _WEIGHT_SEED, 2), device)
    return few[token % _PERIOD].contiguous(), w2


@cache
def bias_rows(geometry: Geometry, device: torch.device) -> torch.Tensor:
    """Bias of every distinct row of the first weights, by the tree; ``[min(512, V), V]``."""
    w1, w2 = weights(geometry, device)
    return vectorised.markov_bias(w1[:_PERIOD], w2)


def bias_of(geometry: Geometry, device: torch.device) -> Callable[[torch.Tensor], torch.Tensor]:
    """Bias rows of previous tokens, ``[B] -> [B, V]``, without the tree."""
    rows = bias_rows(geometry, device)
    return lambda previous: rows[previous.long() % _PERIOD]


def _is_cached(token: torch.Tensor, cached: Cached) -> torch.Tensor:
    """Bool for each token."""
    if cached == "mixed":
        return token % 2 == 0
    if cached == "most":
        return token % 16 > 0
    return torch.full_like(token, cached == "all", dtype=torch.bool)


def head(geometry: Geometry, cached: Cached, shards: tuple[int, ...], device: torch.device) -> Head:
    """Lay out weights and cache of some shards.

    Args:
        geometry: shapes and bounds.
        cached: which tokens have a bias row.
        shards: which shards are here.
        device: where they are.
    """
    w1, w2 = weights(geometry, device)
    token = torch.arange(geometry.vocab, device=device, dtype=torch.int32)
    slot_of = torch.where(_is_cached(token, cached), token % _PERIOD, -1)
    return Head(
        geometry=geometry,
        shards=shards,
        **laid_out(w1, [w2[slice(*geometry.bounds[shard])] for shard in shards], geometry),
        bias=sharded(bias_rows(geometry, device), geometry, shards),
        slot_of=slot_of.to(torch.int32).contiguous(),
        token_map=torch.zeros(1, dtype=torch.int32, device=device),
    )


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


def logits(geometry: Geometry, case: Case, device: torch.device) -> torch.Tensor:
    """Base logits ``[B, n_out, V]``."""
    generator = _generator(device, case.seed, 2)
    shape = (case.batch, case.n_out, geometry.vocab)
    base = _CONTENTS[case.content](generator, shape, geometry, device)
    for row in case.poisoned:
        base[row] = _NAN
    if case.flaw != "none":
        _spoil(base[0, case.flaw_at], geometry.bounds[case.flaw_rank], case.flaw)
    return base


_NAN, _INF, _MASKED = 0xFFC0 - 0x10000, 0x7F80, 0xFF80 - 0x10000


def _spoil(row: torch.Tensor, bounds: tuple[int, int], flaw: str) -> None:
    if flaw == "empty":
        row[:] = _MASKED
    else:
        row[sum(bounds) // 2] = {"nan": _NAN, "inf": _INF}[flaw]


Made = Callable[
    [torch.Generator, tuple[int, ...], Geometry, torch.device],
    torch.Tensor,
]


def _filled(shape: tuple[int, ...], value: float, device: torch.device) -> torch.Tensor:
    return torch.full(shape, value, dtype=torch.bfloat16, device=device).view(torch.int16)


def _random(
    generator: torch.Generator, shape: tuple[int, ...], _: Geometry, device: torch.device
) -> torch.Tensor:
    return _normal(shape, 3.0, generator, device)


def _constant(
    _: torch.Generator, shape: tuple[int, ...], __: Geometry, device: torch.device
) -> torch.Tensor:
    return _filled(shape, 1.5, device)


def _plateau(shape: tuple[int, ...], around: int, device: torch.device) -> torch.Tensor:
    # more equal columns than there are places, on both sides of a border
    base = _filled(shape, -4.0, device)
    place = slice(max(0, around - WIDTH), around + WIDTH)
    base[..., place] = _filled(shape, 2.0, device)[..., place]
    return base


def _tile_ties(
    _: torch.Generator, shape: tuple[int, ...], geometry: Geometry, device: torch.device
) -> torch.Tensor:
    return _plateau(shape, min(geometry.tile, geometry.split - 1), device)


def _shard_ties(
    _: torch.Generator, shape: tuple[int, ...], geometry: Geometry, device: torch.device
) -> torch.Tensor:
    return _plateau(shape, geometry.split, device)


def _two_finite(
    _: torch.Generator, shape: tuple[int, ...], geometry: Geometry, device: torch.device
) -> torch.Tensor:
    base = _filled(shape, float("-inf"), device)
    base[..., 3] = 0x3F80  # 1.0
    base[..., geometry.vocab - 1] = 0x3F00  # 0.5
    return base


def _extremes(
    generator: torch.Generator, shape: tuple[int, ...], _: Geometry, device: torch.device
) -> torch.Tensor:
    # the largest and the smallest of both signs, both zeros, 1.0 and a masked column
    values = [0x7F7F, 0xFF7F, 0x0001, 0x8001, 0x0000, 0x8000, 0x3F80, 0xFF80]
    table = torch.tensor(values, dtype=torch.int32, device=device).to(torch.int16)
    chosen = torch.randint(len(values), shape, generator=generator, device=device)
    return table[chosen]


_CONTENTS: dict[str, Made] = {
    "random": _random,
    "constant": _constant,
    "tile-ties": _tile_ties,
    "shard-ties": _shard_ties,
    "two-finite": _two_finite,
    "extremes": _extremes,
}
