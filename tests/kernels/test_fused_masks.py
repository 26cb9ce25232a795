"""Rows that the verifier's kernels mask: their neighbours are as without them."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings

from pp4.verifier import fused
from pp4.verifier.batch import stacked
from pp4.verifier.device import words
from pp4.verifier.flaws import Flaw
from pp4.verifier.fused import Tiling
from pp4.verifier.proposal import validated
from pp4.verifier.units import Mode
from tests.kernels.verifying import agrees, launched, seeds
from tests.unit.verifier.cases import MODES, any_fields, any_probabilities, proposal
from tests.unit.verifier.test_masks import DAMAGE
from tests.unit.verifier.test_vectorised import sound_case

# -- rows that are masked ---------------------------------------------------------------------


@pytest.mark.parametrize(("flaw", "damage"), DAMAGE)
def test_a_damaged_row_is_masked(flaw, damage):
    proposals, p = sound_case()
    batch = stacked(proposals, 2)
    damage(batch)
    assert agrees(torch.from_numpy(p), batch).error.tolist() == [0, flaw, 0]


@pytest.mark.parametrize("token", [-1, -(2**31), 12, 2**31 - 1])
@pytest.mark.parametrize("mode", [Mode.GREEDY_T0, Mode.DELTA])
def test_a_token_that_there_is_not(mode, token):
    """It is not looked up: so far outside no memory is."""
    one = proposal(mode, None, [3, 3], 12)
    batch = stacked([one, one, one], 2)
    batch.tokens[1, 1] = token
    found = agrees(torch.full((3, 3, 12), 1 / 12), batch)
    assert found.error.tolist() == [0, Flaw.TOKEN, 0]


@pytest.mark.parametrize("word", [-1, -(2**63), 2**32 - 2, 2**32, 2**63 - 1])
@pytest.mark.parametrize("name", ["position", "round"])
def test_a_counter_that_does_not_fit(name, word):
    proposals, p = sound_case()
    batch = stacked(proposals, 2)
    getattr(batch, name)[1] = word
    fits = name == "round" and word == 2**32 - 2
    flaw = Flaw.NONE if fits else Flaw.COUNTER
    assert agrees(torch.from_numpy(p), batch).error.tolist() == [0, flaw, 0]


@settings(max_examples=12)
@given(seeds)
def test_any_damage(seed):
    random = np.random.default_rng(seed)
    batch = stacked([validated(**any_fields(random, 12, 3, mode)) for mode in MODES], 3)
    for _ in range(random.integers(1, 4)):
        member = (batch.ids, batch.tickets, batch.tokens, batch.mode)[random.integers(4)]
        values = [-1, 0, 1, 5, 12, 2**24, 2**31 - 1, -(2**31), int(random.integers(12))]
        member.view(-1)[int(random.integers(member.numel()))] = int(random.choice(values))
    p = np.stack([any_probabilities(random, 12) for _ in range(12)]).reshape(3, 4, 12)
    agrees(torch.from_numpy(p), batch)


@pytest.mark.parametrize("first", [0, 15, 31])
def test_twice_is_seen_at_any_distance(first):
    rows_ = [dict.fromkeys(range(32), 1 << 19)]
    one = proposal(Mode.SAMPLED, rows_, [7], 40)
    damaged, distances = [], (0, 1, 2, 15, 16, 17, 30, 31)
    for distance in distances:
        ids = one.ids.copy()
        ids[0, (first + distance) % 32] = ids[0, first]
        damaged.append(dataclasses.replace(one, ids=ids, tokens=ids[0, first : first + 1]))
    found = agrees(torch.full((8, 2, 40), 1 / 40), stacked(damaged, 1))
    assert found.error.tolist() == [Flaw.NONE] + [Flaw.DISTINCT] * 7


UNSOUND = [np.nan, -1e-9, -np.inf, np.inf, 1.5, 2.0, 1e30, -1e-45]


@pytest.mark.parametrize("value", UNSOUND)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_row_without_a_distribution_is_masked(value, dtype):
    batch = stacked([proposal(Mode.DELTA, None, [1, 2], 40)] * 5, 2)
    p = torch.zeros(5, 3, 40, dtype=dtype)
    p[:, :, 20] = 1  # without the one that is none, the others are a distribution
    for row, (place, tokens) in enumerate([(0, 0), (1, 17), (2, 39), (0, slice(None))], 1):
        p[row, place, tokens] = value
    assert agrees(p, batch).error.tolist() == [0] + [Flaw.TARGET] * 4


def test_a_negative_zero_is_zero():
    p = torch.full((1, 2, 3), -0.0)
    p[:, :, 1] = 1
    assert agrees(p, stacked([proposal(Mode.DELTA, None, [1], 3)], 1)).error.tolist() == [0]


@pytest.mark.parametrize("total", [0.0, 0.5, 1 - 2.0**-13, 1 + 2.0**-13, 3.0, 150.0])
def test_a_sum_that_is_off(total):
    p = torch.full((1, 2, 150), total / 150, dtype=torch.float64)
    batch = stacked([proposal(Mode.DELTA, None, [0], 150)], 1)
    assert agrees(p, batch).error.tolist() == [Flaw.TARGET]


def test_a_sum_that_wraps():
    p = torch.zeros(1, 2, 1 << 17)
    p[0, 0, : (1 << 16) + 1] = 1
    p[0, 1, 0] = 1
    batch = stacked([proposal(Mode.DELTA, None, [0], 1 << 17)], 1)
    assert agrees(p, batch, tiling=fused.TILING).error.tolist() == [Flaw.TARGET]


@pytest.mark.parametrize("tiling", [Tiling(16, 4, 64), Tiling(16, 4, 128)])
def test_every_tile_weighs_too_much(tiling):
    """Sums of tiles are added in words of 32 bits."""
    p = torch.ones(1, 2, tiling.tile * tiling.tiles)
    batch = stacked([proposal(Mode.DELTA, None, [0], p.shape[2])], 1)
    assert agrees(p, batch, tiling=tiling).error.tolist() == [Flaw.TARGET]


def test_a_largest_that_cannot_give_what_is_too_much():
    column = torch.full((1 << 18,), 2.0**-18 * (1 + 2.0**-15), dtype=torch.float64)
    batch = stacked([proposal(Mode.DELTA, None, [0], 1 << 18)], 1)
    found = agrees(column.expand(1, 2, -1), batch, tiling=fused.TILING)
    assert found.error.tolist() == [Flaw.TARGET]


def test_a_row_without_a_proposal_means_nothing():
    proposals, p = sound_case()
    p[1] = np.nan
    batch = stacked([proposals[0], None, proposals[2]], 2)
    batch.ids[1], batch.tokens[1], batch.position[1] = 2**31 - 1, -(2**31), -1
    found = agrees(torch.from_numpy(p), batch)
    assert found.error.tolist() == [0, 0, 0]
    assert found.tokens[1].tolist() == [-1] * 3


def test_nothing_left_after_a_rejection_is_an_internal_error(monkeypatch):
    """Which only a wrong comparison can bring about."""
    proposals, p = sound_case()
    p[1] = 0
    p[1][:, [7, 2, 9]] = [0.5, 0.25, 0.25]
    # the first token of a row and not the second
    monkeypatch.setattr(words, "accepts", lambda u, weight, tickets: tickets > 1 << 22)
    found = launched(torch.from_numpy(p), stacked(proposals, 2))
    assert found.error.tolist() == [0, Flaw.RESIDUAL, 0]
    assert found.accepted.tolist() == [1, 0, 1]
    assert found.tokens[1].tolist() == [-1] * 3
