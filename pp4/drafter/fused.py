"""The parallel stage on a GPU: about ten launches a layer, over the feature cache where it lies.

It is the arithmetic of :mod:`pp4.drafter.backbone`, rounded at the same places; only sums of FP32
are in another order, and the weights of an attention are rounded to BF16 as tensor cores take them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from pp4.drafter.backbone import Backbone
from pp4.drafter.checkpoint.tensors import layer_name
from pp4.drafter.config import DrafterConfig
from pp4.drafter.weights import Weights
from pp4.kernels.backbone import specialised
from pp4.kernels.backbone.launches import (
    Places,
    Splits,
    added,
    attended,
    embedded,
    gated,
    turned,
)
from pp4.kernels.backbone.sizes import Sizes

_QKV: Final = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
_GATE_UP: Final = ("mlp.gate_proj", "mlp.up_proj")


def sizes_of(config: DrafterConfig) -> Sizes:
    """What the kernels are compiled for."""
    return Sizes(
        hidden=config.hidden,
        heads=config.heads,
        kv_heads=config.kv_heads,
        head_dim=config.head_dim,
        intermediate=config.intermediate,
        block=config.block,
        eps=config.norm_eps,
    )


def prime(config: DrafterConfig, device: torch.device) -> None:
    """Compile and load whatever :func:`backbone_of` would launch on a GPU, launching nothing.

    Raises:
        BadInputError: ``device`` is no numbered GPU, or kernels are interpreted in this process.
        RefusedError: ``UNPRIMED``, a kernel does not compile or does not load.
    """
    sizes = sizes_of(config)
    if not sizes.unsupported:
        specialised.prime(sizes, device)


def backbone_of(weights: Weights, context: int) -> Backbone:
    """The backbone for where weights lie: kernels on a GPU, if they take its sizes, else torch.

    Raises:
        BadInputError: the context does not fit the backbone.
    """
    fused = weights.device.type == "cuda" and weights.embedding.dtype == torch.bfloat16
    if fused and not sizes_of(weights.config).unsupported:
        return FusedBackbone(weights, context)
    return Backbone(weights, context)


def joined(weights: Weights) -> tuple[Weights, tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Lay those weights that one product takes behind each other.

    Returns:
        The same weights, the joined ones as parts of the wholes, so that nothing is held twice once
        what was given is gone; and of each layer the rows of queries, keys and values, and those of
        gate and up.
    """
    tensors = dict(weights.tensors)

    def whole(index: int, parts: tuple[str, ...]) -> Tensor:
        names = [layer_name(index, part) for part in parts]
        together = torch.cat([tensors[name] for name in names])
        rows = [len(tensors[name]) for name in names]
        tensors.update(zip(names, torch.split(together, rows), strict=True))
        return together

    layers = range(weights.config.layers)
    qkv, gate_up = ([whole(index, parts) for index in layers] for parts in (_QKV, _GATE_UP))
    return replace(weights, tensors=tensors), tuple(qkv), tuple(gate_up)


class FusedBackbone(Backbone):
    """See :class:`pp4.drafter.backbone.Backbone`; nothing beyond a row's length is read.

    Args:
        weights: of this rank, BF16, of sizes that the kernels take.
        context: tokens that may stand before an anchor.

    Raises:
        BadInputError: as there.
    """

    def __init__(self, weights: Weights, context: int) -> None:
        weights, self._qkv, self._gate_up = joined(weights)
        super().__init__(weights, context)
        self._sizes = sizes_of(self.config)

    def run(
        self, anchors: Tensor, places: tuple[Tensor, Tensor], keys: Tensor, values: Tensor
    ) -> Tensor:
        """Run the blocks of a batch, see :meth:`pp4.drafter.backbone.Backbone.run`."""
        config, sizes, weight = self.config, self._sizes, self._weights.layer
        lying = Places(*(one.contiguous() for one in places))
        splits = Splits.of(sizes, len(anchors), anchors.device)
        norms = [weight(index, "input_layernorm") for index in range(config.layers)]
        norms.append(self._weights.tensors["norm.weight"])
        hidden, taken = embedded(
            sizes, anchors.contiguous(), config.mask_token, self._weights.embedding, norms[0]
        )
        for index in range(config.layers):
            found = self._attention_of(index, taken, lying, (keys[index], values[index]), splits)
            taken = added(sizes, hidden, found, weight(index, "post_attention_layernorm"))
            opened = gated(sizes, functional.linear(taken, self._gate_up[index]))
            more = functional.linear(opened, weight(index, "mlp.down_proj"))
            taken = added(sizes, hidden, more, norms[index + 1])
        return taken.view(len(anchors), config.block, config.hidden)

    def _attention_of(
        self,
        index: int,
        taken: Tensor,
        places: Places,
        cached: tuple[Tensor, Tensor],
        splits: Splits,
    ) -> Tensor:
        """[N, hidden] normalised states -> [N, hidden], what attention adds to them."""
        sizes, weight = self._sizes, self._weights.layer
        qkv = functional.linear(taken, self._qkv[index])
        norms = weight(index, "self_attn.q_norm"), weight(index, "self_attn.k_norm")
        turned(sizes, qkv, places, norms, self._rotary.tables)
        found = attended(sizes, qkv, places, cached, splits)
        return functional.linear(found, weight(index, "self_attn.o_proj"))
