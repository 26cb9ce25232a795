"""``config.json`` of both published layouts -> what the drafter is.

DeepSpec writes the target's own config with a few keys more; speculators keeps the sizes of the
backbone under ``transformer_layer_config`` and its own keys beside.  Keys that only training reads
are not looked at.  What the sources leave open was decided so:

- Layers.  DeepSpec counts the layers whose output is taken, from 0; speculators counts the layers
  that stand before the tapped place.  The same place is one less in DeepSpec's count, which is the
  one that is kept.
- ``sample_from_anchor`` says whether the anchor's own query predicts.  DeepSpec has no such key,
  and there it always does.  Under speculators older exports leave it out and mean either, which
  cannot be told from the tensors, so there it has to be said.
- ``draft_vocab_size`` is the target's vocabulary where it is absent.
- ``final_logit_softcapping`` bounds the base logits in either layout, beside or in the backbone's
  config.
- ``head_dim`` is ``hidden_size / num_attention_heads`` where it is absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pp4.drafter.checkpoint.bundle import CONFIG
from pp4.drafter.checkpoint.documents import read_document
from pp4.drafter.checkpoint.keys import Keys
from pp4.drafter.checkpoint.problems import Problem, refused, shown
from pp4.drafter.checkpoint.tensors import LayerSizes
from pp4.drafter.config import MAX_VOCAB, DrafterConfig, Layout
from pp4.errors import Code

BLOCKS: Final = (1, 32)
"""Fewest and most queries of a block; published ones have 5 to 16."""
_BACKBONE = "transformer_layer_config"
_TYPE = "speculators_model_type"
_FULL = "full_attention"
_DEEPSPEC = ["Qwen3DSparkModel"]
_SPECULATORS = (["DSparkSpeculator"], ["DSparkDraftModel"])


def read_config(directory: Path) -> DrafterConfig:
    """Read and understand the config of a checkpoint.

    Raises:
        RefusedError: ``BAD_CHECKPOINT``: the file or a key is missing or makes no sense; or
            ``UNSUPPORTED_CHECKPOINT``: sound, but of a kind that pp4 has no code for.
    """
    tree = read_document(directory, CONFIG)
    problems: list[Problem] = []
    unsupported: list[Problem] = []
    config = understood(tree, problems, unsupported)
    # A kind that is not known makes the other keys meaningless, so it is said first.
    if unsupported:
        raise refused(directory, unsupported, code=Code.UNSUPPORTED_CHECKPOINT)
    if problems:
        raise refused(directory, problems)
    return config


def understood(
    tree: Mapping[str, Any], problems: list[Problem], unsupported: list[Problem]
) -> DrafterConfig:
    """Read a config, collecting what is wrong and what is not supported.

    Args:
        tree: the whole of ``config.json``.
        problems: takes what is missing or makes no sense.
        unsupported: takes what is sound, but not supported.

    Returns:
        The config; it means nothing where anything was collected.
    """
    top = Keys(tree, problems=problems, unsupported=unsupported)
    if top.has(_TYPE):
        layout, body = Layout.SPECULATORS, top.under(_BACKBONE)
        top.needed(_TYPE, "dspark")
        top.needed("architectures", *_SPECULATORS)
        target_layers = tuple(one - 1 for one in top.rising("aux_hidden_state_layer_ids", 0))
    else:
        layout, body = Layout.DEEPSPEC, top
        top.needed("architectures", _DEEPSPEC)
        target_layers = top.rising("target_layer_ids", -1)
    check_decoder(body)
    _check_kind(top, body)
    return _assembled(layout, top, body, target_layers)


def _assembled(
    layout: Layout, top: Keys, body: Keys, target_layers: tuple[int, ...]
) -> DrafterConfig:
    hidden, heads = body.integer("hidden_size"), body.integer("num_attention_heads")
    kv_heads = body.integer("num_key_value_heads")
    vocab = body.integer("vocab_size", 2, MAX_VOCAB)
    head_dim = body.integer("head_dim", 2) if body.has("head_dim") else hidden // heads
    draft_vocab = top.integer("draft_vocab_size", 2) if top.has("draft_vocab_size") else vocab
    confidence = top.truth("enable_confidence_head")
    config = DrafterConfig(
        layout=layout,
        hidden=hidden,
        layers=body.integer("num_hidden_layers", most=64),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate=body.integer("intermediate_size"),
        norm_eps=body.real("rms_norm_eps"),
        rope_theta=rope_theta(body),
        max_positions=body.integer("max_position_embeddings"),
        vocab=vocab,
        draft_vocab=draft_vocab,
        block=_block(top),
        mask_token=top.integer("mask_token_id", 0),
        target_layers=target_layers,
        markov_rank=_markov_rank(top),
        confidence=confidence,
        confidence_with_markov=confidence and top.truth("confidence_head_with_markov"),
        softcap=_softcap(top, body),
    )
    check_layers(config, config.layers, body)
    _check_sizes(config, top)
    if top.has("target_hidden_size"):
        top.only("target_hidden_size", hidden)
    return config


def _check_kind(top: Keys, body: Keys) -> None:
    """Note what the heads do that there is no code for."""
    if body is top:
        top.only("sample_from_anchor", True)
        # Under speculators the key is the target's, and the drafter's head is its own either way.
        top.only("tie_word_embeddings", False)
    else:
        top.needed("sample_from_anchor", True)
    check_types(top)


def check_decoder(body: Keys) -> None:
    """Note what decoder layers do that there is no code for: all but Qwen3's plain ones."""
    body.needed("model_type", "qwen3")
    body.only("hidden_act", "silu")
    body.only("attention_bias", False)
    if not body.has("layer_types"):
        body.only("use_sliding_window", False)


def check_types(top: Keys) -> None:
    """Note tensors of other types than BF16."""
    for key in ("dtype", "torch_dtype"):
        top.only(key, "bfloat16")
    top.only("quantization_config")


def _block(top: Keys) -> int:
    """Queries of a block; a size that is sound and not supported is said as such."""
    block = top.integer("block_size")
    if not BLOCKS[0] <= block <= BLOCKS[1]:
        expected = f"{BLOCKS[0]} to {BLOCKS[1]} queries"
        top.refuse("block_size", expected, str(block))
    return block


def _markov_rank(top: Keys) -> int:
    """Rank of the vanilla head; without a head, or with another one, it is not this drafter."""
    if top.zero("markov_rank"):
        top.refuse("markov_rank", "a Markov head of rank 1 or more", "no Markov head")
        return 1
    top.needed("markov_head_type", "vanilla")
    return top.integer("markov_rank")


def rope_theta(body: Keys) -> float:
    """Base of the rotary frequencies, from either of the two places; other kinds are refused."""
    body.only("rope_scaling")
    if not body.has("rope_parameters"):
        return body.real("rope_theta")
    rope = body.under("rope_parameters")
    rope.only("rope_type", "default")
    rope.only("partial_rotary_factor", 1)
    return rope.real("rope_theta")


def _softcap(top: Keys, body: Keys) -> float | None:
    for keys in (top, body):
        if keys.has("final_logit_softcapping"):
            return keys.real("final_logit_softcapping")
    return None


def check_layers(config: LayerSizes, layers: int, body: Keys) -> None:
    """Note heads that do not go together, and layers that are not of full attention."""
    if config.heads % config.kv_heads:
        body.note("num_key_value_heads", f"a divisor of {config.heads}", str(config.kv_heads))
    if config.head_dim < 2 or config.head_dim % 2:
        body.note("head_dim", "an even number from 2", str(config.head_dim))
    kinds = body.words("layer_types")
    if kinds is not None and len(kinds) != layers:
        body.note("layer_types", f"{layers} layers", f"{len(kinds)}")
    for kind in sorted(set(kinds or ()) - {_FULL}):
        body.refuse("layer_types", _FULL, shown(kind))


def _check_sizes(config: DrafterConfig, top: Keys) -> None:
    """Note vocabularies that do not go together."""
    if config.draft_vocab > config.vocab:
        top.note("draft_vocab_size", f"at most {config.vocab}", str(config.draft_vocab))
    if config.mask_token >= config.vocab:
        top.note("mask_token_id", f"a token below {config.vocab}", str(config.mask_token))
