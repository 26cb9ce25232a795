"""A held-out file is checked wholly: every damage is one refusal that names it."""

import os
import pickle
import sys

import pytest
import torch

from pp4.engine.replay.reading import read_heldout
from pp4.errors import Code, Pp4Error, RefusedError, WrongError
from tests.unit.engine.replay.cases import closed, opened


@pytest.fixture(scope="module")
def whole(heldout):
    """The bytes of a good file."""
    return heldout.read_bytes()


def refused(path, raw):
    path.write_bytes(raw)
    with pytest.raises(Pp4Error) as caught:
        read_heldout(path)
    assert caught.value.refusal.where.startswith(str(path))
    return caught.value


def test_what_is_taken_apart_and_put_together_is_the_same(whole):
    assert closed(*opened(whole)) == whole


NAN, LARGE = float("nan"), float("inf")
VALUES = {
    "w1": ("w1", (3, 2), NAN, "w1[3, 2]"),
    "w2": ("w2", (0, 0), LARGE, "w2[0, 0]"),
    "features": ("document.features", (5, 1), NAN, "document.features[5, 1]"),
    "base": ("block.base", (1, 2, 3), -LARGE, "block.base[1, 2, 3]"),
    "first start": ("document.starts", 0, 1, "document.starts"),
    "last start": ("document.starts", 2, 23, "document.starts"),
    "no rise": ("document.starts", 1, 0, "document.starts[0]"),
    "token": ("document.tokens", 4, 150, "document.tokens[4]"),
    "negative token": ("document.tokens", 4, -1, "document.tokens[4]"),
    "document": ("block.document", 3, 2, "block.document[3]"),
    "order": ("block.document", 0, 1, "block.document[0]"),
    "before the text": ("block.position", 1, 1, "block.position[1]"),
    "behind the text": ("block.position", 1, 13, "block.position[1]"),
    "negative position": ("block.position", 1, -1, "block.position[1]"),
    "round": ("block.round", 2, 1 << 32, "block.round[2]"),
    "drawn token": ("sampled.tokens", (0, 4), 150, "sampled.tokens[0, 4]"),
    "greedy token": ("greedy.tokens", (0, 4), -1, "greedy.tokens[0, 4]"),
    "chain": ("sampled.previous", (2, 3), None, "sampled.previous[2, 3]"),
    "chain's anchor": ("greedy.previous", (2, 0), None, "greedy.previous[2, 0]"),
    "anchor": ("block.anchor", 2, None, "block.anchor[2]"),
    "negative p": ("sampled.targets", (1, 1, 5, 149), -1e-9, "sampled.targets[1, 1, 5, 149]"),
    "undefined p": ("greedy.targets", (3, 0, 0, 7), NAN, "greedy.targets[3, 0, 0, 7]"),
    "large p": ("greedy.targets", (3, 0, 0, 7), 1.5, "greedy.targets[3, 0, 0, 7]"),
    "sum": ("sampled.targets", (1, 0, 2), 0.0, "sampled.targets[1, 0, 2]"),
    "another beginning": ("greedy.targets", (1, 0, 0), 1 / 150, "greedy.targets[1, 0, 0]"),
    "no token": ("greedy.argmax", (0, 5), 150, "greedy.argmax[0, 5]"),
    "argmax": ("greedy.argmax", (3, 2), None, "greedy.argmax[3, 2]"),
}


@pytest.mark.parametrize("name", VALUES)
def test_a_value_that_does_not_fit(whole, tmp_path, name):
    tensor, place, value, where = VALUES[name]
    header, tensors = opened(whole)
    one = tensors[tensor]
    # None: another token of the vocabulary
    one[place] = (one[place] + 1) % 150 if value is None else value
    found = refused(tmp_path / "h", closed(header, tensors)).refusal
    assert (found.code, found.where) == (Code.BAD_INPUT, f"{tmp_path / 'h'}: {where}")


@pytest.mark.parametrize("name", ["w1", "block.key", "greedy.targets", "document.features"])
def test_a_tensor_that_was_changed(whole, tmp_path, name):
    header, tensors = opened(whole)
    flat = tensors[name].view(-1).view(torch.uint8)
    flat[0] ^= 1
    error = refused(tmp_path / "h", closed(header, tensors, seal=False))
    assert isinstance(error, WrongError)
    assert error.refusal.code is Code.DIGEST_MISMATCH
    assert error.refusal.where == f"{tmp_path / 'h'}: {name}"


def changed(header, **members):
    return {**header, **members}


HEADERS = {
    "another format": (lambda h: changed(h, format="pp4-heldout-v2"), Code.UNKNOWN_VERSION),
    "no format": (lambda h: {k: v for k, v in h.items() if k != "format"}, Code.UNKNOWN_VERSION),
    "a list": (lambda h: [h], Code.UNKNOWN_VERSION),
    "definition": (lambda h: changed(h, definition="dyadic24-v2"), Code.UNKNOWN_VERSION),
    "constants": (lambda h: changed(h, definition_sha256="0" * 64), Code.UNKNOWN_VERSION),
    "a member more": (lambda h: changed(h, more=1), Code.SCHEMA),
    "no source": (lambda h: changed(h, sources={}), Code.SCHEMA),
    "temperatures": (lambda h: changed(h, temperatures=["1.0", "0.7"]), Code.SCHEMA),
    "no digest": (lambda h: changed(h, tensors=dict.fromkeys(h["tensors"], "0")), Code.SCHEMA),
    "no blocks": (lambda h: changed(h, sizes={**h["sizes"], "blocks": 0}), Code.SCHEMA),
    "another size": (lambda h: changed(h, sizes={**h["sizes"], "blocks": 5}), Code.SCHEMA),
    "another rank": (lambda h: changed(h, sizes={**h["sizes"], "markov_rank": 4}), Code.SCHEMA),
    "a digest more": (
        lambda h: changed(h, tensors={**h["tensors"], "x": "0" * 64}),
        Code.SCHEMA,
    ),
}


@pytest.mark.parametrize("name", HEADERS)
def test_a_header_that_does_not_fit(whole, tmp_path, name):
    change, code = HEADERS[name]
    header, tensors = opened(whole)
    error = refused(tmp_path / "h", closed(change(header), tensors, seal=False))
    assert isinstance(error, RefusedError)
    assert error.refusal.code is code


def test_tensors_that_are_not_those_of_the_format(whole, tmp_path):
    header, tensors = opened(whole)
    for other in (
        {name: one for name, one in tensors.items() if name != "w2"},
        {**tensors, "more": tensors["w2"].clone()},
        {**tensors, "w2": tensors["w2"].float()},
        {**tensors, "w2": tensors["w2"].T.contiguous()},
    ):
        raw = closed(header, other, seal=False)
        assert refused(tmp_path / "h", raw).refusal.code is Code.SCHEMA


def test_a_header_in_another_spelling(whole, tmp_path):
    at = whole.index(b'\\"blocks\\":')
    # one space of the padding of the outer header moves inside
    end = 8 + int.from_bytes(whole[:8], "little")
    pad = whole[:end].endswith(b" ")
    raw = bytearray(whole[:at] + b" " + whole[at:end])
    raw = raw[:-1] if pad else raw + b" " * 7
    raw[:8] = (len(raw) - 8).to_bytes(8, "little")
    error = refused(tmp_path / "h", bytes(raw) + whole[end:])
    assert error.refusal.code is Code.NOT_CANONICAL


@pytest.mark.parametrize(
    "damage",
    [
        lambda raw: b"",
        lambda raw: raw[:7],
        lambda raw: raw[:100],
        lambda raw: raw[:-1],
        lambda raw: raw + b"\0",
        lambda raw: (1 << 62).to_bytes(8, "little") + raw[8:],
        lambda raw: pickle.dumps({"w1": [1]}),
    ],
)
def test_bytes_that_are_no_whole_file(whole, tmp_path, damage):
    assert refused(tmp_path / "h", damage(whole)).refusal.code is Code.UNREADABLE


def test_another_safetensors_file(pair, tmp_path):
    raw = (pair / "drafter" / "model.safetensors").read_bytes()
    assert refused(tmp_path / "h", raw).refusal.code is Code.UNKNOWN_KIND


def test_what_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name in ("gone", "pipe", "."):
        with pytest.raises(RefusedError) as caught:
            read_heldout(tmp_path / name)
        assert caught.value.refusal.code is Code.UNREADABLE


def test_a_machine_without_safetensors(heldout, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(RefusedError) as caught:
        read_heldout(heldout)
    assert caught.value.refusal.code is Code.MISSING_PACKAGE
