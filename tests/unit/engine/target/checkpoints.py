"""Writes small targets with random weights, seeded; and says which drafter goes with one."""

import json
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import save_file

from pp4.drafter.config import DrafterConfig, Layout
from pp4.engine.target.causal import CausalTarget
from pp4.engine.target.config import TargetConfig
from pp4.engine.target.weights import TargetWeights, wanted

SMALL = TargetConfig(
    hidden=16,
    layers=4,
    heads=4,
    kv_heads=2,
    head_dim=8,
    intermediate=24,
    norm_eps=1e-6,
    rope_theta=10000.0,
    max_positions=256,
    vocab=37,
    tied=True,
)
UNTIED = replace(SMALL, tied=False)
TAPS = (0, 1, 3)


def config_tree(config):
    """What ``config.json`` says of a config, as transformers 4 writes it."""
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "hidden_size": config.hidden,
        "intermediate_size": config.intermediate,
        "max_position_embeddings": config.max_positions,
        "max_window_layers": config.layers,
        "model_type": "qwen3",
        "num_attention_heads": config.heads,
        "num_hidden_layers": config.layers,
        "num_key_value_heads": config.kv_heads,
        "rms_norm_eps": config.norm_eps,
        "rope_scaling": None,
        "rope_theta": config.rope_theta,
        "sliding_window": None,
        "tie_word_embeddings": config.tied,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "use_sliding_window": False,
        "vocab_size": config.vocab,
    }


def random_tensors(config, seed=0):
    """Every tensor that a config calls for, by name, BF16; a tied head is not among them."""
    state = torch.Generator().manual_seed(seed)
    made = {}
    for one in wanted(config).values():
        if not one.required:
            continue
        values = torch.randn(one.shape, generator=state)
        if "norm" in one.name:
            values = values * 0.1 + 1
        elif "embed" not in one.name:
            # products keep a deviation of about 1 from layer to layer
            values = values / one.shape[-1] ** 0.5
        made[one.name] = values.to(torch.bfloat16)
    return made


def write(path, config=SMALL, tensors=None, *, seed=0, tree=None):
    """Write a target into a directory, which may exist already; -> the directory.

    Args:
        path: the directory.
        config: what to write.
        tensors: by name; random ones of the seed where None.
        seed: of random tensors.
        tree: what config.json says, where it is not what the config says.
    """
    path = Path(path)
    path.mkdir(parents=True, exist_ok=True)
    tree = config_tree(config) if tree is None else tree
    (path / "config.json").write_text(json.dumps(tree))
    tensors = random_tensors(config, seed) if tensors is None else tensors
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    return path


def weights_of(config=SMALL, seed=0, *, dtype=torch.bfloat16, device="cpu"):
    """What loading would give."""
    tensors = random_tensors(config, seed)
    return TargetWeights(config, {name: one.to(device, dtype) for name, one in tensors.items()})


def target_of(
    config=SMALL,
    seed=0,
    *,
    taps=TAPS,
    slots=3,
    window=6,
    context=64,
    dtype=torch.bfloat16,
    device="cpu",
    recorder=None,
):
    """A target of random weights, without a file."""
    weights = weights_of(config, seed, dtype=dtype, device=device)
    sizes = {"slots": slots, "window": window, "context": context}
    return CausalTarget(weights, taps=taps, **sizes, recorder=recorder)


def drafter_of(config=SMALL, taps=TAPS, **changes):
    """Config of a drafter that goes with a target.

    ``pp4.drafter.checkpoint.synthetic.write(path, drafter_of())`` writes one, of weights of its
    own: it drafts nonsense.

    Args:
        config: of the target.
        taps: the target's layers whose outputs are the drafter's features.
        changes: other values of :class:`DrafterConfig`, such as ``layers`` or ``softcap``.
    """
    drafter = DrafterConfig(
        layout=Layout.DEEPSPEC,
        hidden=config.hidden,
        layers=2,
        heads=config.heads,
        kv_heads=config.kv_heads,
        head_dim=config.head_dim,
        intermediate=config.intermediate,
        norm_eps=config.norm_eps,
        rope_theta=config.rope_theta,
        max_positions=config.max_positions,
        vocab=config.vocab,
        draft_vocab=config.vocab,
        block=5,
        mask_token=config.vocab - 1,
        target_layers=tuple(taps),
        markov_rank=8,
        confidence=True,
        confidence_with_markov=True,
    )
    return replace(drafter, **changes)
