"""Lays a rank's part of the Markov head out for the kernel of the sampled path."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from pp4.drafter.config import DrafterConfig, split_of
from pp4.drafter.weights import Weights
from pp4.errors import BadInputError
from pp4.kernels import vectorised
from pp4.kernels.geometry import Geometry
from pp4.kernels.head import Head, laid_out


def geometry_of(config: DrafterConfig, *, tile: int = 2048, warps: int = 4) -> Geometry:
    """The shapes that the kernels are compiled for.

    Raises:
        BadInputError: the kernels do not take them; :mod:`pp4.drafter.support` says it in words.
    """
    return Geometry(
        vocab=config.draft_vocab,
        split=split_of(config.draft_vocab),
        tile=tile,
        rank_dim=config.markov_rank,
        mapped=config.mapped,
        warps=warps,
    )


def kernel_head(parts: Sequence[Weights], geometry: Geometry, cached: Sequence[int] = ()) -> Head:
    """Lay out the Markov head of the shards that are here, from the rows of these shards alone.

    The same as :meth:`pp4.kernels.head.Head.build` gives from whole weights.

    Args:
        parts: the rank's weights; for a solo run those of both ranks, in order.
        geometry: of :func:`geometry_of`.
        cached: tokens whose bias rows are computed beforehand.

    Raises:
        BadInputError: weights of another world or order, a geometry of another vocabulary, or a
            cached token that does not exist or is listed twice.
    """
    first = parts[0]
    require_parts(parts, geometry)
    _check_cached(cached, first.config)
    device, w1 = first.device, first.w1.view(torch.int16)
    own = torch.tensor(list(cached), dtype=torch.int64, device=device)
    slot_of = torch.full((len(w1),), -1, dtype=torch.int32, device=device)
    slot_of[own] = torch.arange(len(own), dtype=torch.int32, device=device)
    rows = w1.index_select(0, own)
    unused = torch.zeros(1, dtype=torch.int32, device=device)
    shards = [part.w2.view(torch.int16) for part in parts]
    return Head(
        geometry=geometry,
        shards=tuple(part.rank for part in parts),
        **laid_out(w1, shards, geometry),
        bias=torch.stack([_bias(rows, shard, geometry) for shard in shards]),
        slot_of=slot_of,
        token_map=unused if first.token_map is None else first.token_map,
    )


def require_parts(parts: Sequence[Weights], geometry: Geometry) -> None:
    """Refuse weights that are no rank's of two, nor both in order, or another vocabulary's.

    Raises:
        BadInputError: they are.
    """
    ranks = [(part.rank, part.world) for part in parts]
    if ranks not in ([(0, 2)], [(1, 2)], [(0, 2), (1, 2)]):
        raise BadInputError.of("parts", "a rank of a world of 2, or both in order", str(ranks))
    config = parts[0].config
    wanted = geometry_of(config, tile=geometry.tile, warps=geometry.warps)
    if geometry != wanted:
        raise BadInputError.of("geometry", str(wanted), str(geometry))


def _check_cached(cached: Sequence[int], config: DrafterConfig) -> None:
    if len(set(cached)) != len(cached) or not all(0 <= one < config.vocab for one in cached):
        raise BadInputError.of("cached", f"distinct tokens below {config.vocab}", str(list(cached)))


def _bias(rows: Tensor, w2: Tensor, geometry: Geometry) -> Tensor:
    """[slots, R] W1 rows -> [slots, stride] bias rows; one unused row where nothing is cached."""
    if not len(rows):
        return w2.new_zeros((1, geometry.stride))
    bias = vectorised.markov_bias(rows, w2)
    return functional.pad(bias, (0, geometry.stride - bias.shape[1]))
