"""The steps of a backbone as functions of tensors; nothing is read back to the host.

N is B rows of ``block`` tokens each, a row's tokens together; all is BF16 but where it is said.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from pp4.kernels.backbone.sizes import SPLITS, Sizes
from pp4.kernels.backbone.specialised import (
    ADDED,
    ATTENDED,
    EMBEDDED,
    GATED,
    HEADS_AT_ONCE,
    MERGED,
    SPAN,
    TURNED,
)

Rotary = tuple[Tensor, Tensor]
"""``[positions, head_dim]`` cosines and sines, both halves of a row the same."""


class Places(NamedTuple):
    """Where the features of a batch lie.

    Attributes:
        slots: ``[B]`` int64.
        lengths: ``[B]`` int64, tokens before each anchor.
    """

    slots: Tensor
    lengths: Tensor


class Splits(NamedTuple):
    """What the splits of a batch leave for the merging; used again by every layer.

    Attributes:
        found: ``[N, heads, SPLITS, head_dim]`` float32 weighted values.
        largest: ``[N, heads, SPLITS]`` float32 largest scores.
        total: likewise, sums of weights.
    """

    found: Tensor
    largest: Tensor
    total: Tensor

    @classmethod
    def of(cls, sizes: Sizes, batch: int, device: torch.device) -> Splits:
        """Room for a batch; what no split writes, nobody reads."""
        shape = (batch * sizes.block, sizes.heads, SPLITS)
        found = torch.empty((*shape, sizes.head_dim), dtype=torch.float32, device=device)
        largest, total = (torch.empty(shape, dtype=torch.float32, device=device) for _ in range(2))
        return cls(found, largest, total)


def embedded(
    sizes: Sizes, anchors: Tensor, mask_token: int, embedding: Tensor, weight: Tensor
) -> tuple[Tensor, Tensor]:
    """Embeddings of a batch's queries, and their norms.

    Args:
        sizes: of the backbone.
        anchors: ``[B]`` int64 tokens.
        mask_token: what stands in the queries after an anchor.
        embedding: ``[vocab, hidden]``.
        weight: ``[hidden]`` of the norm.

    Returns:
        ``[N, hidden]`` each.
    """
    tokens = len(anchors) * sizes.block
    hidden = torch.empty((tokens, sizes.hidden), dtype=embedding.dtype, device=embedding.device)
    taken = torch.empty_like(hidden)
    tensors = {
        "anchors_ptr": anchors,
        "embedding_ptr": embedding,
        "weight_ptr": weight,
        "hidden_ptr": hidden,
        "taken_ptr": taken,
    }
    EMBEDDED.launch((tokens,), sizes, tensors, mask_token=mask_token)
    return hidden, taken


def added(sizes: Sizes, hidden: Tensor, more: Tensor, weight: Tensor) -> Tensor:
    """Add to the hidden states in place; -> their norms, ``[N, hidden]``.

    Args:
        sizes: of the backbone.
        hidden: ``[N, hidden]``, rewritten.
        more: ``[N, hidden]``.
        weight: ``[hidden]`` of the norm.
    """
    taken = torch.empty_like(hidden)
    tensors = {"hidden_ptr": hidden, "more_ptr": more, "weight_ptr": weight, "taken_ptr": taken}
    ADDED.launch((len(hidden),), sizes, tensors)
    return taken


def gated(sizes: Sizes, gate_up: Tensor) -> Tensor:
    """SiLU(gate) * up of ``[N, 2 * intermediate]``; -> ``[N, intermediate]``."""
    out = gate_up.new_empty((len(gate_up), sizes.intermediate))
    grid = (len(gate_up), -(-sizes.intermediate // SPAN))
    GATED.launch(grid, sizes, {"gate_up_ptr": gate_up, "out_ptr": out})
    return out


def turned(
    sizes: Sizes, qkv: Tensor, places: Places, norms: tuple[Tensor, Tensor], rotary: Rotary
) -> None:
    """Norm and turn queries and keys in place; values stay.

    Args:
        sizes: of the backbone.
        qkv: ``[N, qkv]``, the heads of the queries, of the keys, of the values.
        places: of the batch.
        norms: weights of the queries' and the keys' norms, ``[head_dim]`` each.
        rotary: cosines and sines.
    """
    tensors = {
        "qkv_ptr": qkv,
        "lengths_ptr": places.lengths,
        "query_norm_ptr": norms[0],
        "key_norm_ptr": norms[1],
        "cos_ptr": rotary[0],
        "sin_ptr": rotary[1],
    }
    grid = (len(qkv), -(-(sizes.heads + sizes.kv_heads) // HEADS_AT_ONCE))
    TURNED.launch(grid, sizes, tensors)


def attended(
    sizes: Sizes, qkv: Tensor, places: Places, cached: tuple[Tensor, Tensor], splits: Splits
) -> Tensor:
    """Attention of a batch's queries to their features and to each other.

    Args:
        sizes: of the backbone.
        qkv: ``[N, qkv]`` of :func:`turned`.
        places: of the batch; lengths are at most the context.
        cached: keys and values of a layer, ``[slots, kv heads, context, head_dim]`` each.  What
            lies beyond a length is not read.
        splits: room for this batch.

    Returns:
        ``[N, heads * head_dim]``.
    """
    batch = len(places.lengths)
    tensors = {
        "qkv_ptr": qkv,
        "keys_ptr": cached[0],
        "values_ptr": cached[1],
        "slots_ptr": places.slots,
        "lengths_ptr": places.lengths,
        "found_ptr": splits.found,
        "largest_ptr": splits.largest,
        "total_ptr": splits.total,
    }
    grid = (sizes.kv_heads, SPLITS, batch)
    ATTENDED.launch(grid, sizes, tensors, context=cached[0].shape[2])
    out = qkv.new_empty((len(qkv), sizes.heads * sizes.head_dim))
    MERGED.launch((sizes.block * sizes.heads, batch), sizes, {**tensors, "out_ptr": out})
    return out
