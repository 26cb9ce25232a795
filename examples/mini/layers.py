"""Decoder layers of the Qwen3 family that can be trained, for the target and for the drafter.

Weights are kept in FP32 and rounded to the type of what they meet in every forward pass, so with
BF16 inputs training sees the very numbers that are written in the end.  Norms and turns are those
of :mod:`pp4.drafter.backbone`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from pp4.drafter.backbone import Rotary, normalised


class Norm(nn.Module):
    """RMSNorm over the last axis, see :func:`pp4.drafter.backbone.normalised`.

    Args:
        width: elements of that axis.
        eps: added to the mean square.
    """

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self._eps = eps

    def forward(self, values: Tensor) -> Tensor:
        """``[..., width]`` -> the same shape and type."""
        return normalised(values, self.weight.to(values.dtype), self._eps)


class Linear(nn.Linear):
    """A product with a matrix, without a bias.

    Args:
        inputs: columns.
        outputs: rows.
        spread: standard deviation of the first values.
    """

    def __init__(self, inputs: int, outputs: int, spread: float = 0.02) -> None:
        super().__init__(inputs, outputs, bias=False)
        nn.init.normal_(self.weight, std=spread)

    def forward(self, values: Tensor) -> Tensor:
        """``[..., inputs]`` -> ``[..., outputs]`` of the same type."""
        return functional.linear(values, self.weight.to(values.dtype))


class Attention(nn.Module):
    """Projections, norms and turns of an attention; what sees what is for the caller to say.

    Args:
        hidden: width of the hidden states.
        heads: query heads.
        kv_heads: key and value heads.
        head_dim: width of a head.
        eps: of the norms.
        spread: of the output's first weights.
    """

    def __init__(
        self, hidden: int, heads: int, kv_heads: int, head_dim: int, eps: float, spread: float
    ) -> None:
        super().__init__()
        self.q_proj = Linear(hidden, heads * head_dim)
        self.k_proj = Linear(hidden, kv_heads * head_dim)
        self.v_proj = Linear(hidden, kv_heads * head_dim)
        self.o_proj = Linear(heads * head_dim, hidden, spread)
        self.q_norm = Norm(head_dim, eps)
        self.k_norm = Norm(head_dim, eps)
        self._kv_heads, self._head_dim = kv_heads, head_dim

    def queries(self, hidden: Tensor, positions: Tensor, rotary: Rotary) -> Tensor:
        """Queries, those that share a key head one below the other.

        Args:
            hidden: ``[B, Q, hidden]``.
            positions: ``[Q]`` int64.
            rotary: turns them.

        Returns:
            ``[B, kv heads, heads / kv heads, Q, head_dim]``.
        """
        query = self.q_proj(hidden).unflatten(-1, (-1, self._head_dim))
        query = rotary.turned(self.q_norm(query), positions)
        return query.unflatten(2, (self._kv_heads, -1)).permute(0, 2, 3, 1, 4)

    def keys_values(
        self, hidden: Tensor, positions: Tensor, rotary: Rotary
    ) -> tuple[Tensor, Tensor]:
        """``[B, K, hidden]`` and ``[K]`` -> ``[B, kv heads, K, head_dim]`` each, keys turned."""
        key = self.k_proj(hidden).unflatten(-1, (-1, self._head_dim))
        key = rotary.turned(self.k_norm(key), positions)
        value = self.v_proj(hidden).unflatten(-1, (-1, self._head_dim))
        return key.transpose(1, 2), value.transpose(1, 2)

    def joined(self, found: Tensor) -> Tensor:
        """``[B, kv heads, heads / kv heads, Q, head_dim]`` -> ``[B, Q, hidden]``."""
        apart = found.permute(0, 3, 1, 2, 4)
        return self.o_proj(apart.flatten(2))


class FeedForward(nn.Module):
    """The gated network of a layer.

    Args:
        hidden: width of the hidden states.
        intermediate: width inside.
        spread: of the output's first weights.
    """

    def __init__(self, hidden: int, intermediate: int, spread: float) -> None:
        super().__init__()
        self.gate_proj = Linear(hidden, intermediate)
        self.up_proj = Linear(hidden, intermediate)
        self.down_proj = Linear(intermediate, hidden, spread)

    def forward(self, values: Tensor) -> Tensor:
        """``[..., hidden]`` -> the same shape."""
        return self.down_proj(functional.silu(self.gate_proj(values)) * self.up_proj(values))


class Layer(nn.Module):
    """A decoder layer, its parts by the names that checkpoints have.

    Args:
        hidden: width of the hidden states.
        heads: query heads.
        kv_heads: key and value heads.
        head_dim: width of a head.
        intermediate: width inside the feed-forward network.
        eps: of the norms.
        layers: of the whole model; the more, the smaller what a layer adds at first.
    """

    def __init__(
        self,
        *,
        hidden: int,
        heads: int,
        kv_heads: int,
        head_dim: int,
        intermediate: int,
        eps: float,
        layers: int,
    ) -> None:
        super().__init__()
        spread = 0.02 / (2 * layers) ** 0.5
        self.input_layernorm = Norm(hidden, eps)
        self.self_attn = Attention(hidden, heads, kv_heads, head_dim, eps, spread)
        self.post_attention_layernorm = Norm(hidden, eps)
        self.mlp = FeedForward(hidden, intermediate, spread)


def looked_up(embedding: nn.Embedding, tokens: Tensor, dtype: torch.dtype) -> Tensor:
    """Rows of an embedding, rounded after the look-up so that gradients add up in FP32."""
    return functional.embedding(tokens, embedding.weight).to(dtype)


def table(rows: int, width: int, spread: float = 0.02) -> nn.Embedding:
    """An embedding with first values of this standard deviation."""
    embedding = nn.Embedding(rows, width)
    nn.init.normal_(embedding.weight, std=spread)
    return embedding
