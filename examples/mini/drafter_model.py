"""The drafter while it is trained: many blocks of a sequence in one forward pass.

It computes what :class:`pp4.drafter.model.Drafter` computes for a block at a time.  A mask keeps
each block to the features before its anchor and to its own queries.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from examples.mini.layers import Layer, Linear, Norm, looked_up, table
from pp4.drafter.backbone import Rotary
from pp4.drafter.config import DrafterConfig


class _MarkovHead(nn.Module):
    """What the token before makes likelier; nothing at first."""

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()
        self.markov_w1 = table(config.vocab, config.markov_rank, config.markov_rank**-0.5)
        self.markov_w2 = Linear(config.markov_rank, config.draft_vocab, 0.0)


class _ConfidenceHead(nn.Module):
    """The chance that a position is accepted."""

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()
        self.proj = nn.Linear(config.confidence_width, 1)
        nn.init.zeros_(self.proj.weight)
        nn.init.zeros_(self.proj.bias)


class DrafterModel(nn.Module):
    """The drafter, its weights in FP32; its state has the names of DeepSpec's layout.

    Args:
        config: of it, with a confidence head that sees the token before.
        context: tokens of the longest sequence.
        embedding: ``[vocab, hidden]`` of the target, which is its head as well; copied, and not
            trained.
        dtype: that it computes in.
    """

    def __init__(
        self, config: DrafterConfig, *, context: int, embedding: Tensor, dtype: torch.dtype
    ) -> None:
        super().__init__()
        self.config, self.dtype = config, dtype
        self.embed_tokens = table(config.vocab, config.hidden)
        self.fc = Linear(config.feature_width, config.hidden)
        self.hidden_norm = Norm(config.hidden, config.norm_eps)
        self.layers = nn.ModuleList(_layer(config) for _ in range(config.layers))
        self.norm = Norm(config.hidden, config.norm_eps)
        self.lm_head = Linear(config.hidden, config.draft_vocab)
        self.markov_head = _MarkovHead(config)
        self.confidence_head = _ConfidenceHead(config)
        for frozen in (self.embed_tokens, self.lm_head):
            frozen.weight.data.copy_(embedding)
            frozen.weight.requires_grad_(False)
        self.to(embedding.device)
        like = torch.empty(0, dtype=dtype, device=embedding.device)
        self._rotary = Rotary(config.head_dim, config.rope_theta, context + config.block, like)
        self._offsets = torch.arange(config.block, device=embedding.device)
        self._positions = torch.arange(context, device=embedding.device)

    def hidden(self, features: Tensor, anchors: Tensor, places: Tensor) -> Tensor:
        """Hidden states of blocks.

        Args:
            features: ``[B, T, feature width]`` of the target, in the type that is computed in.
            anchors: ``[B, A]`` int64 tokens that the blocks start with.
            places: ``[A]`` int64 positions of the anchors, the same in every sequence, at most T.

        Returns:
            ``[B, A, block, hidden]``: h_1..h_block, h_j for the token j places after the anchor.
        """
        batch, blocks = anchors.shape
        ids = torch.full_like(anchors[..., None], self.config.mask_token)
        ids = torch.cat([anchors[..., None], ids.expand(-1, -1, self.config.block - 1)], dim=-1)
        before = self._positions[: features.shape[1]]
        inside = (places[:, None] + self._offsets).flatten()
        seen = self._seen(places, features.shape[1])
        context = self.hidden_norm(self.fc(features))
        hidden = looked_up(self.embed_tokens, ids.view(batch, -1), self.dtype)
        for layer in self.layers:
            taken = layer.input_layernorm(hidden)
            query = layer.self_attn.queries(taken, inside, self._rotary)
            far = layer.self_attn.keys_values(context, before, self._rotary)
            near = layer.self_attn.keys_values(taken, inside, self._rotary)
            keys, values = (torch.cat(both, dim=2) for both in zip(far, near, strict=True))
            found = _attended(query, keys, values, seen)
            hidden = hidden + layer.self_attn.joined(found)
            hidden = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
        return self.norm(hidden).view(batch, blocks, self.config.block, -1)

    def _seen(self, places: Tensor, length: int) -> Tensor:
        """Which keys each query sees; -> ``[A * block, T + A * block]`` truth values."""
        block = torch.arange(len(places), device=places.device)
        block = block.repeat_interleave(self.config.block)
        before = self._positions[:length] < places[block][:, None]
        return torch.cat([before, block[:, None] == block], dim=1)

    def base(self, hidden: Tensor) -> Tensor:
        """``[..., hidden]`` -> base logits ``[..., vocab]``."""
        return self.lm_head(hidden)

    def conditioned(self, base: Tensor, previous: Tensor) -> Tensor:
        """Base logits ``[..., vocab]`` and tokens before ``[...]`` -> conditioned logits."""
        rows = looked_up(self.markov_head.markov_w1, previous, base.dtype)
        return base + self.markov_head.markov_w2(rows)

    def scores(self, hidden: Tensor, previous: Tensor) -> Tensor:
        """Confidences before the logistic function.

        Args:
            hidden: ``[..., hidden]``.
            previous: ``[...]`` int64 tokens before.

        Returns:
            ``[...]`` float32, of weights that are rounded to the type that is computed in.
        """
        rows = looked_up(self.markov_head.markov_w1, previous, self.dtype)
        inputs = torch.cat([hidden, rows], dim=-1).float()
        weight, bias = self.confidence_head.proj.weight, self.confidence_head.proj.bias
        scores = (inputs * weight[0].to(self.dtype).float()).sum(-1)
        return scores + bias.to(self.dtype).float()


def _layer(config: DrafterConfig) -> Layer:
    return Layer(
        hidden=config.hidden,
        heads=config.heads,
        kv_heads=config.kv_heads,
        head_dim=config.head_dim,
        intermediate=config.intermediate,
        eps=config.norm_eps,
        layers=config.layers,
    )


def _attended(query: Tensor, keys: Tensor, values: Tensor, seen: Tensor) -> Tensor:
    """Masked attention; query heads of one key head are rows below each other, no key is copied."""
    group = query.shape[2]
    found = functional.scaled_dot_product_attention(
        query.flatten(2, 3), keys, values, attn_mask=seen.repeat(group, 1)
    )
    return found.unflatten(2, (group, -1))
