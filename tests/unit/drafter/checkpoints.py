"""Writes small checkpoints in both published layouts, seeded."""

import json
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import save_file

from pp4.drafter.checkpoint.tensors import wanted
from pp4.drafter.config import DrafterConfig, Layout

TORCH = {"BF16": torch.bfloat16, "F32": torch.float32}

SMALL = DrafterConfig(
    layout=Layout.DEEPSPEC,
    hidden=16,
    layers=2,
    heads=4,
    kv_heads=2,
    head_dim=8,
    intermediate=24,
    norm_eps=1e-6,
    rope_theta=10000.0,
    max_positions=256,
    vocab=37,
    draft_vocab=37,
    block=5,
    mask_token=35,
    target_layers=(1, 3),
    markov_rank=8,
    confidence=True,
    confidence_with_markov=True,
)
REDUCED = replace(SMALL, layout=Layout.SPECULATORS, draft_vocab=21)
FULL_SPECULATORS = replace(SMALL, layout=Layout.SPECULATORS)


def config_tree(config):
    """What ``config.json`` says of a config, as each project writes it."""
    heads = {
        "block_size": config.block,
        "mask_token_id": config.mask_token,
        "num_anchors": 512,
        "markov_rank": config.markov_rank,
        "markov_head_type": "vanilla",
        "enable_confidence_head": config.confidence,
        "confidence_head_with_markov": config.confidence_with_markov,
    }
    if config.softcap is not None:
        heads["final_logit_softcapping"] = config.softcap
    backbone = {
        "model_type": "qwen3",
        "hidden_size": config.hidden,
        "intermediate_size": config.intermediate,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "rms_norm_eps": config.norm_eps,
        "vocab_size": config.vocab,
        "max_position_embeddings": config.max_positions,
        "hidden_act": "silu",
        "attention_bias": False,
        "layer_types": ["full_attention"] * config.layers,
    }
    if config.layout is Layout.DEEPSPEC:
        return {
            "architectures": ["Qwen3DSparkModel"],
            **backbone,
            "rope_theta": config.rope_theta,
            "rope_scaling": None,
            "tie_word_embeddings": False,
            "torch_dtype": "bfloat16",
            "num_target_layers": 36,
            "target_layer_ids": list(config.target_layers),
            **heads,
        }
    return {
        "architectures": ["DSparkDraftModel"],
        "speculators_model_type": "dspark",
        "speculators_config": {"algorithm": "dspark"},
        "draft_vocab_size": config.draft_vocab,
        "target_hidden_size": None,
        # speculators counts the layers before the tapped place
        "aux_hidden_state_layer_ids": [one + 1 for one in config.target_layers],
        "sample_from_anchor": True,
        "dtype": "bfloat16",
        "transformer_layer_config": {
            **backbone,
            "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_theta},
            "tie_word_embeddings": True,
        },
        **heads,
    }


def random_map(config, seed=0):
    """Rising target ids, one for each draft id."""
    state = torch.Generator().manual_seed(seed)
    return torch.randperm(config.vocab, generator=state)[: config.draft_vocab].sort().values


def random_tensors(config, seed=0, *, leave_out=()):
    """Every tensor that a config calls for, by name, in the types that are published."""
    state = torch.Generator().manual_seed(seed)
    made = {}
    for one in wanted(config).values():
        if one.name in leave_out:
            continue
        if one.name == "d2t":
            ids = random_map(config, seed)
            made[one.name] = ids - torch.arange(config.draft_vocab)
        elif one.name == "t2d":
            made[one.name] = torch.zeros(one.shape, dtype=torch.bool)
            made[one.name][random_map(config, seed)] = True
        else:
            values = torch.randn(one.shape, generator=state) * 0.5
            if "norm" in one.name:
                values = values * 0.1 + 1
            made[one.name] = values.to(TORCH[one.dtypes[0]])
    return made


def write(path, config=SMALL, tensors=None, *, shards=1, tree=None):
    """Write a checkpoint into a new directory; -> the directory.

    Args:
        path: the directory.
        config: what to write.
        tensors: by name; random ones of seed 0 where None.
        shards: files; with more than one there is an index.
        tree: what config.json says, where it is not what the config says.
    """
    path = Path(path)
    path.mkdir(parents=True, exist_ok=True)
    tree = config_tree(config) if tree is None else tree
    (path / "config.json").write_text(json.dumps(tree))
    tensors = random_tensors(config) if tensors is None else tensors
    if shards == 1:
        save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
        return path
    placed = {}
    for index in range(shards):
        file = f"model-{index + 1:05}-of-{shards:05}.safetensors"
        part = {name: tensors[name] for name in list(tensors)[index::shards]}
        save_file(part, path / file, metadata={"format": "pt"})
        placed |= dict.fromkeys(part, file)
    index = {"metadata": {"total_size": 0}, "weight_map": placed}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    return path


LENT = ("embed_tokens.weight", "lm_head.weight")


def write_target(path, tensors, *, before="model.", tied=False):
    """The two tensors that a target lends, and one more, as its own project names them."""
    path.mkdir()
    (path / "config.json").write_text(json.dumps({"tie_word_embeddings": tied}))
    own = {f"{before}embed_tokens.weight": tensors[LENT[0]], "model.norm.weight": torch.ones(3)}
    if not tied:
        own["lm_head.weight"] = tensors[LENT[1]]
    save_file(own, path / "model.safetensors")
    return path
