"""Inputs of a case: equal bytes everywhere, weights that repeat, and exactly the asked-for flaw."""

import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from pp4.config import child_environment
from pp4.kernels import reference
from pp4.kernels.geometry import WIDTH, Geometry
from pp4.kernels.head import Head, values_of
from pp4.wire.facts import Case, Shape
from pp4.worker import inputs
from tests.unit.worker.owners import SHAPE

ROOT = Path(__file__).parents[3]
CPU = torch.device("cpu")
SMALL = inputs.geometry_of(Shape(**SHAPE))
LONG = Geometry(vocab=1100, split=600, tile=64, rank_dim=8)
"""More than two periods of the weights."""
PERIOD = 512
CONTENTS = ("random", "constant", "tile-ties", "shard-ties", "two-finite", "extremes")


def case(batch=2, n_out=2, seed=5, modes=None, **more):
    return Case(batch=batch, n_out=n_out, seed=seed, modes=modes or (1,) * batch, **more)


def base(given, geometry=SMALL):
    return inputs.logits(geometry, given, CPU)


def values(given, geometry=SMALL):
    return values_of(base(given, geometry))


# -- seeds ----------------------------------------------------------------------------------


@pytest.mark.parametrize("content", CONTENTS)
def test_equal_seeds_give_equal_bytes(content):
    one, other = (base(case(content=content)) for _ in range(2))
    assert one.dtype is torch.int16
    assert one.shape == (2, 2, SMALL.vocab)
    assert torch.equal(one, other)
    assert one.data_ptr() != other.data_ptr()


@pytest.mark.parametrize("content", ["random", "extremes"])
def test_other_seeds_give_other_logits(content):
    found = {base(case(content=content, seed=seed)).numpy().tobytes() for seed in range(20)}
    assert len(found) == 20


def test_rows_and_positions_differ():
    rows = base(case(batch=3, n_out=3)).reshape(9, -1).tolist()
    assert len(set(map(tuple, rows))) == 9


def test_requests_follow_from_the_seed_and_differ_in_every_row():
    one, other = inputs.requests(SMALL, case(batch=3)), inputs.requests(SMALL, case(batch=3))
    assert one == other
    assert one != inputs.requests(SMALL, case(batch=3, seed=6))
    for name in ("key", "position", "round"):
        assert len({getattr(request, name) for request in one}) == 3
    modes = [request.mode for request in inputs.requests(SMALL, case(batch=3, modes=(0, 2, 1)))]
    assert modes == [0, 2, 1]


def test_what_is_done_to_a_row_changes_nothing_of_its_request():
    plain, spoilt = (inputs.requests(SMALL, case(**more)) for more in ({}, {"flaw": "nan"}))
    assert plain == spoilt
    greedy = inputs.requests(SMALL, case(modes=(2, 1)))
    assert [one.key for one in greedy] == [one.key for one in plain]


DIGEST = """
import torch
from tests.unit.worker import test_inputs
print(test_inputs.digest())
"""


def digest():
    """Over everything that a rank makes for itself."""
    total = hashlib.sha256()
    tensors = [*inputs.weights(LONG, CPU), inputs.bias_rows(LONG, CPU)]
    tensors += [base(case(content=content), LONG) for content in CONTENTS]
    tensors += [inputs.head(LONG, "mixed", (0, 1), CPU).slot_of]
    for tensor in tensors:
        total.update(tensor.numpy().tobytes())
    total.update(repr(inputs.requests(LONG, case(batch=3))).encode())
    return total.hexdigest()


def test_another_process_makes_the_same():
    done = subprocess.run(
        [sys.executable, "-c", DIGEST],
        env=child_environment({"PYTHONPATH": str(ROOT), "TRITON_INTERPRET": "1"}),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == digest()


# -- weights and caches ---------------------------------------------------------------------


def test_rows_of_the_first_weights_repeat_and_every_fourth_is_zero():
    w1, w2 = inputs.weights(LONG, CPU)
    assert (w1.shape, w2.shape) == ((1100, 8), (1100, 8))
    assert (w1.dtype, w2.dtype) == (torch.int16, torch.int16)
    assert torch.equal(w1[PERIOD:], w1[: 1100 - PERIOD])
    zero = ~w1.bool().any(1)
    assert zero.nonzero().ravel().tolist() == list(range(0, 1100, 4))
    # the others are all different, and those of the second weights do not repeat
    distinct = {tuple(row) for row in w1[:PERIOD].tolist()}
    assert len(distinct) == PERIOD - PERIOD // 4 + 1
    assert len({tuple(row) for row in w2.tolist()}) == 1100


def test_a_small_vocabulary_has_no_second_period():
    w1, _ = inputs.weights(SMALL, CPU)
    assert w1.shape == (67, 8)
    assert inputs.bias_rows(SMALL, CPU).shape == (67, 67)


@pytest.mark.parametrize("geometry", [SMALL, LONG])
def test_bias_rows_are_those_of_the_tree_for_every_token(geometry):
    w1, w2 = (values_of(one) for one in inputs.weights(geometry, CPU))
    bias_of = inputs.bias_of(geometry, CPU)
    tokens = sorted({0, 1, 2, 5, geometry.vocab - 1, min(PERIOD + 1, geometry.vocab - 2)})
    found = values_of(bias_of(torch.tensor(tokens, dtype=torch.int32)))
    for row, token in zip(found, tokens, strict=True):
        assert row.tobytes() == reference.markov_bias(w1[token], w2).tobytes()


def slots(cached, geometry=LONG):
    return inputs.head(geometry, cached, (0, 1), CPU).slot_of.tolist()


def test_slots_repeat_with_the_weights():
    assert slots("none") == [-1] * 1100
    assert slots("all") == [token % PERIOD for token in range(1100)]
    assert slots("mixed") == [token % PERIOD if token % 2 == 0 else -1 for token in range(1100)]
    assert slots("all", SMALL) == list(range(67))


@pytest.mark.parametrize("shards", [(0, 1), (0,), (1,)])
@pytest.mark.parametrize("geometry", [SMALL, LONG])
def test_a_head_is_laid_out_as_the_product_lays_it_out(geometry, shards):
    w1, w2 = (values_of(one) for one in inputs.weights(geometry, CPU))
    found = inputs.head(geometry, "mixed", shards, CPU)
    tokens = [0, 2, 6, geometry.vocab - 1 - (geometry.vocab - 1) % 2]
    wanted = Head.build(geometry, w1, w2, cached=tokens, shards=shards)
    assert found.shards == shards
    assert torch.equal(found.w1, wanted.w1)
    assert torch.equal(found.w2, wanted.w2)
    assert found.w2.is_contiguous()
    for slot, token in enumerate(tokens):
        assert torch.equal(found.bias[:, int(found.slot_of[token])], wanted.bias[:, slot])
    for name in ("w1", "w2", "bias", "slot_of", "token_map"):
        assert getattr(found, name).dtype is getattr(wanted, name).dtype


# -- contents -------------------------------------------------------------------------------


def test_random_logits_spread():
    found = values(case(batch=4, n_out=4), LONG)
    assert np.isfinite(found).all()
    assert 2.8 < found.std() < 3.2
    assert abs(found.mean()) < 0.2


def test_constant_logits_are_one_value():
    assert set(values(case(content="constant")).ravel().tolist()) == {1.5}


@pytest.mark.parametrize(
    ("content", "border"), [("tile-ties", LONG.tile), ("shard-ties", LONG.split)]
)
def test_ties_lie_on_both_sides_of_a_border_and_are_more_than_there_is_room_for(content, border):
    found = values(case(content=content), LONG)
    for row in found.reshape(-1, LONG.vocab):
        (best,) = np.nonzero(row == row.max())
        assert best.tolist() == list(range(border - WIDTH, border + WIDTH))
        assert len(set(row.tolist())) == 2


def test_two_finite_logits_lie_in_two_shards():
    for row in values(case(content="two-finite")).reshape(-1, SMALL.vocab):
        finite = {int(at): float(row[at]) for at in np.nonzero(np.isfinite(row))[0]}
        assert finite == {3: 1.0, SMALL.vocab - 1: 0.5}
        assert set(row[~np.isfinite(row)].tolist()) == {-np.inf}
    assert 3 < SMALL.split <= SMALL.vocab - 1


def test_extremes_are_all_there_and_nothing_else():
    found = base(case(content="extremes"), LONG).numpy().view(np.uint16)
    wanted = {0x7F7F, 0xFF7F, 0x0001, 0x8001, 0x0000, 0x8000, 0x3F80, 0xFF80}
    assert set(found.ravel().tolist()) == wanted
    assert not np.isnan(values(case(content="extremes"), LONG)).any()


@pytest.mark.parametrize("content", CONTENTS[1:])
def test_ties_start_from_a_token_without_a_bias(content):
    w1, _ = inputs.weights(LONG, CPU)
    for seed in range(20):
        anchors = [one.anchor for one in inputs.requests(LONG, case(content=content, seed=seed))]
        assert not w1[anchors].bool().any()
    with_bias = [one.anchor for one in inputs.requests(LONG, case(batch=64))]
    assert w1[with_bias].bool().any()


# -- flaws ----------------------------------------------------------------------------------


@pytest.mark.parametrize("flaw", ["nan", "inf"])
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("at", [0, 1])
def test_a_flaw_is_one_logit_of_one_shard_at_one_position(flaw, rank, at):
    plain, spoilt = base(case()), base(case(flaw=flaw, flaw_rank=rank, flaw_at=at))
    ((row, position, column),) = (plain != spoilt).nonzero().tolist()
    first, last = SMALL.bounds[rank]
    assert (row, position) == (0, at)
    assert first <= column < last
    value = values_of(spoilt)[row, position, column]
    assert np.isnan(value) if flaw == "nan" else value == np.inf


def test_an_empty_row_has_no_finite_logit_and_no_neighbour_is_touched():
    plain, spoilt = values(case()), values(case(flaw="empty", flaw_at=1))
    assert (spoilt[0, 1] == -np.inf).all()
    spoilt[0, 1] = plain[0, 1]
    assert np.array_equal(spoilt, plain)


def test_poisoned_rows_are_nan_throughout():
    plain, spoilt = values(case(batch=3)), values(case(batch=3, poisoned=(0, 2)))
    assert np.isnan(spoilt[[0, 2]]).all()
    assert np.array_equal(spoilt[1], plain[1])
