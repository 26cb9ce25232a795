"""The verifier's kernels give what torch's operators give, in every member, for whatever comes."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pp4.errors import BadInputError
from pp4.verifier import fused, vectorised
from pp4.verifier.batch import Batch, stacked
from pp4.verifier.reference import quantised
from pp4.verifier.reference import verify as exactly
from pp4.verifier.units import Mode
from pp4.verifier.words import Words
from tests.kernels.verifying import TILINGS, TINY, agrees, filled, launched, same, seeds
from tests.unit.verifier.cases import MODES, WORD, any_probabilities, proposal
from tests.unit.verifier.test_vectorised import any_case, check, halves, large

# -- whatever comes -------------------------------------------------------------------------


@settings(max_examples=8)
@given(
    seeds,
    st.sampled_from([1, 2, 3, 7]),
    st.sampled_from([1, 2, 15, 16, 17, 31, 64, 65]),
    st.sampled_from([np.float32, np.float64]),
    st.sampled_from(TILINGS),
)
def test_any_batch(seed, depth, vocabulary, dtype, tiling):
    """The words lie near what decides, or are the streams' own."""
    case = any_case(seed, 3, depth, vocabulary, dtype)
    target, batch = torch.from_numpy(case.p), stacked(case.proposals, depth)
    for given_words in (case.words(), None):
        found = agrees(target, batch, given_words, tiling)
        for row, one in enumerate(case.proposals):
            script = case.script(row) if given_words else None
            check(found, row, exactly(one, [quantised(column) for column in case.p[row]], script))


def test_many_tiles():
    case = any_case(4, 2, 1, 1001, np.float32)
    agrees(torch.from_numpy(case.p), stacked(case.proposals, 1), case.words())


def test_every_end_is_reached():
    wanted = {(mode, accepted) for mode in MODES for accepted in range(3)}
    seen = set()
    for seed in range(100):
        case = any_case(seed, 6, 2, 17, np.float64)
        target, batch = torch.from_numpy(case.p), stacked(case.proposals, 2)
        expected = vectorised.by_operators(target, batch, case.words())
        ends = set(zip(batch.mode.tolist(), expected.accepted.tolist(), strict=True))
        if ends <= seen:
            continue
        same(launched(target, batch, case.words()), expected)
        seen |= ends
        if seen == wanted:
            return
    raise AssertionError(f"not reached: {wanted - seen}")


def test_the_largest_vocabulary_as_it_is_cut_for_a_gpu():
    proposals, p = large()
    agrees(p, stacked(proposals, 2), tiling=fused.TILING)


def test_the_deepest_block():
    depth = fused.MAX_DEPTH
    batch = stacked([proposal(Mode.DELTA, None, [1] * depth, 2), None], depth)
    p = torch.tensor([0.0, 1.0]).repeat(2, depth + 1, 1)
    assert agrees(p, batch).accepted.tolist() == [depth, 0]


# -- the largest, and what goes to it ---------------------------------------------------------


@pytest.mark.parametrize("mode", [Mode.GREEDY_T0, Mode.DELTA])
def test_one_hot(mode):
    hot = [0, 3, 4, 15, 16, 17, 49]
    p = torch.zeros(2 * len(hot), 2, 50)
    for row, token in enumerate(hot + hot):
        p[row, :, token] = 1
    proposed = hot + [(token + 1) % 50 for token in hot]
    found = agrees(p, stacked([proposal(mode, None, [one], 50) for one in proposed], 1))
    assert found.tokens.tolist() == [[one, one] for one in hot] + [[one, -1] for one in hot]


@pytest.mark.parametrize(
    "ids", [(0, 1), (3, 4), (15, 16), (5, 21), (40, 130), (149, 148), (16, 32, 48)]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_of_equal_ones_the_lower_id_is_the_first(ids, dtype):
    p = torch.zeros(1, 2, 150, dtype=dtype)
    p[:, :, list(ids)] = 1 / len(ids)
    found = agrees(p, stacked([proposal(Mode.GREEDY_T0, None, [min(ids)], 150)], 1))
    assert found.tokens.tolist() == [[min(ids)] * 2]


@pytest.mark.parametrize("places", [(2, 9), (2, 90)])
def test_equal_are_floors_and_not_probabilities(places):
    """Two that differ by less than a unit: the higher one is not the first."""
    p = torch.zeros(1, 2, 150, dtype=torch.float64)
    p[:, :, places[0]], p[:, :, places[1]] = 0.5 - 2.0**-50, 0.5 - 2.0**-51
    found = agrees(p, stacked([proposal(Mode.GREEDY_T0, None, [2], 150)], 1))
    assert found.accepted.tolist() == [1]


@settings(max_examples=6)
@given(seeds, st.sampled_from([1 - 2.0**-15, 1 + 2.0**-15]))
def test_what_a_sum_is_off_goes_to_the_largest(seed, factor):
    case = any_case(seed, 4, 2, 40, np.float32)
    target = (torch.from_numpy(case.p) * np.float32(factor)).clamp(max=1)
    agrees(target, stacked(case.proposals, 2), case.words())


@pytest.mark.parametrize("mode", [Mode.SAMPLED, Mode.DELTA])
def test_what_goes_to_the_largest_is_taken_with_it(mode):
    p = torch.zeros(1, 2, 20)
    p[:, :, [3, 7]] = 0.5 - 2.0**-16
    batch = stacked([proposal(mode, [{3: 1 << 24}], [3], 20)], 1)
    found = agrees(p, batch, Words(halves([[WORD - 1]]), halves([[0, 0]])))
    assert found.tokens.tolist() == [[7, -1]]


@pytest.mark.parametrize("bonus", [0, 5, 19])
@pytest.mark.parametrize("mode", [Mode.SAMPLED, Mode.DELTA])
def test_nothing_is_taken_off_a_bonus(mode, bonus):
    """Not the tokens before it, and not the id that stands where no token is."""
    p = torch.zeros(1, 4, 20)
    p[:, :3, 5] = 1
    p[:, 3, bonus] = 1
    found = agrees(p, stacked([proposal(mode, [{5: 1 << 24}] * 3, [5] * 3, 20)], 3))
    assert found.tokens.tolist() == [[5, 5, 5, bonus]]


@pytest.mark.parametrize("tiling", TILINGS[:2])
@pytest.mark.parametrize(
    ("word", "place"), [(0, 0), (WORD // 2 - 1, 0), (WORD // 2, -1), (WORD - 1, -1)]
)
def test_what_lies_before_a_tile_changes_nothing_in_it(tiling, word, place):
    """The largest and what is taken are the last id of the tile before."""
    first, end = tiling.tile, 2 * tiling.tile
    p = torch.zeros(1, 2, end)
    p[:, :, first - 1], p[:, :, [first, end - 1]] = 0.5 - 2.0**-15, 0.25
    batch = stacked([proposal(Mode.SAMPLED, [{first - 1: 1 << 24}], [first - 1], end)], 1)
    found = agrees(p, batch, Words(halves([[WORD - 1]]), halves([[word, 0]])), tiling)
    assert found.tokens.tolist() == [[(first, end - 1)[place], -1]]


# -- the scan --------------------------------------------------------------------------------


def test_tiles_hold_exact_sums_and_the_first_largest():
    p = torch.from_numpy(
        np.stack([any_probabilities(np.random.default_rng(i), 150) for i in (1, 5)])
    )
    with filled():
        sums, keys = fused.scan(p[:, None], torch.tensor([1, 3], dtype=torch.int32), TINY)
    for row in range(2):
        weights = [int(one * 2**48) for one in p[row].tolist()]
        tiles = [weights[first : first + 16] for first in range(0, 150, 16)]
        assert sums[row, 0].tolist() == [sum(tile) for tile in tiles]
        first = [tile.index(max(tile)) for tile in tiles]
        words_ = [max(tile) * 16 + 15 - at for tile, at in zip(tiles, first, strict=True)]
        assert keys[row, 0].tolist() == words_


def test_a_row_without_a_proposal_is_not_read():
    with filled():
        found = fused.scan(torch.zeros(2, 2, 40), torch.tensor([0, 2], dtype=torch.int32), TINY)
    for one in found:
        assert set(one[0].flatten().tolist()) == {2**63 - 1}
        assert 2**63 - 1 not in one[1].flatten().tolist()


# -- where tensors lie ------------------------------------------------------------------------


def test_rows_and_places_may_lie_anywhere():
    case = any_case(7, 4, 3, 48, np.float32)
    batch = stacked(case.proposals, 3)
    expected = launched(torch.from_numpy(case.p), batch)
    wide = torch.full((4, 9, 5, 65), np.nan)
    wide[:, 1::2, 2, 7:55] = torch.from_numpy(case.p)
    apart = Batch(*(
        torch.stack([getattr(batch, one.name)] * 2, dim=1)[:, 1]
        for one in dataclasses.fields(Batch)
    ))  # fmt: skip
    same(launched(wide[:, 1::2, 2, 7:55], apart), expected)


def test_no_row_is_read_beyond_its_end():
    case = any_case(3, 2, 1, 33, np.float32)
    room = torch.full((2, 2, 64), np.nan)
    room[:, :, :33] = torch.from_numpy(case.p)
    batch = stacked(case.proposals, 1)
    same(launched(room[:, :, :33], batch), launched(torch.from_numpy(case.p), batch))


@pytest.mark.parametrize(
    ("target", "depth", "takes"),
    [
        (torch.zeros(2, 3, 8), 2, True),
        (torch.zeros(2, 3, 8)[:1, :, 1:], 2, True),
        (torch.zeros(2, 3, 8).transpose(1, 2), 7, False),
        (torch.zeros(1, 32, 2), 31, True),
        (torch.zeros(1, 33, 2), 32, False),
    ],
)
def test_what_the_kernels_take(target, depth, takes):
    assert fused.takes(target, depth) is takes


def test_a_batch_of_another_device_is_refused():
    batch = stacked([None], 1)
    batch = dataclasses.replace(batch, tickets=batch.tickets.to("meta"))
    with pytest.raises(BadInputError, match="tickets: expected on cpu"):
        launched(torch.zeros(1, 2, 4), batch)


def test_no_rows():
    batch = Batch(*(getattr(stacked([None], 2), one.name)[:0] for one in dataclasses.fields(Batch)))
    assert agrees(torch.zeros(0, 3, 8), batch).tokens.shape == (0, 3)


@pytest.mark.parametrize(
    ("depth", "dtype", "match"),
    [
        (0, torch.float32, "depth"),
        (fused.MAX_DEPTH + 1, torch.float32, "depth"),
        (5, torch.bfloat16, "dtype"),
        (5, torch.float32, "TRITON_INTERPRET"),
    ],
)
def test_what_cannot_be_primed_is_refused(depth, dtype, match):
    with pytest.raises(BadInputError, match=match):
        fused.prime(depth, torch.device("cuda", 0), dtype)
