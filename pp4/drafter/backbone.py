"""The parallel stage: a few decoder layers of the Qwen3 family, run once for a whole block.

The queries of a block are the anchor token and mask tokens.  They stand at the anchor's position
and after it, attend to each other in both directions and to the target's features of every token
before the anchor.  Features enter a layer as keys and values alone: projected to the hidden size
once, normalised, then by the layer's own key and value weights, and turned by their positions.

Sources: DSpark (arXiv 2607.05147) and its reference, deepseek-ai/DeepSpec,
``deepspec/modeling/dspark``.  Where the reference leaves a choice to a library it was decided so:
the mean square, its root, and angles are taken in FP32; cosine and sine are rounded to the weights'
type before they multiply; scores and their softmax are the attention function's of torch.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from pp4.drafter.weights import Weights
from pp4.errors import BadInputError

PROJECTED_ROWS: Final = 64
"""Tokens whose features are projected by one GEMM, padded up to that many.  A GEMM of another
height may round otherwise, so with a fixed one the bits do not depend on how features arrived."""


def normalised(values: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm over the last axis; see Qwen3.

    Args:
        values: ``[..., width]``.
        weight: ``[width]`` of the same type.
        eps: added to the mean square.
    """
    wide = values.to(torch.promote_types(values.dtype, torch.float32))
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return weight * (wide * scale).to(values.dtype)


class Rotary:
    """Cosine and sine of every position and frequency.

    Args:
        head_dim: width of a head.
        theta: base of the frequencies.
        positions: positions from 0 that there are.
        like: a tensor of the type and on the device of what is turned.
    """

    def __init__(self, head_dim: int, theta: float, positions: int, like: Tensor) -> None:
        exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
        frequencies = 1.0 / theta**exponents
        angles = torch.arange(positions, dtype=torch.float32)[:, None] * frequencies
        both = torch.cat([angles, angles], dim=-1)
        self._cos, self._sin = both.cos().to(like), both.sin().to(like)

    @property
    def tables(self) -> tuple[Tensor, Tensor]:
        """``[positions, head_dim]`` cosines and sines; both halves of a row are the same."""
        return self._cos, self._sin

    def turned(self, values: Tensor, positions: Tensor) -> Tensor:
        """Turn heads by their positions.

        Args:
            values: ``[..., tokens, heads, head_dim]``.
            positions: ``[..., tokens]`` int64.
        """
        cos, sin = self._cos[positions][..., None, :], self._sin[positions][..., None, :]
        half = values.shape[-1] // 2
        swapped = torch.cat([-values[..., half:], values[..., :half]], dim=-1)
        return values * cos + swapped * sin


def attended(queries: Tensor, keys: Tensor, values: Tensor, seen: Tensor) -> Tensor:
    """Attention of a block's queries; all queries of a row see the same keys.

    Query heads that share a key head are laid one below the other, so no key is copied.

    Args:
        queries: ``[B, k, heads, head_dim]``.
        keys: ``[B, kv heads, L, head_dim]``.
        values: likewise.
        seen: ``[B, L]`` truth values, at least one of a row.

    Returns:
        ``[B, k, heads * head_dim]``.
    """
    batch, block, heads, width = queries.shape
    shared = keys.shape[1]
    grouped = queries.reshape(batch, block, shared, -1, width).permute(0, 2, 3, 1, 4)
    found = functional.scaled_dot_product_attention(
        grouped.reshape(batch, shared, -1, width), keys, values, attn_mask=seen[:, None, None, :]
    )
    apart = found.reshape(batch, shared, -1, block, width).permute(0, 3, 1, 2, 4)
    return apart.reshape(batch, block, heads * width)


class Backbone:
    """The decoder layers of a drafter, the same on every rank.

    Args:
        weights: of this rank.
        context: tokens that may stand before an anchor.

    Raises:
        BadInputError: the last query of a block would stand where the backbone has no positions.
    """

    def __init__(self, weights: Weights, context: int) -> None:
        config = weights.config
        most = config.max_positions - config.block
        if not 1 <= context <= most:
            raise BadInputError.of("context", f"1 to {most} tokens", str(context))
        self.config, self.context, self._weights = config, context, weights
        positions = context + config.block
        self._rotary = Rotary(config.head_dim, config.rope_theta, positions, weights.embedding)
        self._offsets = torch.arange(config.block, device=weights.device)
        self._places = torch.arange(positions, device=weights.device)

    @property
    def weights(self) -> Weights:
        """The tensors that it runs on."""
        return self._weights

    def project(self, features: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of features in every layer.

        A token's bits depend on its features and its position alone, not on whose tokens are
        projected with it, nor on their order.

        Args:
            features: ``[T, feature width]`` of the weights' type, on their device; of one request
                or of several.
            positions: ``[T]`` int64, where each token stands, below the context; on that device.

        Returns:
            ``[layers, kv heads, T, head_dim]`` each.
        """
        both = (torch.split(one, PROJECTED_ROWS) for one in (features, positions))
        parts = [self._projected(some, places) for some, places in zip(*both, strict=True)]
        keys, values = zip(*parts, strict=True)
        return torch.cat(keys, dim=2), torch.cat(values, dim=2)

    def _projected(self, features: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """At most PROJECTED_ROWS tokens, by GEMMs of exactly so many."""
        count, eps = len(features), self.config.norm_eps
        padded = functional.pad(features, (0, 0, 0, PROJECTED_ROWS - count))
        tensors = self._weights.tensors
        hidden = functional.linear(padded, tensors["fc.weight"])
        hidden = normalised(hidden, tensors["hidden_norm.weight"], eps)
        keys, values = [], []
        for index in range(self.config.layers):
            key, value = self._key_value(index, hidden)
            keys.append(self._rotary.turned(key[:count], positions).transpose(0, 1))
            values.append(value[:count].transpose(0, 1))
        return torch.stack(keys), torch.stack(values)

    def _key_value(self, index: int, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """[..., hidden] -> [..., kv heads, head_dim] each; keys normalised, not turned yet."""
        shape = (*hidden.shape[:-1], self.config.kv_heads, self.config.head_dim)
        key, value = (
            functional.linear(hidden, self._weights.layer(index, f"self_attn.{part}_proj"))
            for part in ("k", "v")
        )
        norm = self._weights.layer(index, "self_attn.k_norm")
        return normalised(key.view(shape), norm, self.config.norm_eps), value.view(shape)

    def run(
        self, anchors: Tensor, places: tuple[Tensor, Tensor], keys: Tensor, values: Tensor
    ) -> Tensor:
        """Run the blocks of a batch; nothing is read back to the host.

        A row's bits depend on the row and on the shapes alone: every row looks at all of the
        context's places, and those beyond its length are masked.

        Args:
            anchors: ``[B]`` int64 tokens that the blocks start with.
            places: ``[B]`` int64 slots, and ``[B]`` int64 lengths: tokens before each anchor,
                which is the anchor's position.
            keys: ``[layers, slots, kv heads, context, head_dim]``, finite also beyond the lengths.
            values: likewise.

        Returns:
            ``[B, k, hidden]``: the hidden states h_1..h_k that the heads take.
        """
        config, eps = self.config, self.config.norm_eps
        slots, lengths = places
        keys, values = (kept.index_select(1, slots) for kept in (keys, values))
        ids = torch.full_like(anchors[:, None], config.mask_token).repeat(1, config.block)
        ids[:, 0] = anchors
        positions = lengths[:, None] + self._offsets
        # Keys of the features come first, those of the block behind all places of the context.
        seen = (self._places < lengths[:, None]) | (self._places >= self.context)
        hidden = self._weights.embedding[ids]
        for index in range(config.layers):
            weight = self._weights.layer
            taken = normalised(hidden, weight(index, "input_layernorm"), eps)
            hidden = hidden + self._attention(
                index, taken, positions, (keys[index], values[index]), seen
            )
            taken = normalised(hidden, weight(index, "post_attention_layernorm"), eps)
            hidden = hidden + self._feed_forward(index, taken)
        return normalised(hidden, self._weights.tensors["norm.weight"], eps)

    def _attention(
        self,
        index: int,
        hidden: Tensor,
        positions: Tensor,
        before: tuple[Tensor, Tensor],
        seen: Tensor,
    ) -> Tensor:
        config, weight = self.config, self._weights.layer
        query = functional.linear(hidden, weight(index, "self_attn.q_proj"))
        query = query.view(*hidden.shape[:-1], config.heads, config.head_dim)
        query = normalised(query, weight(index, "self_attn.q_norm"), config.norm_eps)
        key, value = self._key_value(index, hidden)
        query, key = (self._rotary.turned(one, positions) for one in (query, key))
        keys = torch.cat([before[0], key.transpose(1, 2)], dim=2)
        values = torch.cat([before[1], value.transpose(1, 2)], dim=2)
        found = attended(query, keys, values, seen)
        return functional.linear(found, weight(index, "self_attn.o_proj"))

    def _feed_forward(self, index: int, hidden: Tensor) -> Tensor:
        gate, up, down = (
            self._weights.layer(index, f"mlp.{part}_proj") for part in ("gate", "up", "down")
        )
        opened = functional.silu(functional.linear(hidden, gate))
        return functional.linear(opened * functional.linear(hidden, up), down)
