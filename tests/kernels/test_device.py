"""The device functions one by one, in small kernels of their own."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st

from pp4.kernels import dyadic24, reference
from pp4.kernels.device import bf16, bitonic, markov, panels, tickets
from pp4.kernels.geometry import Geometry
from pp4.kernels.head import paired, patterns
from pp4.kernels.head import panels as laid_out
from pp4.kernels.philox import philox4x32_10

TABLE = json.loads((Path(__file__).parents[1] / "vectors" / "bf16.json").read_text("utf-8"))
ALL = np.arange(1 << 16)


def finite(bits):
    return (bits & 0x7FFF) < 0x7F80


@triton.jit
def _round(values, out, N: tl.constexpr):
    place = tl.arange(0, N)
    tl.store(out + place, bf16.round_to_bf16(tl.load(values + place)))


@triton.jit
def _describe(patterns, image, value, bad, fine, N: tl.constexpr):
    place = tl.arange(0, N)
    pattern = tl.load(patterns + place)
    key = bf16.image(pattern)
    tl.store(image + place, key)
    tl.store(value + place, bf16.value_of(key))
    tl.store(bad + place, bf16.is_bad(pattern).to(tl.int32))
    tl.store(fine + place, bf16.is_finite(pattern).to(tl.int32))


@triton.jit
def _top(words, out, N: tl.constexpr):
    tl.store(out + tl.arange(0, 32), bitonic.top32(tl.load(words + tl.arange(0, N)), N))


@triton.jit
def _union(falling, rising, out):
    place = tl.arange(0, 32)
    tl.store(out + place, bitonic.union32(tl.load(falling + place), tl.load(rising + place)))


@triton.jit
def _allocate(values, used, ticket, out, chosen):
    place = tl.arange(0, 32)
    found = tl.load(values + place)
    count = tickets.allocate(found, tl.load(used + place) != 0, tl.load(values))
    tl.store(out + place, count)
    tl.store(chosen, tickets.draw(count, tl.load(ticket)))


@triton.jit
def _philox(key, counter, out):
    a, b, c, d = tl.philox(
        tl.load(key), tl.load(counter), tl.load(counter + 1), tl.load(counter + 2), 0
    )
    tl.store(out, a.to(tl.int32, bitcast=True))
    tl.store(out + 1, b.to(tl.int32, bitcast=True))
    tl.store(out + 2, c.to(tl.int32, bitcast=True))
    tl.store(out + 3, d.to(tl.int32, bitcast=True))


@triton.jit
def _bias(w1, w2, out, N: tl.constexpr, RANK_DIM: tl.constexpr):
    column = tl.arange(0, N)
    tl.store(out + column, markov.bias(w1, w2, column, column >= 0, RANK_DIM))


@triton.jit
def _bias_of_two(one, two, w2, out, N: tl.constexpr, WORDS: tl.constexpr):
    column = tl.arange(0, N)
    first, second = panels.bias(one, two, w2, N, WORDS)
    tl.store(out + column, first)
    tl.store(out + N + column, second)


def test_rounding_table_with_every_nan():
    bits = np.zeros(256, np.uint32)
    bits[: len(TABLE)] = [int(value, 16) for value, _ in TABLE]
    out = torch.zeros(256, dtype=torch.int32)
    _round[(1,)](torch.from_numpy(bits.view(np.float32)), out, N=256)
    assert out[: len(TABLE)].tolist() == [int(pattern, 16) for _, pattern in TABLE]


def test_images_rise_with_the_value_and_come_back():
    out = [torch.zeros(1 << 16, dtype=torch.int32) for _ in range(3)]
    value = torch.zeros(1 << 16)
    every = torch.from_numpy(ALL.astype(np.int32))
    _describe[(1,)](every, out[0], value, out[1], out[2], N=1 << 16)
    image, bad, fine = (tensor.numpy() for tensor in out)
    plain = finite(ALL)
    values = (ALL.astype(np.uint32) << 16).view(np.float32)
    order = np.argsort(values[plain], kind="stable")
    keys, sorted_values = image[plain][order], values[plain][order]
    # image and value rise together, and -0 shares the image of +0
    assert ((np.diff(keys) > 0) == (np.diff(sorted_values) > 0)).all()
    assert image[0x8000] == image[0x0000]
    assert (image[plain].min(), image[plain].max()) == (0x80, 0xFF7F)
    back = values[plain] + np.float32(0)
    assert value.numpy()[plain].tobytes() == back.tobytes()
    assert (fine != 0).tolist() == plain.tolist()
    assert (bad != 0).tolist() == (np.isnan(values) | np.isposinf(values)).tolist()


@pytest.mark.parametrize("width", [1, 2, 4, 16, 32, 64, 256])
def test_the_bias_is_summed_in_the_order_of_the_tree(width):
    # large terms that cancel and small ones that the large absorb, unless they meet first
    random = np.random.default_rng(width)
    large = [2.0**24, -(2.0**24)] * (width // 4)
    terms = np.float32([*large, *random.choice([1, 3, -1], width - len(large))])
    w1 = random.choice(np.float32([1, -1]), width)
    w2 = random.permuted(np.tile(terms, (64, 1)), axis=1) * w1
    out = torch.zeros(64, dtype=torch.int32)
    _bias[(1,)](patterns(w1), patterns(w2), out, N=64, RANK_DIM=width)
    expected = reference.markov_bias(w1, w2)
    assert out.tolist() == (expected.view(np.uint32) >> 16).tolist()
    # and by words of two places, for a second row beside it
    words = paired(patterns(np.stack([w1, -w1])))
    both = torch.zeros(2, 64, dtype=torch.int32)
    laid = laid_out(patterns(w2), Geometry(vocab=128, split=64, tile=64, rank_dim=width))
    _bias_of_two[(1,)](words[0], words[1], laid[0], both, N=64, WORDS=words.shape[1])
    assert both[0].tolist() == out.tolist()
    negative = reference.markov_bias(-w1, w2)
    assert both[1].tolist() == (negative.view(np.uint32) >> 16).tolist()
    if width > 2:
        neighbours = np.arange(width).reshape(2, -1).T.ravel()
        other = reference.markov_bias(w1[neighbours], w2[:, neighbours])
        assert other.tolist() != expected.tolist()


@pytest.mark.parametrize("size", [32, 64, 128, 512])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_top_of_any_size_with_zeros_in_it(size, dtype):
    random = np.random.default_rng(size)
    top = 1 << (30 if dtype == torch.int32 else 61)
    words = random.integers(1, top, size) * (random.random(size) < 0.3)
    out = torch.zeros(32, dtype=dtype)
    _top[(1,)](torch.from_numpy(words).to(dtype), out, N=size)
    assert out.tolist() == sorted(words.tolist(), reverse=True)[:32]


@given(st.integers(0, 2**32), st.integers(0, 32), st.integers(0, 32))
@settings(max_examples=15)
def test_union_of_two_lists(seed, left, right):
    words = np.random.default_rng(seed).choice(1 << 40, 64, replace=False) + 1
    falling = np.sort(np.where(np.arange(32) < left, words[:32], 0))[::-1].copy()
    rising = np.sort(np.where(np.arange(32) < right, words[32:], 0))
    out = torch.zeros(32, dtype=torch.int64)
    _union[(1,)](torch.from_numpy(falling), torch.from_numpy(rising), out)
    assert out.tolist() == sorted([*falling, *rising], reverse=True)[:32]


values = st.lists(
    st.integers(0, 0xFFFF).filter(lambda p: finite(p) and p != 0x8000), min_size=1, max_size=32
)


@given(values, st.integers(0, 31), st.integers(-1, 1), st.booleans())
@settings(max_examples=60)
def test_tickets_and_draw_equal_the_definition(bits, border, beside, near):
    if near:
        bits = [pattern & 0x80FF | 0x4000 for pattern in bits]
    row = np.sort((np.array(bits, np.uint32) << 16).view(np.float32))[::-1]
    padded = torch.full((32,), float("nan"))
    padded[: len(row)] = torch.from_numpy(row.copy())
    used = (torch.arange(32) < len(row)).to(torch.int32)
    expected = dyadic24.allocate([float(value) for value in row])
    # a ticket at the border between two candidates, and the ones beside it
    ticket = (sum(expected[:border]) + beside) % dyadic24.TICKETS
    out, chosen = torch.zeros(32, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    _allocate[(1,)](padded, used, torch.tensor([ticket], dtype=torch.int32), out, chosen)
    assert tuple(out.tolist()) == expected + (0,) * (32 - len(row))
    assert chosen.item() == dyadic24.draw(expected, ticket)


@pytest.mark.parametrize(
    ("key", "counter"),
    [(0, (0, 0, 0)), (2**64 - 1, (2**32 - 1,) * 3), (0x299F31D0A4093822, (7, 3, 1))],
)
def test_philox_equals_the_reference(key, counter):
    words = torch.zeros(4, dtype=torch.int32)
    _philox[(1,)](
        torch.from_numpy(np.array([key], np.uint64).view(np.int64)),
        torch.from_numpy(np.array(counter, np.uint32).view(np.int32)),
        words,
    )
    expected = philox4x32_10((*counter, 0), (key & 0xFFFFFFFF, key >> 32))
    assert tuple(words.numpy().view(np.uint32).tolist()) == expected
