"""config.json of both layouts: what is understood and refused, what the sampled path takes."""

import json
from dataclasses import replace

import pytest

from pp4.drafter.checkpoint.configs import read_config
from pp4.drafter.config import bounds_of
from pp4.drafter.support import unsupported
from pp4.errors import BadInputError, Code, RefusedError
from tests.unit.drafter.checkpoints import FULL_SPECULATORS, REDUCED, SMALL, config_tree

CONFIGS = {"deepspec": SMALL, "speculators": FULL_SPECULATORS, "reduced": REDUCED}
BODY = "transformer_layer_config"


def read(path, tree):
    (path / "config.json").write_text(tree if isinstance(tree, str) else json.dumps(tree))
    return read_config(path)


def refusal_of(path, tree):
    with pytest.raises(RefusedError) as caught:
        read(path, tree)
    return caught.value.refusal


def with_key(config, key, value):
    """The tree of a config with one key changed, in the backbone's part where it stands there."""
    tree = config_tree(config)
    place = tree if key in tree or BODY not in tree else tree[BODY]
    place[key] = value
    return tree


@pytest.mark.parametrize("name", CONFIGS)
def test_what_was_written_is_understood(tmp_path, name):
    config = replace(CONFIGS[name], softcap=30.0, rope_theta=1e6)
    assert read(tmp_path, config_tree(config)) == config


def test_published_sizes_are_understood(tmp_path):
    """Sizes of a published offline drafter of an 8B target, as its project writes them."""
    tree = {
        "_name_or_path": "somewhere", "architectures": ["Qwen3DSparkModel"],
        "attention_bias": False, "attention_dropout": 0.0, "block_size": 7,
        "bos_token_id": 151643, "confidence_head_with_markov": True, "dtype": "bfloat16",
        "enable_confidence_head": True, "eos_token_id": 151645, "head_dim": 128,
        "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
        "intermediate_size": 12288, "layer_types": ["full_attention"] * 5,
        "markov_head_type": "vanilla", "markov_rank": 256, "mask_token_id": 151669,
        "max_position_embeddings": 40960, "max_window_layers": 36, "model_type": "qwen3",
        "num_anchors": 512, "num_attention_heads": 32, "num_hidden_layers": 5,
        "num_key_value_heads": 8, "num_target_layers": 36, "rms_norm_eps": 1e-06,
        "rope_scaling": None, "rope_theta": 1000000, "sliding_window": None,
        "target_layer_ids": [1, 9, 17, 25, 33], "tie_word_embeddings": False,
        "use_cache": True, "use_sliding_window": False, "vocab_size": 151936,
    }  # fmt: skip
    config = read(tmp_path, tree)
    assert (config.hidden, config.vocab, config.draft_vocab) == (4096, 151936, 151936)
    assert (config.block, config.markov_rank, config.feature_width) == (7, 256, 5 * 4096)
    assert (config.confidence_width, config.softcap, config.mapped) == (4352, None, False)
    assert [unsupported(config, depth) for depth in (4, 5)] == [(), ()]


def test_speculators_counts_tapped_layers_from_one_more(tmp_path):
    tree = config_tree(REDUCED)
    tree["aux_hidden_state_layer_ids"] = [2, 10, 18, 26, 34]
    assert read(tmp_path, tree).target_layers == (1, 9, 17, 25, 33)


NEEDED = {
    "deepspec": [
        "architectures", "model_type", "hidden_size", "intermediate_size", "num_hidden_layers",
        "num_attention_heads", "num_key_value_heads", "rms_norm_eps", "vocab_size",
        "max_position_embeddings", "rope_theta", "block_size", "mask_token_id",
        "target_layer_ids", "enable_confidence_head", "confidence_head_with_markov",
        "markov_rank", "markov_head_type",
    ],
    "reduced": [
        "architectures", "aux_hidden_state_layer_ids", "sample_from_anchor", BODY,
        "block_size", "mask_token_id",
        "enable_confidence_head", "confidence_head_with_markov", "markov_rank",
        "markov_head_type",
    ],
}  # fmt: skip


@pytest.mark.parametrize(("name", "key"), [(n, k) for n, keys in NEEDED.items() for k in keys])
def test_a_missing_key_is_named(tmp_path, name, key):
    tree = config_tree(CONFIGS[name])
    del tree[key]
    refusal = refusal_of(tmp_path, tree)
    assert refusal.code is Code.BAD_CHECKPOINT
    assert refusal.where == f"{tmp_path}: config.json.{key}"
    assert refusal.found.startswith("no such key")


def test_a_missing_key_of_the_backbone_is_named_with_its_place(tmp_path):
    tree = config_tree(REDUCED)
    del tree[BODY]["hidden_size"]
    assert refusal_of(tmp_path, tree).where == f"{tmp_path}: config.json.{BODY}.hidden_size"


def test_several_are_counted(tmp_path):
    tree = config_tree(SMALL)
    del tree["hidden_size"], tree["block_size"]
    assert refusal_of(tmp_path, tree).found == "no such key (and 1 more)"


SENSELESS = [
    ("hidden_size", "16"), ("hidden_size", 0), ("hidden_size", True), ("hidden_size", 1.5),
    ("hidden_size", 1 << 31), ("num_hidden_layers", 65), ("num_key_value_heads", 3),
    ("head_dim", 7), ("rms_norm_eps", 0), ("rms_norm_eps", "small"), ("rope_theta", -1.0),
    ("vocab_size", 1), ("vocab_size", (1 << 26) + 1), ("mask_token_id", 37),
    ("mask_token_id", -1), ("block_size", 0),
    ("block_size", None), ("target_layer_ids", []), ("target_layer_ids", [3, 1]),
    ("target_layer_ids", [1, 1]), ("target_layer_ids", [-2, 1]), ("target_layer_ids", 3),
    ("enable_confidence_head", 1), ("confidence_head_with_markov", "yes"), ("markov_rank", -1),
    ("markov_rank", "256"), ("final_logit_softcapping", 0), ("final_logit_softcapping", "30"),
    ("layer_types", ["full_attention"]), ("layer_types", "full"),
    ("draft_vocab_size", 38), ("draft_vocab_size", 1),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value"), SENSELESS)
def test_a_value_without_sense_is_named(tmp_path, key, value):
    refusal = refusal_of(tmp_path, with_key(SMALL, key, value))
    assert refusal.code is Code.BAD_CHECKPOINT
    assert refusal.where == f"{tmp_path}: config.json.{key}"


UNSUPPORTED = [
    (SMALL, "markov_head_type", "gated"), (SMALL, "markov_head_type", "rnn"),
    (REDUCED, "markov_head_type", "gated"), (REDUCED, "markov_head_type", "rnn"),
    (SMALL, "markov_head_type", "else"), (SMALL, "markov_rank", 0), (REDUCED, "markov_rank", 0),
    (SMALL, "architectures", ["Gemma4DSparkModel"]), (SMALL, "architectures", []),
    (REDUCED, "architectures", ["LlamaForCausalLM"]), (SMALL, "model_type", "llama"),
    (REDUCED, "model_type", "deepseek_v4"), (REDUCED, "speculators_model_type", "dflash"),
    (SMALL, "block_size", 33), (REDUCED, "sample_from_anchor", False),
    (SMALL, "layer_types", ["full_attention", "sliding_attention"]),
    (SMALL, "hidden_act", "gelu"),
    (SMALL, "attention_bias", True), (SMALL, "tie_word_embeddings", True),
    (SMALL, "torch_dtype", "float16"), (REDUCED, "dtype", "float32"),
    (SMALL, "quantization_config", {"bits": 4}), (SMALL, "rope_scaling", {"type": "yarn"}),
    (REDUCED, "rope_parameters", {"rope_type": "yarn", "rope_theta": 1.0}),
    (REDUCED, "target_hidden_size", 32),
]  # fmt: skip


@pytest.mark.parametrize(("config", "key", "value"), UNSUPPORTED)
def test_a_kind_without_code_for_it_is_refused_as_such(tmp_path, config, key, value):
    refusal = refusal_of(tmp_path, with_key(config, key, value))
    assert refusal.code is Code.UNSUPPORTED_CHECKPOINT
    assert key in refusal.where or key == "rope_parameters"
    assert refusal.found


def test_sliding_windows_are_refused_where_no_layer_says_otherwise(tmp_path):
    tree = config_tree(SMALL) | {"use_sliding_window": True}
    assert read(tmp_path, tree) == SMALL
    del tree["layer_types"]
    assert refusal_of(tmp_path, tree).code is Code.UNSUPPORTED_CHECKPOINT


TEXTS = ["", "[]", "{", "null", '{"a": 1, "a": 2}', '{"a": NaN}', "[" * 100_000, "\xff"]


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_a_text_that_is_no_config_is_refused(tmp_path, text):
    (tmp_path / "config.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(RefusedError) as caught:
        read_config(tmp_path)
    assert caught.value.refusal.code is Code.BAD_CHECKPOINT
    assert caught.value.refusal.where == f"{tmp_path}: config.json"


def test_a_config_without_end_is_not_read(tmp_path):
    with (tmp_path / "config.json").open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(RefusedError, match="at most 16777216 bytes"):
        read_config(tmp_path)


def test_terminal_codes_in_a_config_are_not_passed_on(tmp_path):
    refusal = refusal_of(tmp_path, with_key(SMALL, "markov_head_type", "\x1b[2J"))
    assert "\x1b" not in refusal.found


@pytest.mark.parametrize(
    ("change", "n_out", "reason"),
    [
        ({}, 4, None),
        ({}, 5, None),
        ({"block": 4}, 4, None),
        ({"block": 4}, 5, "a block of 4 queries gives no 5 positions"),
        ({}, 3, "depth 3"),
        ({}, 6, "depth 6"),
        ({"hidden": 20}, 4, "hidden size 20 is no multiple of 8"),
        ({"markov_rank": 48}, 4, "rank_dim: the kernels take a power of two, not 48"),
        ({"vocab": 5_000_000, "draft_vocab": 5_000_000}, 4, "at most 1024 tiles"),
        ({"vocab": 262144, "draft_vocab": 262144, "markov_rank": 256}, 5, None),
        ({"vocab": 129280, "draft_vocab": 129280, "markov_rank": 256}, 5, None),
        ({"vocab": 151936, "draft_vocab": 32000, "markov_rank": 256}, 5, None),
    ],
)
def test_the_sampled_path_says_why_not(change, n_out, reason):
    found = unsupported(replace(SMALL, **change), n_out)
    if reason is None:
        assert found == ()
    else:
        assert any(reason in one for one in found), found


def test_every_reason_is_said():
    config = replace(SMALL, block=3, hidden=12, markov_rank=3)
    assert len(unsupported(config, 6)) == 4


@pytest.mark.parametrize(
    ("vocab", "world", "bounds"),
    [
        (129281, 2, ((0, 64641), (64641, 129281))),
        (129280, 2, ((0, 64640), (64640, 129280))),
        (2, 2, ((0, 1), (1, 2))),
        (1 << 26, 2, ((0, 1 << 25), (1 << 25, 1 << 26))),
        (7, 1, ((0, 7),)),
    ],
)
def test_an_odd_vocabulary_splits_unevenly(vocab, world, bounds):
    assert bounds_of(vocab, world) == bounds


@pytest.mark.parametrize(("vocab", "world"), [(8, 3), (8, 0), (1, 2)])
def test_what_does_not_split_is_refused(vocab, world):
    with pytest.raises(BadInputError):
        bounds_of(vocab, world)
