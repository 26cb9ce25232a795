"""Rows without a cached bias row: all blocks take their panels, two rows at a time."""

import dataclasses

import numpy as np
import pytest
import torch

from pp4.kernels.faults import Fault
from pp4.kernels.layout import MOST_ROWS
from pp4.kernels.link import Bounds, SoloLink
from pp4.kernels.sampled_fused import GREEDY, INACTIVE, SAMPLED
from tests.kernels.cases import check, differences, plain, random_case, solo
from tests.kernels.test_pair import agree

VOCAB = 300
SHAPE = {"vocab": VOCAB, "split": 170, "tile": 128}
PANELS, LISTS = 4, 4


def uncached(seed, missing, batch=7, **more):
    """A case whose tiles have PANELS panels; the given rows have no bias row at position 0."""
    case = random_case(seed, batch=batch, **SHAPE, **more)
    anchors = [one.anchor for one in case.requests]
    assert len(set(anchors)) == batch
    cached = tuple(token for row, token in enumerate(anchors) if row not in missing)
    narrow = dataclasses.replace(case.geometry, panel=128 // PANELS)
    return dataclasses.replace(case, geometry=narrow, cached=cached)


def test_the_shape_of_these_tests():
    case = uncached(1, ())
    assert case.geometry.panels == PANELS
    assert case.geometry.tiles * 2 == LISTS
    # a block for each panel of two rows, where that makes few blocks
    assert case.geometry.grid(1, 2) == (LISTS, PANELS)
    assert case.geometry.grid(3, 2) == (LISTS, 2 * PANELS)
    assert case.geometry.grid(7, 1) == (LISTS // 2, 16)
    assert case.geometry.grid(40, 1) == (LISTS // 2, 40)


@pytest.mark.parametrize("batch", [1, 2, 3, 7])
def test_every_row_is_missing(batch):
    case = uncached(11, range(batch), batch)
    check(case, solo(case)[1])


@pytest.mark.parametrize("rank_dim", [1, 2, 4, 16, 64])
def test_every_width_of_the_weights(rank_dim):
    case = uncached(13, (0, 2), 3, rank_dim=rank_dim)
    check(case, solo(case)[1])


@pytest.mark.parametrize("panel", [32, 64, 128])
def test_every_width_of_a_panel(panel):
    case = uncached(17, (0, 1, 2), 3)
    case = dataclasses.replace(case, geometry=dataclasses.replace(case.geometry, panel=panel))
    check(case, solo(case)[1])


@pytest.mark.parametrize(
    "missing", [(), (0,), (6,), (1, 5), (0, 2, 4), (2, 4, 5, 6), (0, 1, 2, 3, 6)], ids=str
)
def test_some_rows_are_missing(missing):
    case = uncached(23, missing)
    check(case, solo(case)[1])


def test_modes_among_them():
    case = uncached(31, (0, 1, 2, 4))
    modes = [GREEDY, INACTIVE, SAMPLED, SAMPLED, GREEDY, INACTIVE, SAMPLED]
    requests = [
        dataclasses.replace(one, mode=mode) for one, mode in zip(case.requests, modes, strict=True)
    ]
    case = dataclasses.replace(case, requests=requests)
    check(case, solo(case)[1])


def test_counters_hold_a_whole_for_each_launch():
    """Whatever rows were cached, so that a graph can go on with the same counters."""
    case = uncached(37, (1, 2, 6), n_out=1)
    block, outputs = solo(case)
    check(case, outputs)
    rows, panels = block.retired[:7], block.retired[7:].view(7, LISTS)
    assert rows.tolist() == [LISTS] * 7
    # the first of two rows counts for both
    taken = [0, PANELS, 0, 0, 0, 0, PANELS]
    assert panels.tolist() == [[one] * LISTS for one in taken]
    block.head.slot_of.fill_(-1)
    block.poison()
    block.run()
    assert differences(block.outputs(), outputs) == []
    assert rows.tolist() == [2 * LISTS] * 7
    taken = [PANELS, PANELS, PANELS, 0, PANELS, 0, 2 * PANELS]
    assert panels.tolist() == [[one] * LISTS for one in taken]


def test_padding_multiplies_nothing():
    case = uncached(37, (1, 2), n_out=1)
    requests = list(case.requests)
    requests[1] = dataclasses.replace(requests[1], mode=INACTIVE)
    case = dataclasses.replace(case, requests=requests)
    block, outputs = solo(case)
    check(case, outputs)
    panels = block.retired[7:].view(7, LISTS)
    assert panels.tolist() == [[PANELS * (row == 2)] * LISTS for row in range(7)]


@pytest.mark.parametrize("row", [31, 32, 62, 63])
def test_rows_up_to_the_last_one(row):
    """Bits 31 and 63 are the signs of words."""
    rows = np.full((MOST_ROWS, 70), -1.0, np.float32)
    rows[:, 40] = np.arange(MOST_ROWS)
    case = plain(rows, tile=64, cached=tuple(range(1, 70)))
    requests = [
        dataclasses.replace(one, anchor=0 if place in (row, 63) else 1 + place, mode=GREEDY)
        for place, one in enumerate(case.requests)
    ]
    case = dataclasses.replace(case, requests=requests)
    check(case, solo(case)[1])


def test_such_a_row_has_the_epoch_of_its_own():
    case = uncached(59, (1, 4), n_out=1)
    few = Bounds(first_polls=1000, next_polls=1000)
    block = case.block(SoloLink(case.batch, bounds=few))
    block.link.epochs[:] = torch.arange(10, 80, 10)
    block.run()
    assert differences(block.outputs(), case.expected()) == []
    assert block.outputs().stamp[:, 0].tolist() == list(range(11, 81, 10))
    assert block.link.words().epochs == tuple(range(11, 81, 10))


def test_a_bad_one_spoils_no_other():
    case = uncached(41, (2, 5))
    logits = case.logits.copy()
    logits[5, 0, 299] = np.nan
    spoilt = dataclasses.replace(case, logits=logits)
    block, outputs = solo(spoilt)
    assert outputs.error[5, 0] == Fault.BAD_LOGITS
    alone = solo(case)[1]
    good = outputs.error[:, 0] == 0
    # a row that is finished later than a bad one is given up; those before it are as they were
    assert good.sum() >= 2
    assert (outputs.token[good, 0] == alone.token[good, 0]).all()
    assert (outputs.q[good, 0] == alone.q[good, 0]).all()
    assert not block.link.words().clean


def test_a_token_that_is_none_is_not_among_them():
    case = uncached(43, (1, 3))
    tokens = np.array([one.anchor for one in case.requests], np.int32)
    tokens[3] = VOCAB
    wrong = dataclasses.replace(case, first_tokens={0: torch.from_numpy(tokens)})
    _, outputs = solo(wrong)
    assert outputs.error[3, 0] == Fault.PROTOCOL
    assert outputs.token[1, 0] == solo(case)[1].token[1, 0]


@pytest.mark.parametrize("missing", [(0,), (1, 4), (0, 1, 2, 3, 6)], ids=str)
def test_a_pair_takes_them_too(pair, missing):
    agree(pair, uncached(53, missing))
