"""The target's logits and features against a naive one without a cache."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.engine.target.checkpoints import SMALL, UNTIED, random_tensors, target_of
from tests.unit.engine.target.naive import Naive
from tests.unit.engine.target.stepping import Piece, one_by_one, run, tokens_of

# Weights are float64 there: what is left are angles and logits of FP32, and the grid of the exact
# products, half a step of which is 2^-19.
CLOSE = {"rtol": 2e-4, "atol": 2e-4}


@st.composite
def targets(draw):
    kv_heads = draw(st.integers(1, 3))
    return replace(
        SMALL,
        hidden=draw(st.sampled_from([8, 12, 20])),
        layers=draw(st.integers(1, 3)),
        kv_heads=kv_heads,
        heads=kv_heads * draw(st.integers(1, 3)),
        head_dim=draw(st.sampled_from([2, 4, 6])),
        intermediate=draw(st.integers(1, 9)),
        norm_eps=draw(st.sampled_from([1e-6, 1e-2])),
        rope_theta=draw(st.sampled_from([100.0, 1e6])),
        vocab=draw(st.integers(2, 40)),
        tied=draw(st.booleans()),
    )


def wide(outputs, taps):
    return np.concatenate([outputs[tap] for tap in taps], axis=1)


def distance(found, expected):
    """Length of the difference, as a part of the length of what was expected."""
    return np.linalg.norm(found.numpy() - expected) / np.linalg.norm(expected)


@settings(max_examples=25)
@given(targets(), st.integers(0, 1000), st.integers(0, 9), st.integers(1, 8), st.data())
def test_logits_and_features_are_those_of_the_naive_target(config, seed, prompt, stepped, data):
    layers = st.sets(st.integers(-1, config.layers - 1), min_size=1)
    taps = tuple(sorted(data.draw(layers)))
    target = target_of(config, seed, taps=taps, slots=2, context=20, dtype=torch.float64)
    tokens = tokens_of(prompt + stepped, config.vocab, seed)
    half = Piece(stepped // 2, tail=(0,) * (6 - stepped // 2))
    cut = [half, Piece(stepped - half.kept)] if half.kept else one_by_one(stepped)
    logits, features = run(target, tokens, prompt, cut, slot=seed % 2)
    expected, outputs = Naive(config, random_tensors(config, seed)).run(tokens)
    np.testing.assert_allclose(logits.numpy(), expected[prompt:], **CLOSE)
    np.testing.assert_allclose(features.numpy(), wide(outputs, taps), **CLOSE)
    assert target.width == features.shape[1]


def test_a_prompt_of_more_than_one_window_is_the_naive_targets():
    target = target_of(SMALL, context=150, dtype=torch.float64)
    tokens = tokens_of(140, SMALL.vocab)
    features = target.prefill(1, tokens)
    _, outputs = Naive(SMALL, random_tensors(SMALL)).run(tokens)
    np.testing.assert_allclose(features.numpy(), wide(outputs, (0, 1, 3)), **CLOSE)


@pytest.mark.parametrize("config", [SMALL, UNTIED])
def test_in_bf16_it_stays_near_the_naive_target(config):
    target, tokens = target_of(config), tokens_of(40, config.vocab)
    logits, features = run(target, tokens, 20, one_by_one(20))
    assert (logits.dtype, features.dtype) == (torch.float32, torch.bfloat16)
    expected, outputs = Naive(config, random_tensors(config)).run(tokens)
    # Each of some thirty roundings in a row is off by at most 2^-9 of a value, and they are not of
    # one mind: 2^-9 * sqrt(30), and as much again.
    assert distance(features.float(), wide(outputs, (0, 1, 3))) < 0.022
    assert distance(logits, expected[20:]) < 0.022
    assert expected.std() > 1


def test_a_prompt_leaves_what_steps_leave_but_for_roundings():
    """Windows of another height are GEMMs of another height, which may round otherwise."""
    tokens, target = tokens_of(40, SMALL.vocab), target_of(SMALL)
    logits, features = run(target, tokens, 0, one_by_one(40))
    part, others = run(target, tokens, 30, one_by_one(10), slot=1)
    assert distance(others.float(), features.float().numpy()) < 0.022
    assert distance(part, logits[30:].numpy()) < 0.022


def test_features_are_those_of_each_layer_by_itself():
    tokens = tokens_of(9, SMALL.vocab)
    together = target_of(SMALL, taps=(-1, 0, 2, 3)).prefill(0, tokens)
    apart = [target_of(SMALL, taps=(tap,)).prefill(0, tokens) for tap in (-1, 0, 2, 3)]
    assert torch.equal(together, torch.cat(apart, dim=1))
    embedding = random_tensors(SMALL)["model.embed_tokens.weight"]
    assert torch.equal(apart[0], embedding[tokens])


def test_what_comes_before_counts_and_its_order_does():
    tokens, target = tokens_of(12, SMALL.vocab), target_of(SMALL)
    logits, _ = run(target, tokens, 11, one_by_one(1))
    for place in range(11):
        other = list(tokens)
        other[place] = (other[place] + 1) % SMALL.vocab
        assert not torch.equal(run(target, other, 11, one_by_one(1))[0], logits)
    assert not torch.equal(run(target, [*tokens[10::-1], tokens[11]], 11, one_by_one(1))[0], logits)


def test_an_empty_prompt_has_no_features():
    features = target_of(SMALL).prefill(0, [])
    assert (features.shape, features.dtype) == ((0, 48), torch.bfloat16)
