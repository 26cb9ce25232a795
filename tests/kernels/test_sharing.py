"""Rows without a cached bias row that all blocks share give the bits that they give alone."""

import dataclasses

import numpy as np
import pytest
import torch

from pp4.kernels.faults import Fault
from pp4.kernels.layout import HELPED
from pp4.kernels.link import Bounds, SoloLink
from pp4.kernels.sampled_fused import GREEDY, INACTIVE, SAMPLED
from tests.kernels.cases import check, differences, random_case, solo
from tests.kernels.test_pair import agree

VOCAB = 300
SHAPE = {"vocab": VOCAB, "split": 170, "tile": 128}
SLICES, LISTS = 4, 4


def shared(seed, missing, batch=7, **more):
    """A case whose tiles have SLICES slices; the given rows have no bias row at position 0."""
    case = random_case(seed, batch=batch, **SHAPE, **more)
    anchors = [one.anchor for one in case.requests]
    assert len(set(anchors)) == batch
    cached = tuple(token for row, token in enumerate(anchors) if row not in missing)
    # one warp: spans that are shorter than a tile of a test
    narrow = dataclasses.replace(case.geometry, warps=1)
    return dataclasses.replace(case, geometry=narrow, cached=cached)


def test_a_tile_of_these_tests_has_slices_of_several_spans():
    made = shared(1, ()).geometry.constants(shards=2, interpreted=True)
    assert made["TILE"] // made["SPAN"] == 4 * SLICES


@pytest.mark.parametrize("batch", [1, 2, 3, 7])
def test_every_row_is_missing(batch):
    case = shared(11, range(batch), batch)
    check(case, solo(case)[1])


@pytest.mark.parametrize(
    "missing", [(), (0,), (6,), (1, 5), (0, 2, 4), (2, 4, 5, 6), (0, 1, 2, 3, 6)], ids=str
)
def test_some_rows_are_missing(missing):
    case = shared(23, missing)
    check(case, solo(case)[1])


def test_modes_among_them():
    case = shared(31, (0, 1, 2, 4))
    modes = [GREEDY, INACTIVE, SAMPLED, SAMPLED, GREEDY, INACTIVE, SAMPLED]
    requests = [
        dataclasses.replace(one, mode=mode) for one, mode in zip(case.requests, modes, strict=True)
    ]
    case = dataclasses.replace(case, requests=requests)
    check(case, solo(case)[1])


@pytest.mark.parametrize(
    ("missing", "padding", "count"),
    [
        ((), (), 0),
        ((6,), (), 1),
        ((1, 2), (), 2),
        ((1, 2), (2,), 1),
        (range(HELPED), (), HELPED),
        # the blocks of so many rows have enough to do
        (range(HELPED + 1), (), 0),
    ],
    ids=str,
)
def test_which_rows_are_shared(missing, padding, count):
    case = shared(37, missing, n_out=1)
    requests = [
        dataclasses.replace(one, mode=INACTIVE) if row in padding else one
        for row, one in enumerate(case.requests)
    ]
    case = dataclasses.replace(case, requests=requests)
    block, outputs = solo(case)
    check(case, outputs)
    counters = block.retired[case.batch :].view(HELPED, LISTS)
    taken = [[SLICES] * LISTS] * count + [[0] * LISTS] * (HELPED - count)
    assert counters.tolist() == taken
    # and once more on the same counters and lists
    block.poison()
    block.run()
    assert differences(block.outputs(), outputs) == []
    assert counters.tolist() == [[2 * one for one in row] for row in taken]


def test_a_shared_row_has_the_epoch_of_its_own():
    case = shared(59, (1, 4), n_out=1)
    few = Bounds(first_polls=1000, next_polls=1000)
    block = case.block(SoloLink(case.batch, bounds=few))
    block.link.epochs[:] = torch.arange(10, 80, 10)
    block.run()
    assert differences(block.outputs(), case.expected()) == []
    assert block.outputs().stamp[:, 0].tolist() == list(range(11, 81, 10))
    assert block.link.words().epochs == tuple(range(11, 81, 10))


def test_a_bad_shared_row_spoils_no_other():
    case = shared(41, (2, 5))
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


def test_a_token_that_is_none_is_nobody_to_share():
    case = shared(43, (1, 3))
    tokens = np.array([one.anchor for one in case.requests], np.int32)
    tokens[3] = VOCAB
    wrong = dataclasses.replace(case, first_tokens={0: torch.from_numpy(tokens)})
    _, outputs = solo(wrong)
    assert outputs.error[3, 0] == Fault.PROTOCOL
    assert outputs.token[1, 0] == solo(case)[1].token[1, 0]


@pytest.mark.parametrize("missing", [(0,), (1, 4), (0, 1, 2, 3, 6)], ids=str)
def test_a_pair_shares_them_too(pair, missing):
    agree(pair, shared(53, missing))
