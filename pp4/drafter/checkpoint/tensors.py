"""Which tensors a config calls for, and which rank gets what of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from pp4.drafter.config import DrafterConfig, Layout, bounds_of

EMBEDDING: Final = "embed_tokens.weight"
LM_HEAD: Final = "lm_head.weight"
W1: Final = "markov_head.markov_w1.weight"
W2: Final = "markov_head.markov_w2.weight"
CONFIDENCE: Final = "confidence_head.proj.weight"
CONFIDENCE_BIAS: Final = "confidence_head.proj.bias"
MAP: Final = "d2t"
"""Of a reduced vocabulary: what is added to a draft id to get the target's id."""
MARKS: Final = "t2d"
"""Likewise: which target ids can be drafted.  Only training reads it."""

_BF16 = ("BF16",)
_EITHER = ("BF16", "F32")


@dataclass(frozen=True, slots=True)
class Wanted:
    """A tensor that a config calls for.

    Attributes:
        name: in the checkpoint.
        shape: elements along each axis.
        dtypes: words of the types that will do.
        sharded: whether its rows are split over the ranks.
        required: whether it has to be there.
        read: whether it is loaded; one that is not is checked all the same.
        lent: whether the target's checkpoint has the same, so that it may be left out.
    """

    name: str
    shape: tuple[int, ...]
    dtypes: tuple[str, ...] = _BF16
    sharded: bool = False
    required: bool = True
    read: bool = True
    lent: bool = False


class LayerSizes(Protocol):
    """Sizes of a decoder layer of the Qwen3 family, a drafter's or a target's."""

    @property
    def hidden(self) -> int:
        """Width of the hidden states."""

    @property
    def heads(self) -> int:
        """Query heads."""

    @property
    def kv_heads(self) -> int:
        """Key and value heads."""

    @property
    def head_dim(self) -> int:
        """Width of a head."""

    @property
    def intermediate(self) -> int:
        """Width inside the feed-forward network."""


def wanted(config: DrafterConfig) -> dict[str, Wanted]:
    """The tensors of a checkpoint by name, in the order in which they are used."""
    return {one.name: one for one in (*_backbone(config), *_heads(config))}


def rows_of(one: Wanted, rank: int, world: int) -> tuple[int, int]:
    """First and past-the-last row of a tensor that a rank reads."""
    if one.sharded:
        return bounds_of(one.shape[0], world)[rank]
    return 0, one.shape[0]


def layer_name(index: int, part: str) -> str:
    """Name of a tensor of a decoder layer."""
    return f"layers.{index}.{part}.weight"


def layer_parts(sizes: LayerSizes) -> dict[str, tuple[int, ...]]:
    """Shapes of a decoder layer's tensors by part, in the order in which they are used."""
    hidden, vector = sizes.hidden, (sizes.hidden,)
    queries, keys = sizes.heads * sizes.head_dim, sizes.kv_heads * sizes.head_dim
    return {
        "input_layernorm": vector,
        "self_attn.q_proj": (queries, hidden),
        "self_attn.k_proj": (keys, hidden),
        "self_attn.v_proj": (keys, hidden),
        "self_attn.o_proj": (hidden, queries),
        "self_attn.q_norm": (sizes.head_dim,),
        "self_attn.k_norm": (sizes.head_dim,),
        "post_attention_layernorm": vector,
        "mlp.gate_proj": (sizes.intermediate, hidden),
        "mlp.up_proj": (sizes.intermediate, hidden),
        "mlp.down_proj": (hidden, sizes.intermediate),
    }


def _backbone(config: DrafterConfig) -> Iterator[Wanted]:
    hidden, vector = config.hidden, (config.hidden,)
    shared = config.layout is Layout.SPECULATORS
    yield Wanted(EMBEDDING, (config.vocab, hidden), lent=shared)
    yield Wanted("fc.weight", (hidden, config.feature_width))
    yield Wanted("hidden_norm.weight", vector)
    for index in range(config.layers):
        for part, shape in layer_parts(config).items():
            yield Wanted(layer_name(index, part), shape)
    yield Wanted("norm.weight", vector)


def _heads(config: DrafterConfig) -> Iterator[Wanted]:
    rank = config.markov_rank
    shared = config.layout is Layout.SPECULATORS and not config.mapped
    yield Wanted(LM_HEAD, (config.draft_vocab, config.hidden), sharded=True, lent=shared)
    yield Wanted(W1, (config.vocab, rank))
    yield Wanted(W2, (config.draft_vocab, rank), sharded=True)
    if config.confidence:
        yield Wanted(CONFIDENCE, (1, config.confidence_width), _EITHER)
        yield Wanted(CONFIDENCE_BIAS, (1,), _EITHER, required=False)
    if config.mapped:
        yield Wanted(MAP, (config.draft_vocab,), ("I64",))
        yield Wanted(MARKS, (config.vocab,), ("BOOL",), required=False, read=False)
