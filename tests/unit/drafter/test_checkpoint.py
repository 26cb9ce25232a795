"""Checkpoints: what is loaded in both layouts, by which rank, and which values are refused."""

import ctypes
import json
import mmap
import os
import sys
import tempfile
from dataclasses import replace
from math import prod
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pp4.drafter.checkpoint.load import load
from pp4.drafter.checkpoint.survey import survey
from pp4.drafter.checkpoint.tensors import wanted
from pp4.errors import BadInputError, Code, RefusedError
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
from tests.unit.drafter.refusals import refusal_of

SHARDED = {"lm_head.weight", "markov_head.markov_w2.weight"}

CONFIGS = {"deepspec": SMALL, "speculators": FULL_SPECULATORS, "reduced": REDUCED}


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
