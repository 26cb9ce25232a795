"""The vectorised reference equals the exact one, byte for byte."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from pp4.kernels import reference, vectorised
from pp4.kernels.block import Request
from pp4.kernels.faults import Fault
from pp4.kernels.head import patterns
from pp4.kernels.reference import Selection
from pp4.kernels.sampled_fused import GREEDY, INACTIVE, SAMPLED
from tests.kernels.cases import from_patterns, normal
from tests.kernels.test_solo import BAD, EDGES, GOOD, MASKED, ONE, row, scattered

TABLE = json.loads((Path(__file__).parents[1] / "vectors" / "bf16.json").read_text("utf-8"))

WORD = 2**32 - 1
words = st.integers(0, WORD) | st.sampled_from([0, 1, 2**31 - 1, 2**31, WORD])
keys = st.integers(0, 2**64 - 1) | st.sampled_from([0, 1, 2**63 - 1, 2**63, 2**64 - 1])
modes = st.sampled_from([SAMPLED, SAMPLED, GREEDY, INACTIVE])
requests = st.builds(Request, mode=modes, key=keys, position=words, round=words)
any_pattern = st.integers(0, 0xFFFF)
fine_pattern = any_pattern.filter(lambda p: (p & 0x7FFF) < 0x7F80)
edge_pattern = st.sampled_from([MASKED, 0, 0x8000, ONE, 0x7F7F, 0xFF7F, 1, 0x8001, 0x007F, 0x0080])
palettes = st.lists(fine_pattern | edge_pattern, min_size=1, max_size=200)
spoilt = st.lists(any_pattern | edge_pattern, min_size=1, max_size=4)


def word_tensors(wanted):
    """Key, position and round of requests as the int64 tensors of the module."""
    return {
        "key": torch.from_numpy(np.array([one.key for one in wanted], np.uint64).view(np.int64)),
        "position": torch.tensor([one.position for one in wanted]),
        "round": torch.tensor([one.round for one in wanted]),
    }


def mode_tensor(wanted):
    return torch.tensor([one.mode for one in wanted], dtype=torch.int32)


def unsigned(values):
    """float32 that holds BF16 -> int32 patterns 0..0xFFFF."""
    return patterns(np.stack(values)).to(torch.int32) & 0xFFFF


def exact(values, request):
    if request.mode == INACTIVE:
        return Selection((0,) * 32, (0,) * 32, (0.0,) * 32, 0, Fault.NONE)
    return reference.select_row(
        values, key=request.key, position=request.position, round=request.round,
        greedy=request.mode == GREEDY,
    )  # fmt: skip


def check_rows(values, wanted, rows=None):
    """Every output of ``select`` has the dtype and the bytes of the exact reference."""
    if rows is None:
        rows = vectorised.select(unsigned(values), mode=mode_tensor(wanted), **word_tensors(wanted))
    expected = [exact(*pair) for pair in zip(values, wanted, strict=True)]
    for name in ("ids", "tickets", "q", "token", "error"):
        dtype = np.float32 if name == "q" else np.int32
        line = np.array([getattr(one, name) for one in expected], dtype)
        found = getattr(rows, name).cpu().numpy()
        assert found.dtype == dtype
        assert found.shape == line.shape
        assert found.tobytes() == line.tobytes(), name
    return expected


@pytest.mark.parametrize("mode", [SAMPLED, GREEDY, INACTIVE])
@pytest.mark.parametrize("name", [*GOOD, *BAD, "empty"])
def test_every_named_row(name, mode):
    values = {**GOOD, **BAD, "empty": row(fill=MASKED)}[name]
    wanted = [Request(mode=mode, key=2**63 + 5, position=7, round=3)]
    (found,) = check_rows([values], wanted)
    if mode != INACTIVE:
        bad, empty = name in BAD, name == "empty"
        assert found.error == (Fault.BAD_LOGITS if bad else Fault.EMPTY_ROW if empty else 0)


def test_rows_of_every_kind_do_not_change_their_neighbours():
    rows = [one for one in [*GOOD.values(), *BAD.values(), row(fill=MASKED)] if len(one) == 70]
    for shift in range(3):
        wanted = [
            Request(mode=(place + shift) % 3, key=place << 58, position=place, round=1)
            for place in range(len(rows))
        ]
        check_rows(rows, wanted)


@given(
    st.lists(st.tuples(palettes | spoilt, requests), min_size=1, max_size=4),
    st.integers(33, 700),
    st.integers(0, 2**32),
)
def test_any_rows(batch, vocab, seed):
    rows = [scattered(vocab, one, seed + place) for place, (one, _) in enumerate(batch)]
    check_rows(rows, [request for _, request in batch])


@given(palettes | spoilt, st.integers(1, 33), requests)
def test_fewer_columns_than_places(palette, vocab, request):
    check_rows([scattered(vocab, palette)], [request])


@given(st.integers(0, 2**32), st.integers(33, 700), st.floats(0.01, 30))
def test_ties_across_the_last_place(seed, vocab, scale):
    # the coarser the values, the more of them share the place between the 32nd and the 33rd
    rows = [np.round(normal(seed, vocab, scale=scale)), normal(seed + 1, vocab, scale=scale)]
    check_rows(rows, [Request(key=seed + 1, position=2, round=9)] * 2)


@pytest.mark.parametrize("name", EDGES)
def test_counters_at_their_edges(name):
    check_rows([row(), GOOD["every value another"]], [EDGES[name]] * 2)


def test_counter_words_that_travel_as_signed_words():
    wanted = [Request(key=1, position=WORD, round=2**31)]
    signed = {
        **word_tensors(wanted),
        "position": torch.tensor([-1]),
        "round": torch.tensor([-(2**31)]),
    }
    rows = vectorised.select(unsigned([row()]), mode=mode_tensor(wanted), **signed)
    check_rows([row()], wanted, rows)


@pytest.mark.parametrize("word", [-1, 1 << 16, 0x3F80 - (1 << 16), -(2**31), 2**31 - 1])
def test_a_word_that_is_no_pattern_spoils_its_row(word):
    logits = unsigned([row(), row()])
    logits[1, 40] = word
    wanted = [Request(key=4)] * 2
    rows = vectorised.select(logits, mode=mode_tensor(wanted), **word_tensors(wanted))
    assert rows.error.tolist() == [0, Fault.BAD_LOGITS]


def test_the_rounding_table():
    bits = np.array([int(text, 16) for text, _ in TABLE], np.uint32).view(np.float32)
    found = vectorised._rounded(torch.from_numpy(bits.copy()))
    assert found.tolist() == [int(text, 16) for _, text in TABLE]


@given(st.lists(any_pattern, min_size=1, max_size=3))
@settings(max_examples=20)
def test_conditioned_logits_for_every_base(biases):
    base = from_patterns(np.arange(1 << 16))
    biases = [np.full(1 << 16, from_patterns(one), np.float32) for one in biases]
    found = vectorised.conditioned(
        patterns(np.stack([base] * len(biases))), patterns(np.stack(biases))
    )
    expected = [reference.conditioned(base, bias).view(np.uint32) >> 16 for bias in biases]
    assert found.dtype == torch.int32
    assert found.numpy().tobytes() == np.stack(expected).astype(np.int32).tobytes()


weights = st.lists(
    st.sampled_from([ONE, 0, 0x8000, 1, 0x8001, 0x0080, 0x7F7F, 0xFF80, 0x7F80, 0x7F81, 0xFFFF])
    | any_pattern,
    max_size=6,
)


@given(
    st.integers(0, 2**32),
    st.integers(1, 5),
    st.integers(1, 90),
    st.sampled_from([1, 2, 4, 32, 256]),
    weights,
    st.sampled_from([1, 100, 5000, vectorised.PRODUCTS]),
)
def test_any_weights(seed, count, vocab, width, extreme, chunk):
    random = np.random.default_rng(seed)
    w1, w2 = normal(seed, count, width), normal(seed + 1, vocab, width, scale=2.0**-3)
    for pattern in extreme:
        w1[random.integers(count), random.integers(width)] = from_patterns(pattern)
        w2[random.integers(vocab, size=3), random.integers(width, size=3)] = from_patterns(pattern)
    found = vectorised.markov_bias(patterns(w1), patterns(w2), chunk)
    expected = patterns(np.stack([reference.markov_bias(one, w2) for one in w1]))
    assert found.dtype == torch.int16
    assert found.numpy().tobytes() == expected.numpy().tobytes()


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_the_production_shape(device):
    vocab, width = 129280, 256
    w1, w2 = normal(1, 2, width), normal(2, vocab, width, scale=0.1)
    base = normal(3, 2, vocab, scale=3.0)
    bias = vectorised.markov_bias(patterns(w1, device), patterns(w2, device))
    logits = vectorised.conditioned(patterns(base, device), bias)
    exact_bias = np.stack([reference.markov_bias(one, w2) for one in w1])
    assert bias.cpu().numpy().tobytes() == patterns(exact_bias).numpy().tobytes()
    values = list(reference.conditioned(base, exact_bias))
    assert logits.cpu().numpy().tobytes() == unsigned(values).numpy().tobytes()
    wanted = [Request(key=2**64 - 3, position=2**31 - 1, round=WORD), Request(key=5, mode=GREEDY)]
    counters = {name: words.to(device) for name, words in word_tensors(wanted).items()}
    rows = vectorised.select(logits, mode=mode_tensor(wanted).to(device), **counters)
    check_rows(values, wanted, rows)


class Ledger(TorchDispatchMode):
    """Records the bytes of the largest result of an operator."""

    def __init__(self):
        super().__init__()
        self.largest = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            self.largest = max(self.largest, result.numel() * result.element_size())
        return result


def test_no_temporary_of_the_tree_exceeds_its_chunk():
    # tensors without storage: shapes alone, of the production size
    w1, w2 = (torch.empty(n, 256, dtype=torch.int16, device="meta") for n in (32, 129280))
    with Ledger() as ledger:
        assert vectorised.markov_bias(w1, w2).shape == (32, 129280)
    assert 2**27 < ledger.largest <= 4 * vectorised.PRODUCTS
