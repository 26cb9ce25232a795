"""The verifier's kernels as they are compiled, primed and, where there is one, run on a GPU."""

import pytest

from tests.kernels import compiling
from tests.kernels.drivers import said

# -- as it is compiled ------------------------------------------------------------------------

PRIMED = """
import re
from pp4.verifier import fused
from pp4.verifier.batch import stacked
from pp4.verifier.vectorised import Verdicts

texts = []
for dtype in (torch.float32, torch.float64):
    texts += [one.ptx for one in fused.prime(5, device, dtype)]
found["loaded"], found["launched"] = [name for name, _, _ in loaded], len(launched)

allow = forbid_compilation(note)
driver.current = 1
for count, depth, vocabulary in ((1, 5, 160), (3, 4, 1008), (2, 6, 31), (1, 7, 1 << 18)):
    batch = stacked([None] * count, depth)
    room = torch.zeros(count * (depth + 1) * vocabulary + 1)
    for first in (0, 1):
        target = room[first : first + count * (depth + 1) * vocabulary]
        target = target.view(count, depth + 1, vocabulary)
        shapes = (count, (count, depth + 1), count)
        out = [torch.zeros(shape, dtype=torch.int32) for shape in shapes]
        fused.launch(target, batch, Verdicts(*out))
        fused.launch(target.double(), batch, Verdicts(*out))
found["after"], found["launches"], found["modules"] = list(seen), len(launched), len(loaded)
allow()

opcode = re.compile(r"^\\s+(?:@!?%\\w+ )?([a-z][\\w.]*)", re.M)
found["opcodes"] = [sorted(set(opcode.findall(text))) for text in texts]
found["spilled"] = [".local" in text for text in texts]
"""
ARITHMETIC = {"add", "sub", "mul", "fma", "mad", "div", "rcp", "sqrt", "ex2", "lg2", "neg", "abs"}


@pytest.fixture(scope="module")
def primed(tmp_path_factory):
    return said(PRIMED, tmp_path_factory.mktemp("primed"))


def test_whatever_is_launched_was_primed(primed):
    assert primed["loaded"] == ["scanned", "scanned", "finished"] * 2
    assert primed["launched"] == 0
    assert primed["after"] == []
    assert primed["launches"] == 4 * 2 * 2 * 2
    assert primed["modules"] == 6


def test_the_only_float_arithmetic_is_a_product(primed):
    for opcodes in primed["opcodes"]:
        floats = {one for one in opcodes if {"f32", "f64"} & set(one.split("."))}
        assert {one for one in floats if one.split(".")[0] in ARITHMETIC} <= {
            "mul.rn.f32",
            "mul.rn.f64",
        }
        assert not any("ftz" in one or "approx" in one for one in opcodes)
        # nothing that counts on an order
        assert not {"atom", "red"} & {one.split(".")[0] for one in opcodes}
        assert any(one.startswith("cvt.rzi.s64") for one in opcodes)
    assert not any(primed["spilled"])


def test_aligned_targets_are_read_in_words_of_sixteen_bytes(primed):
    aligned, other = primed["opcodes"][0], primed["opcodes"][1]
    assert "ld.global.v4.b32" in aligned
    assert "ld.global.v4.b32" not in other
    assert "ld.global.v2.b64" in primed["opcodes"][3]


# -- on a GPU ---------------------------------------------------------------------------------

_ON_A_GPU = """
import dataclasses, sys
import numpy as np
import torch
from pp4.kernels.loading import forbid_compilation
from pp4.verifier import fused, vectorised
from pp4.verifier.batch import stacked
from pp4.verifier.vectorised import Verdicts
from pp4.verifier.words import Word, Words
from tests.unit.verifier.test_vectorised import any_case, large

device = torch.device("cuda", 0)


def same(found, expected, what):
    for one in dataclasses.fields(Verdicts):
        mine, theirs = getattr(found, one.name).cpu(), getattr(expected, one.name).cpu()
        if not torch.equal(mine, theirs):
            sys.exit(f"{what}: {one.name} {mine.tolist()} instead of {theirs.tolist()}")


for dtype in (np.float32, np.float64):
    for seed in range(20):
        # words near what decides; they make a binary of their own
        case = any_case(seed, 12, 3, 200, dtype)
        p, batch = torch.from_numpy(case.p), stacked(case.proposals, 3)
        there = Words(*(Word(one.high.cuda(), one.low.cuda()) for one in (
            case.words().accept, case.words().last)))
        found = vectorised.verify(p.cuda(), stacked(case.proposals, 3, device), there)
        same(found, vectorised.by_operators(p, batch, case.words()), f"words of {seed}")
for dtype in (torch.float32, torch.float64):
    fused.prime(3, device, dtype)
fused.prime(2, device)


def refuse(name, key):
    sys.exit(f"compiled after priming: {name}")


forbid_compilation(refuse)


def both(p, proposals, depth, what):
    target, batch = p.to(device), stacked(proposals, depth, device)
    expected = vectorised.by_operators(p, stacked(proposals, depth))
    same(vectorised.by_operators(target, batch), expected, f"{what}, operators")
    torch.cuda.set_sync_debug_mode("error")
    found = vectorised.verify(target, batch)
    torch.cuda.set_sync_debug_mode("default")
    same(found, expected, what)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        again = vectorised.verify(target, batch)
    for one in dataclasses.fields(Verdicts):
        getattr(again, one.name).fill_(0x5A5A)
    graph.replay()
    torch.cuda.synchronize()
    same(again, expected, f"{what}, in a graph")


for seed, vocabulary in enumerate((1, 31, 150, 1000, 4096, 4097, 20000, 64)):
    for dtype in (np.float32, np.float64):
        case = any_case(seed, 12, 3, vocabulary, dtype)
        p = np.concatenate([case.p, np.full_like(case.p[:1], np.nan)])
        both(torch.from_numpy(p), [*case.proposals, None], 3, f"V = {vocabulary}, {dtype}")
proposals, p = large()
both(p, proposals, 2, "the largest vocabulary")
"""


@pytest.mark.gpu
def test_on_a_gpu(tmp_path):
    done = compiling.python(["-c", _ON_A_GPU], tmp_path)
    assert done.returncode == 0, done.stderr
