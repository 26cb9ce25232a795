"""Memory that an owner and its ranks share, and how a rank's outputs are read from it."""

import os

import numpy as np
import pytest

from pp4.drafter import packing
from pp4.errors import Code
from pp4.worker.release import both_ranks
from pp4.worker.serving.agreement import left_by
from pp4.worker.serving.arena import Arena, Sizes

BATCH, BLOCK, N_OUT = 3, 5, 4
STAMPS = ((8, 9, 10, 11), (7, 7, 7, 7), (8, 9, 10, 11))


@pytest.fixture
def arena():
    return Arena(Sizes(batch=BATCH, block=BLOCK, features=1000))


def fill(arena, rank, batch=BATCH):
    """A clean block of a rank; -> its rows, to be changed in place."""
    whole = arena.output_bytes(rank, batch)
    whole[:] = 0
    size = batch * packing.row_type(BLOCK).itemsize
    rows = whole[:size].view(packing.row_type(BLOCK))
    rows["token"][:, :N_OUT] = np.arange(batch * N_OUT).reshape(batch, N_OUT)
    rows["stamp"][:, :N_OUT] = STAMPS[:batch]
    return rows, whole[size:].view(np.int64)


def judged(arena):
    left = [left_by(arena, rank, BATCH, N_OUT)[1] for rank in (0, 1)]
    return both_ranks(left, STAMPS)


def test_places_do_not_overlap(arena):
    places = [
        arena.input_bytes(BATCH),
        arena.output_bytes(0, BATCH),
        arena.output_bytes(1, BATCH),
        arena.feature_bytes(1000),
    ]
    for number, place in enumerate(places):
        place[:] = number + 1
    assert [set(place.tolist()) for place in places] == [{1}, {2}, {3}, {4}]


def test_what_a_forked_process_writes_is_seen(arena):
    pid = os.fork()
    if pid == 0:
        arena.output_bytes(1, BATCH)[:4] = (1, 2, 3, 4)
        os._exit(0)
    os.waitpid(pid, 0)
    assert arena.output_bytes(1, BATCH)[:4].tolist() == [1, 2, 3, 4]


def test_equal_clean_outputs_leave(arena):
    for rank in (0, 1):
        fill(arena, rank)
    assert judged(arena).released


@pytest.mark.parametrize("member", ["ids", "q", "token", "confidence"])
def test_one_value_that_differs_keeps_everything(arena, member):
    fill(arena, 0)
    rows, _ = fill(arena, 1)
    rows[member].reshape(BATCH, -1)[2, 1] += 1
    assert judged(arena).why is Code.RANKS_DIFFER


@pytest.mark.parametrize("rank", [0, 1])
def test_a_stamp_that_was_not_written_keeps_everything(arena, rank):
    rows = [fill(arena, one)[0] for one in (0, 1)]
    rows[rank]["stamp"][0, 3] -= 1
    assert judged(arena).why is Code.INCOMPLETE


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(
    ("place", "word", "why"),
    [
        (0, 3, Code.PEER_TIMEOUT),  # own error
        (1 + 4, 1, Code.PROTOCOL),  # the peer's word of fault 4
        (1 + 7, 1, Code.PROTOCOL),  # a word that no peer of ours writes
    ],
)
def test_a_word_of_error_keeps_everything(arena, rank, place, word, why):
    tails = [fill(arena, one)[1] for one in (0, 1)]
    tails[rank][place] = word
    assert judged(arena).why is why


def test_the_gravest_row_names_the_fault(arena):
    rows = [fill(arena, one)[0] for one in (0, 1)]
    rows[0]["error"][0, 0], rows[1]["error"][2, 1] = 1, 2
    assert judged(arena).why is Code.BAD_LOGITS


def test_positions_that_were_not_asked_for_are_not_looked_at_for_stamps(arena):
    for rank in (0, 1):
        rows, _ = fill(arena, rank)
        rows["stamp"][:, N_OUT:] = 0
    assert judged(arena).released
