"""A block as a worker uses it: modes, padding, chains, errors that stick, buffers that it owns."""

import dataclasses

import numpy as np
import pytest
import torch

from pp4.errors import BadInputError
from pp4.kernels import expected as expected_outputs
from pp4.kernels.block import POISON_INT, Request, SampledBlock
from pp4.kernels.dyadic24 import TICKETS
from pp4.kernels.faults import Fault
from pp4.kernels.link import POISON, Bounds, SoloLink
from pp4.kernels.sampled_fused import GREEDY, INACTIVE, SAMPLED
from tests.kernels.cases import Case, check, differences, normal, plain, random_case, solo


def with_modes(case: Case, *modes: int) -> Case:
    requests = [
        dataclasses.replace(request, mode=mode)
        for request, mode in zip(case.requests, modes, strict=True)
    ]
    return dataclasses.replace(case, requests=requests)


def test_greedy_rows_take_the_argmax_and_draw_nothing():
    case = with_modes(random_case(1, batch=2), SAMPLED, GREEDY)
    _, outputs = solo(case)
    check(case, outputs)
    assert (outputs.q[0].sum(axis=-1) == 1).all()
    assert not outputs.q[1].any()
    assert outputs.token[1].tolist() == outputs.ids[1, :, 0].tolist()


def test_a_row_does_not_see_its_neighbours_mode():
    case = random_case(2, batch=3)
    results = [
        solo(with_modes(case, SAMPLED, neighbour, SAMPLED))[1]
        for neighbour in (SAMPLED, GREEDY, INACTIVE)
    ]
    for row in (0, 2):
        assert len({outputs.digest(row) for outputs in results}) == 1
    assert len({outputs.digest(1) for outputs in results}) == 3


def test_padding_is_zero_whatever_its_logits_hold():
    case = with_modes(random_case(3, batch=3), INACTIVE, SAMPLED, INACTIVE)
    logits = case.logits.copy()
    logits[0] = np.nan
    logits[2] = np.inf
    case = dataclasses.replace(case, logits=logits)
    block, outputs = solo(case)
    check(case, outputs)
    assert not outputs.ids[0].any()
    assert not outputs.token[2].any()
    assert block.link.words().clean
    assert block.link.words().epochs == (case.start, case.start + case.n_out, case.start)


def test_a_block_of_padding_only():
    case = with_modes(random_case(4, batch=2), INACTIVE, INACTIVE)
    block, outputs = solo(case)
    check(case, outputs)
    assert block.link.words().epochs == (1, 1)


def test_an_error_stays_for_every_later_position_and_launch():
    case = random_case(5, batch=1, n_out=3)
    logits = case.logits.copy()
    logits[0, 1, 17] = np.nan
    broken = dataclasses.replace(case, logits=logits)
    block, outputs = solo(broken)
    check(broken, outputs)
    assert outputs.error.tolist() == [[0, Fault.BAD_LOGITS, Fault.BAD_LOGITS]]
    # the place that the next position starts from is 0 and never leaves as a token
    assert block.chain.tolist()[0][2:] == [0, 0]
    assert outputs.token.tolist()[0][1:] == [-1, -1]
    block.load(case.requests, case.logits)
    block.poison()
    block.run()
    again = block.outputs()
    assert again.error.tolist() == [[Fault.BAD_LOGITS] * 3]
    assert again.stamp.tolist() == [[0, 0, 0]]
    assert (again.ids == -1).all()
    assert not again.q.any()


def test_a_later_fault_does_not_soften_an_earlier_one():
    case = random_case(6, batch=1, n_out=1)
    block = case.block(SoloLink(1))
    block.link.own_error[0] = int(Fault.PEER_TIMEOUT)
    block.run()
    assert block.outputs().error.tolist() == [[Fault.PEER_TIMEOUT]]
    assert block.link.words().own is Fault.PEER_TIMEOUT


@pytest.mark.parametrize("previous", [-1, 101, 2**31 - 1, -(2**31), POISON_INT])
def test_a_previous_token_out_of_range_is_never_dereferenced(previous):
    case = random_case(7, batch=1, n_out=1, first_tokens={0: previous})
    block, outputs = solo(case)
    assert outputs.error.tolist() == [[Fault.PROTOCOL]]
    assert outputs.token.tolist() == [[-1]]
    assert block.link.words().own is Fault.PROTOCOL


def test_an_exhausted_epoch_ends_the_row_before_its_draw():
    case = random_case(8, batch=1, n_out=3, start=6)
    block = case.block(SoloLink(1, start=6, bounds=Bounds(epoch_limit=8)))
    block.run()
    outputs = block.outputs()
    assert outputs.error.tolist() == [[0, 0, Fault.EPOCH_EXHAUSTED]]
    assert outputs.stamp.tolist() == [[7, 8, 0]]
    assert block.link.words().own is Fault.EPOCH_EXHAUSTED


def test_blocks_follow_each_other_on_one_link():
    case = random_case(9, batch=2)
    block, first = solo(case)
    other = random_case(10, batch=2)
    block.load(other.requests, other.logits)
    block.poison()
    block.run()
    second = block.outputs()
    wanted = expected_outputs.reference_outputs(case.w1, case.w2, other.requests, other.logits)
    assert differences(second, wanted) == []
    assert differences(second, first) != []
    assert second.stamp.tolist() == [[4, 5], [4, 5]]
    # every tile retired once a launch: the counters are multiples of what they count
    assert block.retired[:2].tolist() == [2 * 2 * 2 * case.geometry.tiles] * 2


def test_counters_may_start_at_any_multiple():
    case = random_case(11, batch=2, n_out=1)
    block = case.block(SoloLink(2))
    tiles = 2 * case.geometry.tiles
    block.retired[:2] = torch.tensor([7 * tiles, 2**40 * tiles])
    block.run()
    check(case, block.outputs())


def test_a_link_with_room_for_more_rows():
    case = random_case(12, batch=1, n_out=1)
    link = SoloLink(4)
    block = case.block(link)
    block.run()
    check(case, block.outputs())
    words = link._words.tolist()
    assert words == [POISON] * 256 + [1] * 12 + [0] * 8
    assert link.words().epochs == (2, 1, 1, 1)


def test_nothing_but_its_own_outputs_is_written():
    case = random_case(13, batch=2, n_out=2)
    block = case.block(SoloLink(2))
    block.launch(0)
    outputs = block.outputs()
    for array in (outputs.ids, outputs.token, outputs.error, outputs.stamp):
        assert (array[:, 1] == POISON_INT).all()
        assert (array[:, 0] != POISON_INT).all()
    assert np.isnan(outputs.q[:, 1]).all()
    assert (block.chain[:, 2] == POISON_INT).all()


def test_q_is_the_tickets_in_fp32():
    _, outputs = solo(plain(normal(14, 1, 60)))
    tickets = outputs.q.astype(np.float64) * TICKETS
    assert tickets.sum() == TICKETS
    assert (tickets == np.floor(tickets)).all()


def test_a_digest_covers_every_output_and_can_be_had_by_row():
    _, outputs = solo(random_case(15, batch=2))
    for name in ("ids", "q", "token", "error"):
        array = getattr(outputs, name).copy()
        array[1].view(np.int32).reshape(-1)[-1] ^= 1
        changed = dataclasses.replace(outputs, **{name: array})
        assert changed.digest() != outputs.digest()
        assert changed.digest(1) != outputs.digest(1)
        assert changed.digest(0) == outputs.digest(0)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"mode": 3}, "mode"),
        ({"mode": -1}, "mode"),
        ({"anchor": 101}, "anchor"),
        ({"anchor": -1}, "anchor"),
        ({"key": 1 << 64}, "64 bits"),
        ({"key": -1}, "64 bits"),
        ({"position": 1 << 31}, "31 bits"),
        ({"round": 1 << 32}, "32 bits"),
    ],
)
def test_bad_requests_refuse(change, match):
    case = random_case(16, batch=1)
    block = case.block(SoloLink(1))
    with pytest.raises(BadInputError, match=match):
        block.load([Request(**change)], case.logits)


def test_inputs_of_another_shape_refuse():
    case = random_case(17, batch=2)
    block = case.block(SoloLink(2))
    for requests, logits in (
        (case.requests[:1], case.logits),
        (case.requests, case.logits[:, :1]),
        (case.requests, case.logits[:, :, :-1]),
    ):
        with pytest.raises(BadInputError, match="block inputs"):
            block.load(requests, logits)


def test_logits_that_bf16_does_not_hold_refuse():
    case = random_case(18, batch=1)
    block = case.block(SoloLink(1))
    with pytest.raises(BadInputError, match="BF16 holds"):
        block.load(case.requests, case.logits + np.float32(1e-6))
    with pytest.raises(BadInputError, match="dtype"):
        block.load(case.requests, case.logits.astype(np.float64))


@pytest.mark.parametrize(
    ("more", "match"),
    [
        ({"batch": 0, "n_out": 1}, "batch"),
        ({"batch": 3, "n_out": 1}, "batch"),
        ({"batch": 1, "n_out": 0}, "n_out"),
    ],
)
def test_a_block_that_does_not_fit_its_link_refuses(more, match):
    head = random_case(19).head()
    with pytest.raises(BadInputError, match=match):
        SampledBlock(head, SoloLink(2), **more)


def test_a_head_of_one_shard_refuses_solo():
    head = random_case(20).head((1,))
    with pytest.raises(BadInputError, match="2 shards"):
        SampledBlock(head, SoloLink(1), batch=1, n_out=1)


def test_a_buffer_off_its_alignment_refuses():
    head = random_case(21).head()
    shifted = torch.zeros(head.w2.numel() + 1, dtype=torch.int32)[1:].view(head.w2.shape)
    with pytest.raises(BadInputError, match="w2: expected a contiguous buffer"):
        SampledBlock(dataclasses.replace(head, w2=shifted), SoloLink(1), batch=1, n_out=1)
