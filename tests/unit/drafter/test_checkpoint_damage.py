"""Checkpoints: every damage is one refusal by name, and nothing outside is opened or run."""

import json
import os
import pickle
import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from pp4.drafter.checkpoint.load import load
from pp4.errors import Code, Refusal, RefusedError
from tests.unit.drafter import damage
from tests.unit.drafter.checkpoints import (
    FULL_SPECULATORS,
    REDUCED,
    SMALL,
    random_tensors,
    write,
)
from tests.unit.drafter.refusals import refusal_of

CONFIGS = {"deepspec": SMALL, "speculators": FULL_SPECULATORS, "reduced": REDUCED}

INDEX = "model.safetensors.index.json"


@settings(max_examples=150)
@given(
    st.sampled_from(sorted(CONFIGS)),
    st.sampled_from(sorted(damage.TENSOR_DAMAGE)),
    st.integers(0, 1000),
    st.sampled_from([1, 3]),
)
def test_a_damaged_tensor_is_one_refusal_that_names_it(kind, how, pick, shards):
    config = CONFIGS[kind]
    tensors = random_tensors(config)
    names = sorted(tensors)
    name = names[pick % len(names)]
    with tempfile.TemporaryDirectory() as directory:
        path = write(directory, config, tensors, shards=shards)
        files = sorted(path.glob("*.safetensors"))
        (file,) = [one for one in files if name in damage.read_raw(one)[0]]
        damage.TENSOR_DAMAGE[how](file, name)
        refusal = refusal_of(path)
    assert refusal.code is Code.BAD_CHECKPOINT
    assert refusal.expected
    optional = name in ("t2d", "confidence_head.proj.bias")
    # an optional tensor of another name is missed by nobody, but nobody knows the new one
    named = f"{name}.old" if how == "renamed" and optional and shards == 1 else name
    assert refusal.where == f"{path}: {named}"


def test_a_damaged_type_and_shape_are_said_as_found(tmp_path):
    path = write(tmp_path)
    damage.swap_dtype(path / "model.safetensors", "fc.weight")
    refusal = refusal_of(path)
    assert (refusal.expected, refusal.found) == ("BF16 [16, 32]", "F16 [16, 32]")
    write(tmp_path)
    damage.transpose(path / "model.safetensors", "fc.weight")
    refusal = refusal_of(path)
    assert (refusal.expected, refusal.found) == ("BF16 [16, 32]", "BF16 [32, 16]")


def test_several_damages_are_one_refusal_that_counts_them(tmp_path):
    tensors = random_tensors(SMALL, leave_out=("norm.weight", "fc.weight"))
    tensors["surplus"] = torch.zeros(3)
    tensors["hidden_norm.weight"] = torch.zeros(5)
    refusal = refusal_of(write(tmp_path, SMALL, tensors))
    assert refusal.where.endswith(": fc.weight")
    assert refusal.found == "no such tensor (and 3 more)"


@pytest.mark.parametrize("extra", [-20, -1, 1, 1 << 40, (1 << 64) - 1])
def test_another_length_of_the_header_is_refused(tmp_path, extra):
    path = write(tmp_path) / "model.safetensors"
    header, data = damage.read_raw(path)
    right = int.from_bytes(path.read_bytes()[:8], "little")
    length = extra if extra > 1 << 32 else right + extra
    text = path.read_bytes()[8 : 8 + right]
    path.write_bytes(length.to_bytes(8, "little") + text + data)
    assert header
    refusal = refusal_of(tmp_path)
    assert refusal.code is Code.BAD_CHECKPOINT


@pytest.mark.parametrize("size", [0, 1, 7, 8, 40])
def test_a_file_that_ends_in_its_header_is_refused(tmp_path, size):
    path = write(tmp_path) / "model.safetensors"
    os.truncate(path, size)
    assert refusal_of(tmp_path).where == f"{tmp_path}: model.safetensors"


def test_bytes_behind_the_last_tensor_are_refused(tmp_path):
    path = write(tmp_path) / "model.safetensors"
    path.write_bytes(path.read_bytes() + b"x")
    assert refusal_of(tmp_path).where == f"{tmp_path}: model.safetensors"


@pytest.mark.parametrize(
    "record",
    [
        None,
        [],
        {"dtype": "BF16", "shape": [1]},
        {"dtype": "BF17", "shape": [1], "data_offsets": [0, 2]},
        {"dtype": "BF16", "shape": [-1], "data_offsets": [0, 2]},
        {"dtype": "BF16", "shape": [True], "data_offsets": [0, 2]},
        {"dtype": "BF16", "shape": [1], "data_offsets": [0, 2, 4]},
        {"dtype": "BF16", "shape": [1], "data_offsets": ["0", "2"]},
        {"dtype": ["BF16"], "shape": [1], "data_offsets": [0, 2]},
    ],
)
def test_a_record_that_describes_no_tensor_is_refused(tmp_path, record):
    path = write(tmp_path) / "model.safetensors"
    damage.edited(path, lambda header: header.update({"norm.weight": record}))
    assert refusal_of(tmp_path).where == f"{tmp_path}: norm.weight"


def test_a_tensor_in_two_files_is_refused(tmp_path):
    path = write(tmp_path, shards=2)
    first, second = sorted(path.glob("*.safetensors"))
    name = next(one for one in damage.read_raw(first)[0] if one != "__metadata__")
    tensors = random_tensors(SMALL)
    placed = json.loads((path / INDEX).read_text())["weight_map"]
    again = {one: tensors[one] for one in tensors if placed[one] == second.name}
    save_file({**again, name: tensors[name]}, second)
    refusal = refusal_of(path)
    assert refusal.where == f"{path}: {name}"
    assert refusal.expected == "one place"


def changed_index(path, change):
    tree = json.loads((path / INDEX).read_text())
    change(tree)
    (path / INDEX).write_text(json.dumps(tree))


@pytest.mark.parametrize(
    "outside", ["../other.safetensors", "/etc/passwd", "..", "", "a\\b", "a\0b"]
)
def test_an_index_that_leads_out_of_the_directory_is_refused(tmp_path, outside):
    path = write(tmp_path / "here", shards=2)
    write(tmp_path / "there")
    (tmp_path / "there" / "model.safetensors").rename(tmp_path / "other.safetensors")
    changed_index(path, lambda tree: tree["weight_map"].update({"fc.weight": outside}))
    assert refusal_of(path).expected == "the plain name of a file beside config.json"


@pytest.mark.parametrize("file", ["model.safetensors", "config.json"])
def test_a_link_that_leads_out_of_the_directory_is_refused(tmp_path, file):
    path = write(tmp_path / "here")
    (path / file).rename(tmp_path / file)
    (path / file).symlink_to(tmp_path / file)
    refusal = refusal_of(path)
    assert refusal.where == f"{path}: {file}"
    assert refusal.found == "a link that leads out of it"
    assert "cp -rL" in refusal.next


def test_a_link_inside_the_directory_is_followed(tmp_path):
    path = write(tmp_path)
    (path / "model.safetensors").rename(path / "weights-0001")
    (path / "model.safetensors").symlink_to("weights-0001")
    assert load(path, 0, 1).config == SMALL


def test_a_pipe_is_not_opened(tmp_path):
    path = write(tmp_path)
    (path / "model.safetensors").unlink()
    os.mkfifo(path / "model.safetensors")
    assert refusal_of(path).expected == "a regular file"


@pytest.mark.parametrize(
    "change",
    [
        lambda tree: tree.pop("weight_map"),
        lambda tree: tree.update(weight_map={}),
        lambda tree: tree.update(weight_map=["a"]),
        lambda tree: tree["weight_map"].update({"fc.weight": 3}),
    ],
)
def test_an_index_without_sense_is_refused(tmp_path, change):
    path = write(tmp_path, shards=2)
    changed_index(path, change)
    assert refusal_of(path).where == f"{path}: {INDEX}: weight_map"


def test_an_index_that_names_a_missing_file_is_refused(tmp_path):
    path = write(tmp_path, shards=2)
    file = sorted(path.glob("*.safetensors"))[1]
    file.unlink()
    assert refusal_of(path).where == f"{path}: {file.name}"


def test_two_ways_to_find_tensors_are_refused_and_so_is_none(tmp_path):
    path = write(tmp_path, shards=2)
    save_file({"a": torch.zeros(1)}, path / "model.safetensors")
    assert refusal_of(path).found == "both"
    (path / INDEX).unlink()
    (path / "model.safetensors").unlink()
    assert refusal_of(path).found == "neither"


class Bomb:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "a.PTH", "b.ckpt", "c.pkl"])
@pytest.mark.parametrize("beside", [True, False])
def test_a_pickled_file_is_refused_and_never_run(tmp_path, name, beside):
    path = write(tmp_path / "here")
    if not beside:
        (path / "model.safetensors").unlink()
    (path / name).write_bytes(pickle.dumps(Bomb(tmp_path / "ran")))
    refusal = refusal_of(path)
    assert refusal.where == f"{path}: {name}"
    assert "safetensors" in refusal.next
    assert not (tmp_path / "ran").exists()


def test_no_directory_is_refused(tmp_path):
    assert refusal_of(tmp_path / "gone").code is Code.UNREADABLE
    (tmp_path / "file").touch()
    assert refusal_of(tmp_path / "file").code is Code.UNREADABLE


@settings(max_examples=150)
@given(st.integers(0, 1 << 20), st.integers(0, 255))
def test_any_changed_byte_of_a_header_loads_the_same_shapes_or_refuses(place, value):
    """Whatever a header says, the answer is weights that fit the config or one refusal."""
    with tempfile.TemporaryDirectory() as directory:
        path = write(directory) / "model.safetensors"
        raw = bytearray(path.read_bytes())
        length = int.from_bytes(raw[:8], "little")
        raw[place % (length + 8)] = value
        path.write_bytes(raw)
        found = answer_of(Path(directory))
    if isinstance(found, Refusal):
        assert found.code is Code.BAD_CHECKPOINT
    else:
        assert found.head.shape == (19, 16)


def answer_of(path):
    """The weights or the refusal; any other error is a failure."""
    try:
        return load(path, 0, 2)
    except RefusedError as error:
        return error.refusal
