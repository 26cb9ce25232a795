"""``config.json`` of a target in the layout of Hugging Face -> what the target is; without torch.

Keys that only training or sampling reads are not looked at.  Where the published files differ it
was decided so:

- The base of the rotary frequencies stands at the top or, as newer releases write it, under
  ``rope_parameters``.
- ``head_dim`` has to be there: the class's own default is 128, other families' is
  ``hidden_size / num_attention_heads``, and a guess would fit either.
- ``tie_word_embeddings`` is false where it is absent, the class's own default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pp4.drafter.checkpoint.bundle import CONFIG
from pp4.drafter.checkpoint.configs import check_decoder, check_layers, check_types, rope_theta
from pp4.drafter.checkpoint.documents import read_document
from pp4.drafter.checkpoint.keys import Keys
from pp4.drafter.checkpoint.problems import Problem, refused
from pp4.drafter.config import MAX_VOCAB
from pp4.errors import Code

_ARCHITECTURES: Final = ["Qwen3ForCausalLM"]
_MOST_LAYERS: Final = 256


@dataclass(frozen=True, slots=True)
class TargetConfig:
    """Sizes of a causal language model of the Qwen3 family.

    Attributes:
        hidden: width of the hidden states.
        layers: decoder layers.
        heads: query heads.
        kv_heads: key and value heads; a divisor of ``heads``.
        head_dim: width of a head, even.
        intermediate: width inside the feed-forward network.
        norm_eps: added to the mean square in every RMSNorm.
        rope_theta: base of the rotary frequencies.
        max_positions: positions that the model was made for.
        vocab: tokens: rows of the embedding and of the head.
        tied: whether the head is the embedding.
    """

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    norm_eps: float
    rope_theta: float
    max_positions: int
    vocab: int
    tied: bool


def read_config(directory: Path) -> TargetConfig:
    """Read and understand the config of a target.

    Raises:
        RefusedError: ``BAD_CHECKPOINT``: the file or a key is missing or makes no sense; or
            ``UNSUPPORTED_CHECKPOINT``: sound, but of a kind that pp4 has no code for.
    """
    problems: list[Problem] = []
    unsupported: list[Problem] = []
    config = _understood(read_document(directory, CONFIG), problems, unsupported)
    # A kind that is not known makes the other keys meaningless, so it is said first.
    if unsupported:
        raise refused(directory, unsupported, code=Code.UNSUPPORTED_CHECKPOINT)
    if problems:
        raise refused(directory, problems)
    return config


def _understood(
    tree: Mapping[str, Any], problems: list[Problem], unsupported: list[Problem]
) -> TargetConfig:
    """Read a config; it means nothing where anything was collected."""
    keys = Keys(tree, problems=problems, unsupported=unsupported)
    keys.needed("architectures", _ARCHITECTURES)
    check_decoder(keys)
    check_types(keys)
    config = TargetConfig(
        hidden=keys.integer("hidden_size"),
        layers=keys.integer("num_hidden_layers", most=_MOST_LAYERS),
        heads=keys.integer("num_attention_heads"),
        kv_heads=keys.integer("num_key_value_heads"),
        head_dim=keys.integer("head_dim", 2),
        intermediate=keys.integer("intermediate_size"),
        norm_eps=keys.real("rms_norm_eps"),
        rope_theta=rope_theta(keys),
        max_positions=keys.integer("max_position_embeddings"),
        vocab=keys.integer("vocab_size", 2, MAX_VOCAB),
        tied=keys.truth("tie_word_embeddings", False),
    )
    check_layers(config, config.layers, keys)
    return config
