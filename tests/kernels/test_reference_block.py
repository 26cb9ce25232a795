"""A block by the reference equals the interpreted kernel, in every buffer that either leaves."""

import dataclasses

import numpy as np
import pytest
import torch

from pp4.errors import BadInputError
from pp4.kernels.block import Buffers, Request, SampledBlock
from pp4.kernels.faults import Fault
from pp4.kernels.graph import RecordedGraph, launches_of
from pp4.kernels.link import Bounds, SharedMemoryLink, SoloLink
from pp4.kernels.reference_block import ReferenceBlock
from pp4.kernels.sampled_fused import GREEDY, INACTIVE
from tests.kernels.cases import check, random_case

LEFT = ("ids", "q", "token", "error", "stamp", "waited", "chain")


def blocks(case, limit=None):
    """The same case, loaded, for the kernel and for the reference."""
    made = []
    for kind in (SampledBlock, ReferenceBlock):
        bounds = Bounds() if limit is None else Bounds(epoch_limit=limit)
        link = SoloLink(case.batch, start=case.start, bounds=bounds)
        block = kind(case.head(), link, batch=case.batch, n_out=case.n_out)
        block.load(case.requests, case.logits)
        block.poison()
        for row, token in case.first_tokens.items():
            block.chain[row, 0] = token
        made.append(block)
    return made


def assert_equal(kernel, by_reference):
    for name in LEFT:
        mine, theirs = (getattr(one, name).numpy() for one in (by_reference, kernel))
        assert (mine.dtype, mine.tobytes()) == (theirs.dtype, theirs.tobytes()), name
    assert kernel.link.words() == by_reference.link.words()


def mixed(case):
    modes = [1, GREEDY, INACTIVE]
    requests = [
        dataclasses.replace(one, mode=mode)
        for one, mode in zip(case.requests, modes, strict=True)
    ]  # fmt: skip
    requests[2] = Request(mode=INACTIVE)
    return dataclasses.replace(case, requests=requests)


def good():
    case = random_case(1, vocab=90, split=50, batch=3, n_out=2)
    random = np.random.default_rng(2)
    ids = [int(one) for one in np.sort(random.permutation(200)[:90])]
    reduced = random_case(4, vocab=90, split=45, batch=2, n_out=2)
    geometry = dataclasses.replace(reduced.geometry, mapped=True)
    w1 = random_case(5, vocab=200, split=45).w1
    # a key of 64 bits, and a position and a round whose sums leave the positive half of 32
    far = dataclasses.replace(
        case.requests[0], key=(1 << 64) - 3, position=(1 << 31) - 2, round=(1 << 32) - 1
    )
    return {
        "sampled": case,
        "mixed modes": mixed(case),
        "some cached": dataclasses.replace(mixed(case), cached=range(0, 90, 2)),
        "all cached": dataclasses.replace(case, cached=range(90)),
        "a reduced vocabulary": dataclasses.replace(
            reduced, geometry=geometry, w1=w1, token_map=ids
        ),
        "words of all bits": dataclasses.replace(case, requests=[far, *case.requests[1:]]),
    }


@pytest.mark.parametrize("name", good())
def test_good_blocks_equal_the_kernels_and_the_exact_reference(name):
    case = good()[name]
    kernel, by_reference = blocks(case)
    kernel.run()
    by_reference.run()
    assert_equal(kernel, by_reference)
    if name != "words of all bits":
        check(case, by_reference.outputs())
    assert by_reference.link.words().clean


def spoiled(**rows):
    """Three rows of two positions, one of which is spoiled at a place."""
    case = random_case(7, vocab=60, split=32, batch=3, n_out=2)
    logits = case.logits.copy()
    for place, value in rows.values():
        logits[place] = value
    return dataclasses.replace(case, logits=logits)


BAD = {
    "a NaN in the first row": spoiled(a=((0, 1, 3), np.nan)),
    "a NaN in the last row": spoiled(a=((2, 1, 59), np.nan)),
    "an empty row": spoiled(a=((1, 0), -np.inf)),
    "an empty row, then infinity": spoiled(a=((1, 0), -np.inf), b=((2, 0, 5), np.inf)),
    # rows without a bias row are finished by blocks of other rows, so later or earlier
    "a token that does not exist": dataclasses.replace(
        spoiled(), first_tokens={1: 60}, cached=range(60)
    ),
    "a negative token": dataclasses.replace(spoiled(), first_tokens={2: -1}),
}


@pytest.mark.parametrize("name", BAD)
def test_a_fault_reaches_the_rows_and_positions_that_it_reaches_in_the_kernel(name):
    kernel, by_reference = blocks(BAD[name])
    kernel.run()
    by_reference.run()
    assert_equal(kernel, by_reference)
    assert by_reference.link.words().own is not Fault.NONE
    # sticky: a healthy block after it exchanges nothing
    healthy = spoiled()
    for block in (kernel, by_reference):
        block.load(healthy.requests, healthy.logits)
        block.launch(0)
    assert_equal(kernel, by_reference)
    assert not by_reference.q[:, 0].any()


def test_an_exhausted_range_ends_where_it_ends_in_the_kernel():
    kernel, by_reference = blocks(spoiled(), limit=2)
    kernel.run()
    by_reference.run()
    assert_equal(kernel, by_reference)
    assert by_reference.link.words().own is Fault.EPOCH_EXHAUSTED
    assert by_reference.error[:, 0].tolist() == [0, 0, 0]
    assert by_reference.error[:, 1].tolist() == [int(Fault.EPOCH_EXHAUSTED)] * 3


@pytest.mark.parametrize("word", [int(Fault.PEER_TIMEOUT), 7])
def test_words_of_a_peer_are_sticky_too(word):
    kernel, by_reference = blocks(spoiled())
    for block in (kernel, by_reference):
        block.link.told[0] = block.link.told[word] = 1
        block.launch(0)
    assert_equal(kernel, by_reference)
    assert by_reference.error[:, 0].tolist() == [int(by_reference.link.words().peer)] * 3


def test_it_is_recorded_and_replayed_like_a_kernel():
    case = good()["mixed modes"]
    _, block = blocks(case)
    graph = RecordedGraph(block, "", launches_of(block))
    graph.replay()
    check(case, block.outputs())
    other = random_case(9, vocab=90, split=50, batch=3, n_out=2)
    block.load(other.requests, other.logits)
    kernel, _ = blocks(dataclasses.replace(case, requests=other.requests, logits=other.logits))
    kernel.link.epochs.copy_(block.link.epochs)
    graph.replay()
    kernel.run()
    assert_equal(kernel, block)


def test_it_takes_no_peer(tmp_path):
    case = random_case(1, batch=1)
    link = SharedMemoryLink(
        tmp_path / "own", tmp_path / "peer", rank=0, rows=1, start=1, bounds=Bounds()
    )
    with pytest.raises(BadInputError, match="stand-in"):
        ReferenceBlock(case.head((0,)), link, batch=1, n_out=2)
    link.close()


# -- buffers that are given ---------------------------------------------------------------------


def given(case, **changed):
    shape = (2, case.batch, case.n_out, case.geometry.stride)
    words = torch.zeros(5 * case.batch, dtype=torch.int32)
    mode, position, round_ = words.view(5, -1)[:3].unbind()
    buffers = Buffers(
        mode=mode,
        position=position,
        round=round_,
        key=words[3 * case.batch :].view(torch.int64),
        logits=torch.zeros(shape, dtype=torch.int16),
    )
    return dataclasses.replace(buffers, **changed)


def test_a_block_reads_the_buffers_that_it_is_given():
    # two rows, so that the views start on odd multiples of four bytes
    case = random_case(11, vocab=70, split=40, batch=2, n_out=1)
    buffers = given(case)
    block = SampledBlock(case.head(), SoloLink(2), batch=2, n_out=1, buffers=buffers)
    block.load(case.requests, case.logits)
    assert buffers.mode.tolist() == [1, 1]
    assert buffers.logits.any()
    block.run()
    check(case, block.outputs())


WRONG = {
    "mode": torch.zeros(2, dtype=torch.int64),
    "position": torch.zeros(3, dtype=torch.int32),
    "round": torch.zeros(4, dtype=torch.int32)[::2],
    "key": torch.zeros(2, dtype=torch.int32),
    "logits": torch.zeros((2, 2, 1, 64), dtype=torch.int16),
}


@pytest.mark.parametrize("name", WRONG)
def test_buffers_that_do_not_fit_are_refused_by_name(name):
    case = random_case(11, vocab=70, split=40, batch=2, n_out=1)
    with pytest.raises(BadInputError, match=name):
        SampledBlock(
            case.head(), SoloLink(2), batch=2, n_out=1, buffers=given(case, **{name: WRONG[name]})
        )
