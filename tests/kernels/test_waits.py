"""How long an exchange waited: counted where there is a wait, 0 where there is none."""

import dataclasses

import numpy as np
import pytest

from pp4.kernels.block import POISON_INT
from pp4.kernels.faults import Fault
from pp4.kernels.link import Bounds
from pp4.kernels.sampled_fused import INACTIVE, SAMPLED
from tests.kernels.cases import check, random_case, solo
from tests.kernels.pairs import Memory
from tests.kernels.test_exchange import SPLIT, START, VOCAB, OneSide, case_of, message
from tests.kernels.test_pair import wait_until

POLLS = Bounds(first_polls=7, next_polls=7)


@pytest.fixture
def side(tmp_path):
    made = []

    def make(case, bounds=POLLS):
        made.append(OneSide(tmp_path, case, bounds=bounds))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_a_message_that_is_there_takes_one_poll(side):
    case = case_of()
    one = side(case)
    one.deliver(0, message(case.logits[0, 0], SPLIT, VOCAB), START + 1)
    assert not one.run().error.any()
    assert one.block.waits().tolist() == [[1]]


def test_a_timeout_takes_what_the_first_wait_has_left(side):
    one = side(case_of())
    assert one.run().error.tolist() == [[Fault.PEER_TIMEOUT]]
    # one poll of the budget saw the acknowledgement
    assert one.block.waits().tolist() == [[6]]


def test_an_error_that_stands_already_is_not_waited_for(side):
    one = side(case_of())
    one.run()
    one.block.poison()
    assert one.run().error.tolist() == [[Fault.PEER_TIMEOUT]]
    assert one.block.waits().tolist() == [[0]]


@pytest.mark.parametrize("bounds", [POLLS, Bounds(epoch_limit=START)])
def test_what_is_not_sent_is_not_waited_for(side, bounds):
    one = side(case_of(), bounds)
    one.own.ack[0] = START - 2
    assert one.run().error.any()
    assert one.block.waits().tolist() == [[0]]


def test_padding_waits_for_nobody_and_its_neighbours_do(side):
    case = random_case(3, vocab=VOCAB, split=SPLIT, batch=3, n_out=1, start=START)
    modes = (INACTIVE, SAMPLED, INACTIVE)
    requests = [
        dataclasses.replace(request, mode=mode)
        for request, mode in zip(case.requests, modes, strict=True)
    ]
    one = side(dataclasses.replace(case, requests=requests))
    one.run()
    assert one.block.waits().tolist() == [[0], [6], [0]]


def test_solo_waits_for_nobody():
    block, _ = solo(random_case(4, batch=2, n_out=3))
    waits = block.waits()
    assert (waits.dtype, waits.tolist()) == (np.int64, [[0] * 3] * 2)


def test_waits_belong_to_their_position_and_are_poisoned():
    case = random_case(5, batch=2, n_out=3)
    block, _ = solo(case)
    block.poison()
    block.launch(1)
    assert block.waits().tolist() == [[POISON_INT, 0, POISON_INT]] * 2


def test_what_was_waited_is_a_copy_and_no_part_of_the_digest():
    block, outputs = solo(random_case(6, batch=1, n_out=1))
    copy, digest = block.waits(), outputs.digest()
    block.waited += 1
    assert copy.tolist() == [[0]]
    assert block.outputs().digest() == digest


@pytest.mark.parametrize("first", [0, 1])
def test_the_early_rank_waits_and_the_late_one_does_not(pair, first):
    case = random_case(7, batch=1, n_out=1)
    files = pair.prepare(case)
    early, late = pair.ranks[first], pair.ranks[1 - first]
    early.ask("launch", 0, 1)
    seen = Memory(files[1 - first], case.batch)
    wait_until(lambda: case.start + 1 in seen.flag)
    late.ask("launch", 0, 1)
    for rank in (early, late):
        check(case, rank.answer()[0])
    waits = pair.both("waits")
    pair.both("close")
    assert waits[first].item() > 1
    assert waits[1 - first].item() == 1


def test_on_a_gpu_the_clock_is_read_on_both_sides_of_each_poll(compiled):
    """One thread reads it, and nobody waits for it but the barrier behind the verdict."""
    for text, waits in ((compiled.pair["ptx"], 2), (compiled.solo["ptx"], 1)):
        polls = text.split("POLL:")[1:]
        before = [part.rsplit("@stop bra SHARE;", 1)[1] for part in text.split("POLL:")[:-1]]
        after = [part.split("TELL:", 1)[1].split("bar.sync 0;", 1)[0] for part in polls]
        assert len(before) == len(after) == waits
        assert all("mov.u64 entered, %globaltimer;" in part for part in before)
        for part in after:
            assert part.index("%globaltimer") < part.index("[shared_verdict]")
            assert part.index("[shared_verdict]") < part.index("[shared_waited], now")
