"""The target's layers over a window of tokens of several sequences, with a cache of fixed shape.

A token's bits must not depend on where it stands in a window, on its neighbours, nor on how its
sequence was cut into windows.  So:

- Every GEMM has the height of all windows together, whatever of them is used.
- A window's keys and values go into the cache first, each to the place of its position, and every
  query looks at all places of the context, those after its own position masked.  A key stands in
  the same column of the scores then, whichever window brought it.  What is masked has the weight 0
  and a finite value, so it changes no sum.
- The two products of attention are exact, and so is SiLU as far as it shows, see
  :mod:`pp4.engine.target.exact`.  Torch's own attention function is not used: how it splits
  queries is its own matter.
- The softmax works row by row and all rows have one length; its result is brought to a grid that
  is far wider than its last bits.

Source: Qwen3 (arXiv 2505.09388), as Hugging Face's ``modeling_qwen3`` computes it in BF16.  Left to
a library there and decided here: scores and weights are float64, and only what attention found is
rounded to BF16.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from pp4.drafter.backbone import Rotary, normalised
from pp4.engine.target.exact import WEIGHT_BITS, on_grid, silu
from pp4.engine.target.weights import TargetWeights


@dataclass(frozen=True, slots=True)
class Windows:
    """Tokens of R sequences, W each, on the target's device.

    Attributes:
        tokens: ``[R, W]`` int64; any token in padding.
        positions: ``[R, W]`` int64 below the context; 0 in padding.
        written: ``[R, W]`` int64 slots of the cache that keys and values go to; that of no
            sequence in padding.
    """

    tokens: Tensor
    positions: Tensor
    written: Tensor


class Decoder:
    """Decoder layers of a target.

    Args:
        weights: of the target.
        taps: layers whose outputs are features; -1 is the embedding's output.
        slots: sequences that the cache has room for.
        context: tokens of each.
    """

    def __init__(
        self, weights: TargetWeights, taps: tuple[int, ...], slots: int, context: int
    ) -> None:
        config, like = weights.config, weights.embedding
        self._weights, self._config, self._taps = weights, config, taps
        self._rotary = Rotary(config.head_dim, config.rope_theta, context, like)
        self._places = torch.arange(context, device=like.device)
        # One slot more takes what padding computes.  Zeros, since what is masked has to be finite.
        # They are kept as they are multiplied, so that no step has to widen them all again.
        shape = (config.layers, slots + 1, config.kv_heads, context, config.head_dim)
        self._keys = torch.zeros(shape, dtype=torch.float64, device=like.device)
        self._values = torch.zeros_like(self._keys)

    @property
    def dtype(self) -> torch.dtype:
        """Type of hidden states and features."""
        return self._weights.embedding.dtype

    def run(self, windows: Windows, slots: slice | Tensor) -> tuple[Tensor, Tensor]:
        """Run windows after what the cache has of their sequences, and put them into it.

        Nothing is read back to the host, and no shape depends on a value.

        Args:
            windows: one of each sequence.
            slots: of the sequences in the cache; those that an int64 tensor ``[R]`` names are
                copied.

        Returns:
            ``[R * W, hidden]`` after the last norm, and ``[R, W, taps * hidden]`` features.
        """
        weight, eps = self._weights.layer, self._config.norm_eps
        later = self._places > windows.positions[:, :, None]
        hidden = self._weights.embedding[windows.tokens.flatten()]
        outputs = {-1: hidden}
        for index in range(self._config.layers):
            taken = normalised(hidden, weight(index, "input_layernorm"), eps)
            hidden = hidden + self._attention(index, taken, windows, slots, later)
            taken = normalised(hidden, weight(index, "post_attention_layernorm"), eps)
            hidden = hidden + self._feed_forward(index, taken)
            outputs[index] = hidden
        features = torch.cat([outputs[tap] for tap in self._taps], dim=-1)
        last = normalised(hidden, self._weights.norm, eps)
        return last, features.view(*windows.tokens.shape, -1)

    def _heads(self, index: int, part: str, hidden: Tensor, windows: Windows) -> Tensor:
        """[R * W, hidden] -> [R, W, heads, head_dim]."""
        flat = functional.linear(hidden, self._weights.layer(index, f"self_attn.{part}_proj"))
        return flat.view(*windows.tokens.shape, -1, self._config.head_dim)

    def _turned(self, index: int, part: str, hidden: Tensor, windows: Windows) -> Tensor:
        """Queries or keys, normalised and turned by their positions."""
        heads = self._heads(index, part, hidden, windows)
        norm = self._weights.layer(index, f"self_attn.{part}_norm")
        return self._rotary.turned(
            normalised(heads, norm, self._config.norm_eps), windows.positions
        )

    def _attention(
        self,
        index: int,
        hidden: Tensor,
        windows: Windows,
        slots: slice | Tensor,
        later: Tensor,
    ) -> Tensor:
        queries = self._turned(index, "q", hidden, windows)
        at = windows.written, slice(None), windows.positions
        self._keys[index][at] = on_grid(self._turned(index, "k", hidden, windows))
        self._values[index][at] = on_grid(self._heads(index, "v", hidden, windows))
        keys, values = self._keys[index][slots], self._values[index][slots]
        found = self._attended(queries, keys, values, later)
        return functional.linear(found, self._weights.layer(index, "self_attn.o_proj"))

    def _attended(self, queries: Tensor, keys: Tensor, values: Tensor, later: Tensor) -> Tensor:
        """Attention over all places of the context.

        Query heads that share a key head are laid one below the other, so no key is copied.

        Args:
            queries: ``[R, W, heads, head_dim]``.
            keys: ``[R, kv heads, L, head_dim]``.
            values: likewise.
            later: ``[R, W, L]``: places that a query does not see.

        Returns:
            ``[R * W, heads * head_dim]``.
        """
        rows, window, heads, width = queries.shape
        shared = keys.shape[1]
        grouped = queries.view(rows, window, shared, -1, width).permute(0, 2, 3, 1, 4)
        scores: Tensor = on_grid(grouped).reshape(rows, shared, -1, width) @ keys.mT
        apart = (scores * width**-0.5).view(rows, shared, -1, window, scores.shape[-1])
        apart = apart.masked_fill(later[:, None, None], float("-inf"))
        found = on_grid(apart.softmax(-1), WEIGHT_BITS).view_as(scores) @ values
        beside = found.view(rows, shared, -1, window, width).permute(0, 3, 1, 2, 4)
        return beside.reshape(rows * window, heads * width).to(queries.dtype)

    def _feed_forward(self, index: int, hidden: Tensor) -> Tensor:
        gate, up, down = (
            self._weights.layer(index, f"mlp.{part}_proj") for part in ("gate", "up", "down")
        )
        opened = silu(functional.linear(hidden, gate))
        return functional.linear(opened * functional.linear(hidden, up), down)
