"""Checkpoints: what is loaded in both layouts, and that every damage is one refusal by name."""

import ctypes
import json
import mmap
import os
import pickle
import sys
import tempfile
from dataclasses import replace
from math import prod
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from pp4.drafter.checkpoint.load import load
from pp4.drafter.checkpoint.survey import survey
from pp4.drafter.checkpoint.tensors import wanted
from pp4.errors import BadInputError, Code, Refusal, RefusedError
from tests.unit.drafter import damage
from tests.unit.drafter.checkpoints import (
    FULL_SPECULATORS,
    LENT,
    REDUCED,
    SMALL,
    config_tree,
    random_map,
    random_tensors,
    write,
    write_target,
)

SHARDED = {"lm_head.weight", "markov_head.markov_w2.weight"}
CONFIGS = {"deepspec": SMALL, "speculators": FULL_SPECULATORS, "reduced": REDUCED}
INDEX = "model.safetensors.index.json"


def refusal_of(path, **more):
    """The refusal that loading gives; looking gives the same."""
    with pytest.raises(RefusedError) as caught:
        load(path, 0, 2, **more)
    with pytest.raises(RefusedError) as seen:
        survey(Path(path), more.get("target"))
    assert seen.value.refusal == caught.value.refusal
    assert caught.value.refusal.left == "nothing"
    return caught.value.refusal


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize(("rank", "world"), [(0, 1), (0, 2), (1, 2)])
def test_what_was_written_is_loaded(tmp_path, name, shards, rank, world):
    config = CONFIGS[name]
    tensors = random_tensors(config)
    found = load(write(tmp_path, config, tensors, shards=shards), rank, world)
    assert found.config == config
    half = (config.draft_vocab + 1) // 2
    bounds = [(0, config.draft_vocab)] if world == 1 else [(0, half), (half, config.draft_vocab)]
    assert found.bounds == bounds[rank]
    assert set(found.tensors) == set(tensors) - {"d2t", "t2d"}
    for key, one in found.tensors.items():
        whole = tensors[key]
        expected = whole[slice(*bounds[rank])] if key in SHARDED else whole
        assert one.dtype == expected.dtype
        assert torch.equal(one, expected), key
        assert one.is_contiguous()
    if config.mapped:
        assert found.token_map.tolist() == random_map(config).tolist()
        assert found.token_map.dtype == torch.int32
    else:
        assert found.token_map is None


@settings(max_examples=20)
@given(st.integers(2, 60), st.integers(0, 1000), st.integers(1, 4))
def test_the_two_ranks_have_every_row_once(vocab, seed, shards):
    config = replace(SMALL, vocab=vocab, draft_vocab=vocab, mask_token=vocab - 1)
    tensors = random_tensors(config, seed)
    with tempfile.TemporaryDirectory() as directory:
        path = write(directory, config, tensors, shards=shards)
        low, high = (load(path, rank, 2) for rank in (0, 1))
    for key in SHARDED:
        assert torch.equal(torch.cat([low.tensors[key], high.tensors[key]]), tensors[key])
    assert len(low.head) - len(high.head) == vocab % 2


def test_bytes_are_those_of_the_tensors(tmp_path):
    found = load(write(tmp_path, REDUCED), 0, 2)
    sizes = [one.numel() * one.element_size() for one in found.tensors.values()]
    assert found.bytes == sum(sizes) + 4 * REDUCED.draft_vocab


@pytest.mark.parametrize(("rank", "world"), [(-1, 1), (1, 1), (2, 2), (0, 3), (0, 0)])
def test_another_world_is_refused(tmp_path, rank, world):
    with pytest.raises(BadInputError, match="world of 1 or 2"):
        load(write(tmp_path), rank, world)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("bias", [True, False])
def test_the_confidence_head_may_be_of_either_type_and_without_a_bias(tmp_path, dtype, bias):
    tensors = random_tensors(SMALL)
    names = ["confidence_head.proj.weight", "confidence_head.proj.bias"]
    for name in names:
        tensors[name] = tensors[name].to(getattr(torch, dtype))
    if not bias:
        del tensors[names[1]]
    weight, found = load(write(tmp_path, SMALL, tensors), 0, 1).confidence
    assert torch.equal(weight, tensors[names[0]])
    assert (found is not None) is bias


def test_what_only_training_reads_may_be_missing(tmp_path):
    tensors = random_tensors(REDUCED, leave_out=("t2d",))
    assert load(write(tmp_path, REDUCED, tensors), 0, 2).config == REDUCED


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


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("name", ["fc.weight", "lm_head.weight", "markov_head.markov_w2.weight"])
def test_values_that_are_not_finite_are_refused_by_the_rank_that_reads_them(tmp_path, value, name):
    tensors = random_tensors(SMALL)
    tensors[name][1, 1] = value
    path = write(tmp_path, SMALL, tensors)
    with pytest.raises(RefusedError) as caught:
        load(path, 0, 2)
    assert caught.value.refusal.where == f"{path}: {name}"
    assert caught.value.refusal.found == "1 that are infinite or undefined"
    if name in SHARDED:
        assert load(path, 1, 2).config == SMALL


@pytest.mark.parametrize("how", ["falling", "equal", "beyond", "below"])
def test_a_token_map_that_does_not_rise_inside_the_vocabulary_is_refused(tmp_path, how):
    tensors = random_tensors(REDUCED)
    ids = random_map(REDUCED)
    if how == "falling":
        ids[[2, 3]] = ids[[3, 2]]
    elif how == "equal":
        ids[3] = ids[2]
    elif how == "beyond":
        ids[-1] = REDUCED.vocab
    else:
        ids[0] = -1
    tensors["d2t"] = ids - torch.arange(REDUCED.draft_vocab)
    refusal = refusal_of(write(tmp_path, REDUCED, tensors))
    assert refusal.where == f"{tmp_path}: d2t"
    assert "strictly rising ids below 37" in refusal.expected


def test_no_directory_is_refused(tmp_path):
    assert refusal_of(tmp_path / "gone").code is Code.UNREADABLE
    (tmp_path / "file").touch()
    assert refusal_of(tmp_path / "file").code is Code.UNREADABLE


@pytest.mark.parametrize("before", ["model.", "model.language_model.", ""])
def test_what_speculators_leaves_out_comes_from_the_target(tmp_path, before):
    tensors = random_tensors(FULL_SPECULATORS)
    own = {name: one for name, one in tensors.items() if name not in LENT}
    path = write(tmp_path / "drafter", FULL_SPECULATORS, own)
    target = write_target(tmp_path / "target", tensors, before=before)
    found = load(path, 1, 2, target=target)
    assert torch.equal(found.embedding, tensors[LENT[0]])
    assert torch.equal(found.head, tensors[LENT[1]][19:])


def test_a_tied_target_lends_its_embedding_as_its_head(tmp_path):
    tensors = random_tensors(FULL_SPECULATORS)
    own = {name: one for name, one in tensors.items() if name not in LENT}
    path = write(tmp_path / "drafter", FULL_SPECULATORS, own)
    target = write_target(tmp_path / "target", tensors, tied=True)
    assert torch.equal(load(path, 0, 1, target=target).head, tensors[LENT[0]])


def test_what_is_left_out_without_a_target_is_refused(tmp_path):
    own = random_tensors(FULL_SPECULATORS, leave_out=LENT)
    path = write(tmp_path / "drafter", FULL_SPECULATORS, own)
    assert refusal_of(path).found == "no target's directory was given (and 1 more)"
    target = write_target(tmp_path / "target", random_tensors(replace(SMALL, vocab=40)))
    refusal = refusal_of(path, target=target)
    assert refusal.where == f"{path}: embed_tokens.weight"
    assert refusal.found.startswith("BF16 [40, 16]")


@pytest.mark.parametrize(
    ("config", "name"), [(SMALL, LENT[0]), (SMALL, LENT[1]), (REDUCED, LENT[1])]
)
def test_what_a_checkpoint_has_to_own_is_not_lent(tmp_path, config, name):
    own = random_tensors(config, leave_out=(name,))
    path = write(tmp_path / "drafter", config, own)
    target = write_target(tmp_path / "target", random_tensors(SMALL))
    refusal = refusal_of(path, target=target)
    assert (refusal.where, refusal.found) == (f"{path}: {name}", "no such tensor")


def test_without_safetensors_loading_names_the_package(tmp_path, monkeypatch):
    path = write(tmp_path)
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(RefusedError) as caught:
        load(path, 0, 1)
    assert caught.value.refusal.code is Code.MISSING_PACKAGE


def pages_read(path, first, last):
    """How much of a part of a file is in the page cache; of a hole, what somebody has read."""
    size = mmap.PAGESIZE
    start, count = first // size * size, (last - first // size * size + size - 1) // size
    seen = (ctypes.c_ubyte * count)()
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        place = ctypes.c_char.from_buffer(mapped)
        address = ctypes.c_void_p(ctypes.addressof(place) + start)
        failed = ctypes.CDLL(None, use_errno=True).mincore(
            address, ctypes.c_size_t(last - start), ctypes.byref(seen)
        )
        del place
    assert not failed, os.strerror(ctypes.get_errno())
    return sum(one & 1 for one in seen) / count


@pytest.fixture
def in_memory():
    """A directory of a file system without a disk, where nothing is ever read ahead."""
    shared = Path("/dev/shm")
    if not os.access(shared, os.W_OK):
        pytest.skip("there is no /dev/shm to write to")
    with tempfile.TemporaryDirectory(dir=shared) as directory:
        yield Path(directory)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_reads_its_own_rows_and_not_the_others(in_memory, rank):
    """Of a file that is one hole, what is read gets pages, and nothing else does."""
    config = replace(SMALL, hidden=64, vocab=65536, draft_vocab=65536, markov_rank=64)
    path = sparse(in_memory / "big", config)
    file, entries = path / "model.safetensors", survey(path).entries
    halves = {}
    for name in SHARDED:
        start, length = entries[name].start, entries[name].bytes
        halves[name] = ((start, start + length // 2), (start + length // 2, start + length))
    assert all(pages_read(file, *half) < 0.01 for both in halves.values() for half in both)
    found = load(path, rank, 2)
    assert len(found.head) == len(found.w2) == 32768
    for name, both in halves.items():
        assert pages_read(file, *both[rank]) == 1, name
        # not more than the pages that hold an end of a half and of its neighbour
        assert pages_read(file, *both[1 - rank]) < 0.01, name


def sparse(path, config):
    """A checkpoint of zeros that takes no room on the disk."""
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config_tree(config)))
    header, end = {}, 0
    for one in wanted(config).values():
        size = prod(one.shape) * 2
        header[one.name] = {
            "dtype": "BF16", "shape": list(one.shape), "data_offsets": [end, end + size]
        }  # fmt: skip
        end += size
    file = path / "model.safetensors"
    damage.write_raw(file, header, b"")
    os.truncate(file, file.stat().st_size + end)
    return path


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
