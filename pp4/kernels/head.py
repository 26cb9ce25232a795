"""The Markov head of the shards that a rank holds, laid out for the kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch

from pp4.errors import BadInputError
from pp4.kernels import reference
from pp4.kernels.geometry import Geometry
from pp4.kernels.reference import Row


def patterns(values: Row, device: str | torch.device = "cpu") -> torch.Tensor:
    """float32 that holds BF16 -> int16 bit patterns of the same shape.

    Raises:
        BadInputError: another dtype, or a value that BF16 does not hold.
    """
    bits = reference.require_bf16("values", values).view(np.uint32) >> 16
    return torch.from_numpy(bits.astype(np.uint16).view(np.int16)).to(device)


def values_of(bits: torch.Tensor) -> Row:
    """int16 bit patterns on any device -> float32 that holds the same BF16, payloads kept."""
    wide = bits.cpu().numpy().view(np.uint16).astype(np.uint32) << 16
    return wide.view(np.float32)


def sharded(bits: torch.Tensor, geometry: Geometry, shards: Sequence[int]) -> torch.Tensor:
    """Split the last axis at the shard bounds and pad.  [..., V] -> [shards, ..., stride]."""
    out = bits.new_zeros((len(shards), *bits.shape[:-1], geometry.stride))
    for place, shard in enumerate(shards):
        first, last = geometry.bounds[shard]
        out[place, ..., : last - first] = bits[..., first:last]
    return out


def paired(rows: torch.Tensor) -> torch.Tensor:
    """Words of the places that the tree adds first, r below and r + R/2 above.

    Args:
        rows: ``[N, R]`` int16 BF16 patterns, R a power of two.

    Returns:
        ``[N, max(1, R/2)]`` int32.  A lone place has zeros above it.
    """
    half = max(1, rows.shape[1] // 2)
    above = rows[:, half:] if rows.shape[1] > 1 else torch.zeros_like(rows)
    return (rows[:, :half].int() & 0xFFFF) | (above.int() << 16)


def unpaired(words: torch.Tensor, rank_dim: int) -> torch.Tensor:
    """Inverse of :func:`paired`.  ``[..., max(1, R/2)]`` int32 -> ``[..., R]`` int16."""
    both = torch.cat([words.to(torch.int16), (words >> 16).to(torch.int16)], dim=-1)
    return both[..., :rank_dim]


def panels(rows: torch.Tensor, geometry: Geometry) -> torch.Tensor:
    """W2 of one shard as the kernel multiplies it.

    Args:
        rows: ``[columns, R]`` int16 BF16 patterns.
        geometry: shapes and bounds.

    Returns:
        ``[panels of all tiles, max(1, R/2), columns of a panel]`` int32 words of :func:`paired`.
    """
    words = paired(rows)
    if geometry.rank_dim == 1:
        # -0 changes no sum, and above W1's lone places are zeros
        words |= -0x80000000
    width, count = geometry.panel_width, geometry.tiles * geometry.panels
    out = words.new_zeros((count * width, geometry.pairs))
    out[: len(words)] = words
    return out.view(count, width, geometry.pairs).transpose(1, 2).contiguous()


def laid_out(
    w1: torch.Tensor, shards: Sequence[torch.Tensor], geometry: Geometry
) -> dict[str, torch.Tensor]:
    """The weights of a :class:`Head` by their names there.

    Args:
        w1: ``[target vocab, R]`` int16 BF16 patterns.
        shards: W2 of each shard that is here, ``[columns, R]`` int16 BF16 patterns.
        geometry: shapes and bounds.
    """
    return {"w1": paired(w1), "w2": torch.stack([panels(one, geometry) for one in shards])}


@dataclass(frozen=True, slots=True)
class Head:
    """Markov weights and cache on one device.

    Attributes:
        geometry: shapes and bounds.
        shards: which shards are here, in order.
        w1: ``[target vocab, max(1, R/2)]`` int32 words of :func:`paired`.
        w2: ``[shards, panels, max(1, R/2), columns of a panel]`` int32, of :func:`panels`.
        bias: ``[shards, slots, stride]`` int16 BF16 patterns of the cached rows.
        slot_of: ``[target vocab]`` int32, slot of a token's cached row or -1.
        token_map: ``[vocab]`` int32 ids that are emitted, strictly rising; ``[1]`` where unused.

    Raises:
        BadInputError: weights that are not laid out for this geometry.
    """

    geometry: Geometry
    shards: tuple[int, ...]
    w1: torch.Tensor
    w2: torch.Tensor
    bias: torch.Tensor
    slot_of: torch.Tensor
    token_map: torch.Tensor

    def __post_init__(self) -> None:
        words, geometry = self.geometry.pairs, self.geometry
        count = geometry.tiles * geometry.panels
        for name, shape in (
            ("w1", (len(self.slot_of), words)),
            ("w2", (len(self.shards), count, words, geometry.panel_width)),
        ):
            tensor: torch.Tensor = getattr(self, name)
            if (tensor.dtype, tuple(tensor.shape)) != (torch.int32, shape):
                raise BadInputError.of(
                    name, f"int32 words {list(shape)}", f"{tensor.dtype} {list(tensor.shape)}"
                )

    @classmethod
    def build(
        cls,
        geometry: Geometry,
        w1: Row,
        w2: Row,
        *,
        cached: Sequence[int] = (),
        shards: Sequence[int] = (0, 1),
        token_map: Sequence[int] | None = None,
        device: str | torch.device = "cpu",
    ) -> Head:
        """Lay out whole weights for some shards.

        Args:
            geometry: shapes and bounds.
            w1: ``[target vocab, rank_dim]`` float32 that holds BF16.
            w2: ``[vocab, rank_dim]`` float32 that holds BF16.
            cached: tokens whose bias rows are precomputed by the same tree.
            shards: which shards to lay out.
            token_map: emitted id per draft id, for a reduced vocabulary.
            device: where to put them.

        Raises:
            BadInputError: a shape or value does not fit, a cached token does not exist or is listed
                twice, or the map is not strictly rising.
        """
        expected = (geometry.vocab, geometry.rank_dim)
        if w2.shape != expected or w1.ndim != 2 or w1.shape[1] != geometry.rank_dim:
            raise BadInputError.of(
                "markov weights", f"[*, {expected[1]}] and {expected}", f"{w1.shape}, {w2.shape}"
            )
        emitted = _checked_map(token_map, geometry, len(w1))
        _check_cached(cached, len(w1))
        slot_of = np.full(len(w1), -1, np.int32)
        slot_of[list(cached)] = np.arange(len(cached), dtype=np.int32)
        # one unused slot keeps the array nonempty where nothing is cached
        unused = [np.zeros(len(w2), np.float32)]
        rows = [reference.markov_bias(w1[token], w2) for token in cached] or unused
        first, second = patterns(w1, device), patterns(w2, device)
        bounds = [geometry.bounds[shard] for shard in shards]
        return cls(
            geometry=geometry,
            shards=tuple(shards),
            **laid_out(first, [second[low:high] for low, high in bounds], geometry),
            bias=sharded(patterns(np.stack(rows), device), geometry, shards),
            slot_of=torch.from_numpy(slot_of).to(device),
            token_map=torch.tensor(emitted, dtype=torch.int32, device=device),
        )

    @property
    def target_vocab(self) -> int:
        """Tokens that can come before: rows of ``w1``."""
        return self.w1.shape[0]

    def columns(self, place: int) -> torch.Tensor:
        """W2 of one of the shards that are here, row by row.  -> ``[columns, R]`` int16."""
        first, last = self.geometry.bounds[self.shards[place]]
        words = self.w2[place].transpose(1, 2).flatten(0, 1)
        return unpaired(words, self.geometry.rank_dim)[: last - first]

    @property
    def slots(self) -> int:
        """Rows of the Markov cache."""
        return self.bias.shape[1]


def _check_cached(cached: Sequence[int], target_vocab: int) -> None:
    wrong = [token for token in cached if not 0 <= token < target_vocab]
    if wrong or len(set(cached)) != len(cached):
        raise BadInputError.of(
            "cached",
            f"distinct tokens below {target_vocab}",
            f"{wrong[0]}" if wrong else "a token twice",
        )


def _checked_map(
    token_map: Sequence[int] | None, geometry: Geometry, target_vocab: int
) -> Sequence[int]:
    if token_map is None:
        if geometry.mapped:
            raise BadInputError.of("token_map", "a map for a mapped geometry", "none")
        if target_vocab < geometry.vocab:
            raise BadInputError.of(
                "w1", f"a row for each of {geometry.vocab} tokens", f"{target_vocab} rows"
            )
        return (0,)
    rising = all(a < b for a, b in pairwise(token_map))
    fits = len(token_map) == geometry.vocab and 0 <= token_map[0] <= token_map[-1] < target_vocab
    if not (geometry.mapped and rising and fits):
        raise BadInputError.of(
            "token_map",
            f"{geometry.vocab} strictly rising ids below {target_vocab}, in a mapped geometry",
            f"{len(token_map)} ids, rising: {rising}, mapped: {geometry.mapped}",
        )
    return token_map
