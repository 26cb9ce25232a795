"""Shapes, bounds, weights and maps that do not fit refuse before a kernel sees them."""

import dataclasses

import numpy as np
import pytest
import torch

from pp4.errors import BadInputError
from pp4.kernels import reference
from pp4.kernels.geometry import Geometry
from pp4.kernels.head import Head, paired, panels, patterns, sharded, unpaired
from tests.kernels.cases import normal

GEOMETRY = Geometry(vocab=40, split=25, tile=32, rank_dim=4)
MAPPED = dataclasses.replace(GEOMETRY, mapped=True)
W1, W2 = normal(1, 60, 4), normal(2, 40, 4)


def test_geometry_of_a_production_vocabulary():
    geometry = Geometry(vocab=129280, split=64640)
    assert geometry.bounds == ((0, 64640), (64640, 129280))
    assert (geometry.tiles, geometry.stride) == (32, 64640)
    assert geometry.options() == {"num_warps": 4, "enable_fp_fusion": False, "maxnreg": 128}
    assert geometry.constants(shards=1, interpreted=False) == {
        "SHARDS": 1,
        "TILES": 32,
        "PADDED_LISTS": 32,
        "TILE": 2048,
        "PANEL": 512,
        "GROUP": 4,
        "BITS": 15,
        "WORDS": 128,
        "HAS_MAP": False,
        "INTERPRETED": False,
    }


def test_both_ranks_get_the_same_constants_from_an_uneven_split():
    geometry = Geometry(vocab=300, split=299, tile=64)
    assert (geometry.widest, geometry.tiles, geometry.stride) == (299, 5, 384)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"vocab": 1}, "vocab"),
        ({"vocab": 1 << 31}, "vocab"),
        ({"split": 0}, "split"),
        ({"split": 40}, "split"),
        ({"tile": 48}, "tile"),
        ({"tile": 16}, "tile"),
        ({"tile": 1 << 16}, "tile"),
        ({"rank_dim": 3}, "rank_dim"),
        ({"rank_dim": 0}, "rank_dim"),
        ({"warps": 3}, "warps"),
        ({"vocab": 100_000, "split": 50_000}, "at most 1024 tiles"),
    ],
)
def test_bounds_that_do_not_fit_refuse(change, match):
    with pytest.raises(BadInputError, match=match):
        dataclasses.replace(GEOMETRY, **change)


def test_a_number_of_shards_that_no_launch_has_refuses():
    with pytest.raises(BadInputError, match="shards"):
        GEOMETRY.constants(shards=3, interpreted=True)


def test_cached_rows_are_those_of_the_tree():
    head = Head.build(GEOMETRY, W1, W2, cached=[7, 59])
    assert head.slot_of[[7, 59, 8]].tolist() == [0, 1, -1]
    assert (head.target_vocab, head.slots) == (60, 2)
    for slot, token in enumerate([7, 59]):
        row = reference.markov_bias(W1[token], W2)
        assert head.bias[0, slot, :25].tolist() == patterns(row[:25]).tolist()
        assert head.bias[1, slot, :15].tolist() == patterns(row[25:]).tolist()
    assert not head.bias[1, :, 15:].any()


def test_a_rank_holds_its_own_shard_only():
    whole, upper = Head.build(GEOMETRY, W1, W2), Head.build(GEOMETRY, W1, W2, shards=(1,))
    assert upper.w2.shape == (1, 1, 2, 32)
    assert upper.w2[0].tolist() == whole.w2[1].tolist()
    assert upper.w1.tolist() == whole.w1.tolist()
    rows = patterns(W2)
    assert whole.columns(0).tolist() == rows[:25].tolist()
    assert upper.columns(0).tolist() == whole.columns(1).tolist() == rows[25:].tolist()


@pytest.mark.parametrize("rank_dim", [1, 2, 8])
def test_words_hold_what_the_tree_adds_first(rank_dim):
    rows = patterns(normal(5, 70, rank_dim))
    words = paired(rows)
    half = max(1, rank_dim // 2)
    assert words.dtype == torch.int32
    assert words.shape == (70, half)
    below = words.to(torch.int16)
    assert below.tolist() == rows[:, :half].tolist()
    above = (words >> 16).to(torch.int16)
    assert above.tolist() == (rows[:, half:].tolist() if rank_dim > 1 else [[0]] * 70)
    assert unpaired(words, rank_dim).tolist() == rows.tolist()


@pytest.mark.parametrize("name", ["w1", "w2"])
def test_weights_that_are_not_laid_out_refuse(name):
    head = Head.build(GEOMETRY, W1, W2)
    rows = patterns(W1 if name == "w1" else W2)
    with pytest.raises(BadInputError, match=f"{name}: expected int32 words .*torch.int16"):
        dataclasses.replace(head, **{name: rows})


def test_panels_hold_columns_side_by_side():
    geometry = Geometry(vocab=190, split=100, tile=64, rank_dim=4, panel=32)
    rows = patterns(normal(6, 90, 4))
    laid, words = panels(rows, geometry), paired(rows)
    # two tiles of two panels, for the larger shard
    assert laid.shape == (4, 2, 32)
    for column in range(90):
        assert laid[column // 32, :, column % 32].tolist() == words[column].tolist()
    assert not laid[2, :, 26:].any()
    assert not laid[3].any()


def test_a_lone_place_adds_minus_zero():
    """So that the bias of a width of 1 is its product, a -0 too."""
    geometry = Geometry(vocab=64, split=32, tile=32, rank_dim=1)
    laid = panels(patterns(np.full((32, 1), -0.0, np.float32)), geometry)
    assert laid.tolist() == [[[-0x7FFF8000] * 32]]


def test_shards_keep_leading_axes_and_pad_with_zeros():
    values = patterns(normal(3, 2, 3, 40))
    parts = sharded(values, GEOMETRY, (0, 1))
    assert parts.shape == (2, 2, 3, 128)
    together = torch.cat([parts[0, ..., :25], parts[1, ..., :15]], dim=-1)
    assert together.tolist() == values.tolist()
    assert not parts[0, ..., 25:].any()


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"w2": W2[:-1]}, "markov weights"),
        ({"w2": W2[:, :2]}, "markov weights"),
        ({"w1": W1[:, :2]}, "markov weights"),
        ({"w1": W1[0]}, "markov weights"),
        ({"w1": W1[:39]}, "a row for each"),
        ({"w1": W1 + np.float32(1e-6)}, "BF16 holds"),
        ({"w2": W2.astype(np.float64)}, "dtype"),
        ({"cached": [60]}, "distinct tokens below 60, found 60"),
        ({"cached": [-1]}, "distinct tokens below 60, found -1"),
        ({"cached": [3, 3]}, "a token twice"),
        ({"token_map": range(40)}, "mapped: False"),
        ({"geometry": MAPPED}, "a map for a mapped"),
        ({"geometry": MAPPED, "token_map": range(39)}, "39 ids"),
        ({"geometry": MAPPED, "token_map": [*range(39), 60]}, "strictly rising ids below 60"),
        ({"geometry": MAPPED, "token_map": [-1, *range(39)]}, "strictly rising"),
        ({"geometry": MAPPED, "token_map": [0, 0, *range(1, 39)]}, "rising: False"),
        ({"geometry": MAPPED, "token_map": [*range(38), 39, 38]}, "rising: False"),
    ],
)
def test_weights_and_maps_that_do_not_fit_refuse(change, match):
    arguments = {"geometry": GEOMETRY, "w1": W1, "w2": W2, **change}
    with pytest.raises(BadInputError, match=match):
        Head.build(**arguments)
