"""Checkpoints of random weights: the same bytes for the same arguments, and sound ones."""

import hashlib
import json
from dataclasses import replace

import pytest
import torch

from pp4.drafter.checkpoint import synthetic
from pp4.drafter.checkpoint.load import load
from pp4.drafter.model import Drafter
from pp4.drafter.support import unsupported
from pp4.errors import BadInputError, Code, RefusedError
from tests.unit.drafter.checkpoints import REDUCED, SMALL, config_tree
from tests.unit.drafter.running import features_of, run

SIZED = replace(
    SMALL, hidden=64, heads=4, head_dim=16, intermediate=96, vocab=1000, draft_vocab=1000
)


def digest(path):
    return hashlib.sha256((path / "model.safetensors").read_bytes()).hexdigest()


def test_bytes_follow_from_sizes_and_seed_alone(tmp_path, monkeypatch):
    synthetic.write(tmp_path / "a", SMALL, 7)
    # in other pieces, after other generators
    monkeypatch.setattr(synthetic, "_AT_ONCE", 20)
    torch.manual_seed(1)
    synthetic.write(tmp_path / "b", SMALL, 7)
    synthetic.write(tmp_path / "c", SMALL, 8)
    assert digest(tmp_path / "a") == digest(tmp_path / "b") != digest(tmp_path / "c")


def test_bytes_are_those_of_every_other_machine(tmp_path):
    synthetic.write(tmp_path, SMALL, 7)
    assert digest(tmp_path) == ("6b2021129e4ec6231aa6b79d82e705162960e678650d1f86ace7bf806fe747e8")


@pytest.mark.parametrize("config", [SMALL, replace(SIZED, softcap=4.0, block=7)])
def test_it_is_loaded_as_what_was_asked_for(tmp_path, config):
    synthetic.write(tmp_path, config, 3)
    loaded = load(tmp_path, 0, 1)
    assert loaded.config == config
    assert all(one.dtype == torch.bfloat16 for one in loaded.tensors.values())
    halves = [load(tmp_path, rank, 2).w2 for rank in (0, 1)]
    assert torch.equal(torch.cat(halves), loaded.w2)


def test_its_config_is_written_as_the_project_writes_it(tmp_path):
    synthetic.write(tmp_path, SMALL)
    found = json.loads((tmp_path / "config.json").read_text())
    assert found.items() <= config_tree(SMALL).items()


def test_its_tensors_are_random_each_in_its_own_way(tmp_path):
    synthetic.write(tmp_path, SIZED)
    tensors = load(tmp_path, 0, 1).tensors
    gate, up = (tensors[f"layers.0.mlp.{name}_proj.weight"] for name in ("gate", "up"))
    assert gate.shape == up.shape
    assert not torch.equal(gate, up)
    for one in (gate, up, tensors["embed_tokens.weight"]):
        values = one.float()
        assert abs(values.mean()) < 0.05 * values.std()
        assert len(values.unique()) > 1000


def test_what_it_drafts_is_neither_flat_nor_sure(tmp_path):
    synthetic.write(tmp_path, SIZED)
    drafter = Drafter(load(tmp_path, 0, 1), slots=2, context=24)
    hidden = run(drafter, [features_of(SIZED, 9), features_of(SIZED, 0)], [3, 700])
    base = drafter.base(hidden, 5).float()
    assert 1.5 < base.std(dim=-1).min() < base.std(dim=-1).max() < 6
    # best values that stand alone: a draw has something to choose from, a greedy one no lottery
    best = base.topk(2, dim=-1).values
    assert (best[..., 0] > best[..., 1]).float().mean() > 0.5
    assert torch.softmax(base, dim=-1).max() < 0.9
    confidence = drafter.confidence(hidden, torch.full((2, 5), 3))
    assert 0.01 < confidence.min() < confidence.max() < 0.99
    assert unsupported(SIZED, 5) == ()


def test_it_writes_over_nothing(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(RefusedError) as caught:
        synthetic.write(tmp_path, SMALL)
    assert caught.value.refusal.code is Code.EXISTS
    assert [one.name for one in tmp_path.iterdir()] == ["config.json"]


def test_a_place_that_is_no_directory_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RefusedError) as caught:
        synthetic.write(tmp_path / "file" / "below", SMALL)
    assert caught.value.refusal.code is Code.UNWRITABLE


@pytest.mark.parametrize(("config", "seed"), [(REDUCED, 0), (SMALL, -1), (SMALL, 1 << 64)])
def test_what_it_cannot_write_is_refused(tmp_path, config, seed):
    with pytest.raises(BadInputError):
        synthetic.write(tmp_path / "new", config, seed)
    assert not (tmp_path / "new").exists()


def test_the_program_writes_what_the_function_writes(tmp_path, capsys):
    sizes = {
        "vocab": 37, "hidden": 16, "layers": 2, "heads": 4, "kv-heads": 2, "head-dim": 8,
        "intermediate": 24, "positions": 256, "features": 2, "rank": 8, "seed": 7,
    }  # fmt: skip
    words = [word for name, size in sizes.items() for word in (f"--{name}", str(size))]
    assert synthetic.main([str(tmp_path / "a"), *words]) == 0
    synthetic.write(tmp_path / "b", SMALL, 7)
    # the config differs in what tensors do not depend on
    assert digest(tmp_path / "a") == digest(tmp_path / "b")
    assert synthetic.main([str(tmp_path / "a"), *words]) == 3
    assert json.loads(capsys.readouterr().err)["refusal"]["code"] == "EXISTS"
