"""Checkpoints of a target: what is loaded, and that every damage is one refusal by name."""

import json
import pickle
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from pp4.drafter.checkpoint import synthetic
from pp4.drafter.checkpoint.load import load as load_drafter
from pp4.engine.target.causal import CausalTarget
from pp4.engine.target.load import load
from pp4.errors import Code, RefusedError
from tests.unit.drafter import damage
from tests.unit.engine.target.checkpoints import (
    SMALL,
    TAPS,
    UNTIED,
    drafter_of,
    random_tensors,
    write,
)

HEAD = "lm_head.weight"


def refusal_of(path):
    with pytest.raises(RefusedError) as caught:
        load(path)
    assert caught.value.refusal.left == "nothing"
    return caught.value.refusal


@pytest.mark.parametrize("config", [SMALL, UNTIED])
def test_what_was_written_is_loaded(tmp_path, config):
    weights = load(str(write(tmp_path, config)))
    expected = random_tensors(config)
    assert weights.config == config
    assert set(weights.tensors) == set(expected)
    assert all(torch.equal(weights.tensors[name], one) for name, one in expected.items())
    head = expected["model.embed_tokens.weight" if config.tied else HEAD]
    assert torch.equal(weights.head, head)
    assert weights.device.type == "cpu"
    target = CausalTarget(weights, taps=TAPS, slots=1, window=6, context=32)
    assert target.prefill(0, [1, 2, 3]).shape == (3, 48)


def test_several_files_are_loaded(tmp_path):
    tensors = random_tensors(UNTIED)
    write(tmp_path, UNTIED, {})
    (tmp_path / "model.safetensors").unlink()
    placed = {}
    for index in range(3):
        part = {name: tensors[name] for name in list(tensors)[index::3]}
        save_file(part, tmp_path / f"part-{index}.safetensors")
        placed |= dict.fromkeys(part, f"part-{index}.safetensors")
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": placed}))
    weights = load(tmp_path)
    assert all(torch.equal(weights.tensors[name], one) for name, one in tensors.items())


def test_a_tied_head_that_is_written_out_all_the_same_is_not_read(tmp_path):
    tensors = random_tensors(SMALL)
    tensors[HEAD] = torch.full((SMALL.vocab, SMALL.hidden), float("nan"), dtype=torch.bfloat16)
    weights = load(write(tmp_path, SMALL, tensors))
    assert HEAD not in weights.tensors
    assert torch.equal(weights.head, tensors["model.embed_tokens.weight"])
    tensors[HEAD] = torch.zeros(SMALL.hidden, SMALL.vocab, dtype=torch.bfloat16)
    assert refusal_of(write(tmp_path, SMALL, tensors)).where == f"{tmp_path}: {HEAD}"


def test_a_head_that_is_not_tied_has_to_be_there(tmp_path):
    refusal = refusal_of(write(tmp_path, UNTIED, random_tensors(SMALL)))
    assert refusal.code is Code.BAD_CHECKPOINT
    assert refusal.where == f"{tmp_path}: {HEAD}"
    assert (refusal.expected, refusal.found) == ("BF16 [37, 16]", "no such tensor")


@settings(max_examples=80)
@given(st.sampled_from(sorted(damage.TENSOR_DAMAGE)), st.integers(0, 1000), st.booleans())
def test_a_damaged_tensor_is_one_refusal_that_names_it(how, pick, tied):
    config = replace(SMALL, tied=tied)
    names = sorted(random_tensors(config))
    name = names[pick % len(names)]
    with tempfile.TemporaryDirectory() as directory:
        path = write(directory, config)
        damage.TENSOR_DAMAGE[how](path / "model.safetensors", name)
        refusal = refusal_of(path)
    assert refusal.code is Code.BAD_CHECKPOINT
    assert refusal.expected
    assert refusal.where == f"{path}: {name}"


def test_an_unexpected_tensor_is_refused(tmp_path):
    tensors = random_tensors(SMALL)
    tensors["model.layers.0.self_attn.q_proj.bias"] = torch.zeros(32, dtype=torch.bfloat16)
    refusal = refusal_of(write(tmp_path, SMALL, tensors))
    assert refusal.where == f"{tmp_path}: model.layers.0.self_attn.q_proj.bias"
    assert (refusal.expected, refusal.found) == ("no such tensor", "BF16 [32]")


def test_tensors_of_another_type_are_refused_and_counted(tmp_path):
    tensors = {name: one.float() for name, one in random_tensors(SMALL).items()}
    refusal = refusal_of(write(tmp_path, SMALL, tensors))
    assert refusal.where == f"{tmp_path}: model.embed_tokens.weight"
    assert refusal.expected == "BF16 [37, 16]"
    assert refusal.found == f"F32 [37, 16] (and {len(tensors) - 1} more)"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_values_that_are_not_finite_are_refused(tmp_path, value):
    tensors = random_tensors(SMALL)
    tensors["model.layers.2.mlp.up_proj.weight"][3, 4] = value
    refusal = refusal_of(write(tmp_path, SMALL, tensors))
    assert refusal.where == f"{tmp_path}: model.layers.2.mlp.up_proj.weight"
    assert (refusal.expected, refusal.found) == (
        "finite values",
        "1 that are infinite or undefined",
    )


class Bomb:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_a_pickled_file_is_refused_and_never_run(tmp_path):
    path = write(tmp_path / "here")
    (path / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb(tmp_path / "ran")))
    assert refusal_of(path).where == f"{path}: pytorch_model.bin"
    assert not (tmp_path / "ran").exists()


def test_no_directory_is_refused(tmp_path):
    assert refusal_of(tmp_path / "gone").code is Code.UNREADABLE


def test_a_drafter_goes_beside_it(tmp_path):
    synthetic.write(tmp_path, drafter_of(block=4))
    config = load_drafter(tmp_path, 0, 1).config
    assert (config.vocab, config.hidden) == (SMALL.vocab, SMALL.hidden)
    assert config.target_layers == TAPS
    assert config.block == 4
