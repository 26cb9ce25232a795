"""The target: a Qwen3 causal language model whose head is its embedding."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from examples.mini.layers import Layer, Norm, looked_up, table
from examples.mini.sizes import TargetSizes
from pp4.drafter.backbone import Rotary


class _Body(nn.Module):
    """What checkpoints name ``model``."""

    def __init__(self, sizes: TargetSizes) -> None:
        super().__init__()
        self.embed_tokens = table(sizes.vocab, sizes.hidden)
        self.layers = nn.ModuleList(
            Layer(
                hidden=sizes.hidden,
                heads=sizes.heads,
                kv_heads=sizes.kv_heads,
                head_dim=sizes.head_dim,
                intermediate=sizes.intermediate,
                eps=sizes.norm_eps,
                layers=sizes.layers,
            )
            for _ in range(sizes.layers)
        )
        self.norm = Norm(sizes.hidden, sizes.norm_eps)


class TargetModel(nn.Module):
    """The model, its weights in FP32; its state has the names of a checkpoint.

    Args:
        sizes: of it.
        context: tokens of the longest sequence.
        taps: layers whose outputs are the features, rising.
        dropout: of what a sublayer adds, while it is trained.
        dtype: that it computes in.
        device: where it lies.
    """

    def __init__(
        self,
        sizes: TargetSizes,
        *,
        context: int,
        taps: tuple[int, ...],
        dropout: float,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        super().__init__()
        self.sizes, self.dtype, self.context = sizes, dtype, context
        self.model = _Body(sizes).to(device)
        self._taps, self._dropout = taps, dropout
        like = torch.empty(0, dtype=dtype, device=device)
        self.rotary = Rotary(sizes.head_dim, sizes.rope_theta, context, like)
        self._positions = torch.arange(context, device=device)

    @property
    def device(self) -> torch.device:
        """Where the weights lie."""
        return self.model.embed_tokens.weight.device

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Run whole sequences.

        Args:
            tokens: ``[B, T]`` int64.

        Returns:
            Normalised states ``[B, T, hidden]`` that the head takes, and the features
            ``[B, T, taps * hidden]``: outputs of the tapped layers side by side.
        """
        positions = self._positions[: tokens.shape[1]]
        hidden = looked_up(self.model.embed_tokens, tokens, self.dtype)
        outputs = []
        for layer in self.model.layers:
            taken = layer.input_layernorm(hidden)
            query = layer.self_attn.queries(taken, positions, self.rotary).flatten(1, 2)
            keys, values = layer.self_attn.keys_values(taken, positions, self.rotary)
            found = functional.scaled_dot_product_attention(
                query, keys, values, is_causal=True, enable_gqa=True
            )
            found = found.unflatten(1, (self.sizes.kv_heads, -1))
            hidden = self._added(layer, hidden, layer.self_attn.joined(found))
            outputs.append(hidden)
        features = torch.cat([outputs[tap] for tap in self._taps], dim=-1)
        return self.model.norm(hidden), features

    def _added(self, layer: Layer, hidden: Tensor, found: Tensor) -> Tensor:
        """Add what the attention found, then what the feed-forward network makes of it."""
        hidden = hidden + functional.dropout(found, self._dropout, self.training)
        made = layer.mlp(layer.post_attention_layernorm(hidden))
        return hidden + functional.dropout(made, self._dropout, self.training)

    def logits(self, hidden: Tensor) -> Tensor:
        """``[..., hidden]`` of :meth:`forward` -> ``[..., vocab]`` float32, as pp4's target has."""
        head = self.model.embed_tokens.weight.to(hidden.dtype)
        return functional.linear(hidden.float(), head.float())

    def stepped(self, tokens: Tensor, position: int, keys: Tensor, values: Tensor) -> Tensor:
        """Run one token of each sequence over what is kept of those before, and keep it.

        Args:
            tokens: ``[B]`` int64.
            position: of all of them.
            keys: ``[layers, B, kv heads, context, head_dim]``, filled below the position.
            values: likewise.

        Returns:
            ``[B, vocab]`` float32 logits of the tokens that follow.
        """
        positions = self._positions[position : position + 1]
        hidden = looked_up(self.model.embed_tokens, tokens[:, None], self.dtype)
        for index, layer in enumerate(self.model.layers):
            taken = layer.input_layernorm(hidden)
            query = layer.self_attn.queries(taken, positions, self.rotary)
            key, value = layer.self_attn.keys_values(taken, positions, self.rotary)
            keys[index, :, :, position] = key[:, :, 0]
            values[index, :, :, position] = value[:, :, 0]
            found = functional.scaled_dot_product_attention(
                query[:, :, :, 0],
                keys[index, :, :, : position + 1],
                values[index, :, :, : position + 1],
            )
            hidden = self._added(layer, hidden, layer.self_attn.joined(found[:, :, :, None]))
        return self.logits(self.model.norm(hidden[:, 0]))


def text_loss(model: TargetModel, tokens: Tensor) -> Tensor:
    """Mean cross entropy of each token after those before it, in nats.

    Args:
        model: the target.
        tokens: ``[B, T + 1]`` int64.
    """
    hidden, _ = model(tokens[:, :-1])
    logits = model.logits(hidden)
    return functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
