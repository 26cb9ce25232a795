"""config.json of a target: what is understood and what is refused, by name."""

import json
from dataclasses import replace

import pytest

from pp4.engine.target.config import TargetConfig, read_config
from pp4.errors import Code, RefusedError
from tests.unit.engine.target.checkpoints import SMALL, UNTIED, config_tree


def read(path, tree):
    (path / "config.json").write_text(tree if isinstance(tree, str) else json.dumps(tree))
    return read_config(path)


def refusal_of(path, tree):
    with pytest.raises(RefusedError) as caught:
        read(path, tree)
    return caught.value.refusal


def changed(**keys):
    return {**config_tree(SMALL), **keys}


def without(*keys):
    return {key: value for key, value in config_tree(SMALL).items() if key not in keys}


@pytest.mark.parametrize("config", [SMALL, UNTIED, replace(SMALL, rope_theta=1e6, norm_eps=1e-5)])
def test_what_was_written_is_understood(tmp_path, config):
    assert read(tmp_path, config_tree(config)) == config


def test_published_sizes_are_understood(tmp_path):
    """Sizes of a published model of 0.6B parameters, as its project writes them."""
    tree = {
        "architectures": ["Qwen3ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
        "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu",
        "hidden_size": 1024, "initializer_range": 0.02, "intermediate_size": 3072,
        "max_position_embeddings": 40960, "max_window_layers": 28, "model_type": "qwen3",
        "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8,
        "rms_norm_eps": 1e-06, "rope_scaling": None, "rope_theta": 1000000,
        "sliding_window": None, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
        "transformers_version": "4.51.0", "use_cache": True, "use_sliding_window": False,
        "vocab_size": 151936,
    }  # fmt: skip
    assert read(tmp_path, tree) == TargetConfig(
        hidden=1024,
        layers=28,
        heads=16,
        kv_heads=8,
        head_dim=128,
        intermediate=3072,
        norm_eps=1e-6,
        rope_theta=1e6,
        max_positions=40960,
        vocab=151936,
        tied=True,
    )


def test_the_newer_way_to_write_it_is_understood(tmp_path):
    tree = without("rope_theta", "rope_scaling", "torch_dtype", "use_sliding_window")
    tree["rope_parameters"] = {"rope_type": "default", "rope_theta": 10000.0}
    tree |= {"dtype": "bfloat16", "layer_types": ["full_attention"] * 4}
    assert read(tmp_path, tree) == SMALL


def test_a_head_is_not_tied_where_nothing_is_said(tmp_path):
    assert read(tmp_path, without("tie_word_embeddings")) == UNTIED


UNSUPPORTED = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen2",
    "hidden_act": "gelu",
    "attention_bias": True,
    "use_sliding_window": True,
    "layer_types": ["full_attention", "sliding_attention", "full_attention", "full_attention"],
    "rope_scaling": {"rope_type": "yarn", "factor": 4.0},
    "torch_dtype": "float32",
    "dtype": "float16",
    "quantization_config": {"bits": 4},
}


@pytest.mark.parametrize("key", UNSUPPORTED)
def test_another_kind_of_model_is_unsupported_by_name(tmp_path, key):
    refusal = refusal_of(tmp_path, changed(**{key: UNSUPPORTED[key]}))
    assert refusal.code is Code.UNSUPPORTED_CHECKPOINT
    assert refusal.where == f"{tmp_path}: config.json.{key}"
    assert refusal.found
    assert refusal.expected
    assert refusal.left == "nothing"


@pytest.mark.parametrize(
    ("key", "value"),
    [("rope_type", "yarn"), ("rope_type", "linear"), ("partial_rotary_factor", 0.5)],
)
def test_other_turns_are_unsupported_where_they_are_written_now(tmp_path, key, value):
    rope = {"rope_type": "default", "rope_theta": 10000.0, key: value}
    refusal = refusal_of(tmp_path, {**without("rope_theta"), "rope_parameters": rope})
    assert refusal.code is Code.UNSUPPORTED_CHECKPOINT
    assert refusal.where == f"{tmp_path}: config.json.rope_parameters.{key}"


NEEDED = [
    "architectures", "model_type", "hidden_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "head_dim", "intermediate_size", "rms_norm_eps", "rope_theta",
    "max_position_embeddings", "vocab_size",
]  # fmt: skip


@pytest.mark.parametrize("key", NEEDED)
def test_a_missing_key_is_refused_by_name(tmp_path, key):
    refusal = refusal_of(tmp_path, without(key))
    assert refusal.code is Code.BAD_CHECKPOINT
    assert refusal.where == f"{tmp_path}: config.json.{key}"
    # without the heads, the heads that share one do not fit either
    assert refusal.found.removesuffix(" (and 1 more)") == "no such key"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_size", 0),
        ("hidden_size", "16"),
        ("num_hidden_layers", 0),
        ("num_hidden_layers", 257),
        ("num_attention_heads", True),
        ("num_key_value_heads", 3),
        ("head_dim", 7),
        ("head_dim", 1),
        ("rms_norm_eps", 0),
        ("rope_theta", -1.0),
        ("vocab_size", 1),
        ("vocab_size", 1 << 30),
        ("max_position_embeddings", 0),
        ("tie_word_embeddings", 1),
        ("layer_types", ["full_attention"] * 3),
    ],
)
def test_a_value_without_sense_is_refused_by_name(tmp_path, key, value):
    refusal = refusal_of(tmp_path, changed(**{key: value}))
    assert refusal.code is Code.BAD_CHECKPOINT
    assert refusal.where == f"{tmp_path}: config.json.{key}"


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": 1, "a": 2}', '{"a": NaN}'])
def test_what_is_no_object_is_refused(tmp_path, text):
    refusal = refusal_of(tmp_path, text)
    assert refusal.code is Code.BAD_CHECKPOINT
    assert refusal.where == f"{tmp_path}: config.json"


def test_several_faults_are_one_refusal_that_counts_them(tmp_path):
    refusal = refusal_of(tmp_path, without("head_dim", "vocab_size", "rms_norm_eps"))
    assert refusal.found == "no such key (and 2 more)"
