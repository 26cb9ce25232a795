"""Judges of gates 0 and 7: every branch, from facts made by hand."""

import pytest

from pp4.errors import Code
from pp4.qualify import judge
from pp4.wire.facts import (
    Library,
    Pattern,
)
from pp4.wire.gpus import Process
from tests.unit.qualify.gpus import UUIDS, gpu
from tests.unit.qualify.judged import identity


@pytest.mark.parametrize(
    ("changes", "expected", "code"),
    [
        (({}, {}), ("d0", "d1"), None),
        (({}, {}), ("d1", "d0"), Code.DEVICE_MISMATCH),
        (({}, {}), ("d0", "d2"), Code.DEVICE_MISMATCH),
        (({}, {}), ("d0",), Code.DEVICE_MISMATCH),
        (({}, {"pid": 100}), ("d0", "d1"), Code.DEVICE_MISMATCH),
        (({}, {"device": "d0"}), ("d0", "d0"), Code.DEVICE_MISMATCH),
        (({}, {"mapped": "other"}), ("d0", "d1"), Code.LIBRARY_CHANGED),
        (({}, {"mapped": "other"}), ("d1", "d0"), Code.DEVICE_MISMATCH),
        # one way alone is no pair
        (({}, {"peer_access": False}), ("d0", "d1"), Code.NO_GPU_PAIR),
        (({"peer_access": False}, {}), ("d0", "d1"), Code.NO_GPU_PAIR),
        (({"peer_access": False}, {}), ("d1", "d0"), Code.DEVICE_MISMATCH),
        (({"peer_access": False}, {"mapped": "other"}), ("d0", "d1"), Code.NO_GPU_PAIR),
    ],
)
def test_devices(changes, expected, code):
    identities = [identity(rank, **change) for rank, change in enumerate(changes)]
    assert judge.devices(identities, expected) is code


def test_one_rank_alone_is_no_pair():
    assert judge.devices([identity(0)], ("d0", "d1")) is Code.DEVICE_MISMATCH
    assert judge.devices([], ()) is Code.LIBRARY_CHANGED


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        (({}, {"device": "d0"}), None),
        # no peer is needed, so nobody asks for access
        (({"peer_access": False}, {"device": "d0", "peer_access": False}), None),
        (({}, {}), Code.DEVICE_MISMATCH),
        (({"device": "d1"}, {}), Code.DEVICE_MISMATCH),
        (({"device": "d1"}, {"device": "d1"}), Code.DEVICE_MISMATCH),
        # one process that answered twice has not agreed with anybody
        (({}, {"device": "d0", "pid": 100}), Code.DEVICE_MISMATCH),
        (({},), Code.DEVICE_MISMATCH),
        ((), Code.DEVICE_MISMATCH),
    ],
)
def test_two_processes_on_the_one_device(changes, code):
    identities = [identity(rank, **change) for rank, change in enumerate(changes)]
    assert judge.device(identities, "d0") is code


A, B = Library(name="a", sha256="1"), Library(name="b", sha256="2")


@pytest.mark.parametrize(
    ("found", "expected", "code"),
    [
        ([A, B], [A, B], None),
        ([A], [A], None),
        ([A, B], [A], Code.LIBRARY_CHANGED),
        ([A], [A, B], Code.LIBRARY_CHANGED),
        ([A, Library(name="b", sha256="3")], [A, B], Code.LIBRARY_CHANGED),
        ([], [], Code.LIBRARY_CHANGED),
        ([], [A], Code.LIBRARY_CHANGED),
    ],
)
def test_libraries(found, expected, code):
    assert judge.libraries(found, expected) is code
    assert judge.libraries(tuple(found), expected) is code


@pytest.mark.parametrize(
    ("ranks", "code"),
    [
        (["m", "m"], None),
        (["m", "x"], Code.LIBRARY_CHANGED),
        (["", ""], Code.LIBRARY_CHANGED),
        (["", "m"], Code.LIBRARY_CHANGED),
        (["m"], Code.LIBRARY_CHANGED),
        (["m", "m", "m"], Code.LIBRARY_CHANGED),
        ([], Code.LIBRARY_CHANGED),
    ],
)
def test_both_ranks_map_the_same_and_not_nothing(ranks, code):
    assert judge.mapped(ranks) is code


USED = judge.IDLE_BYTES


SOMEBODY = (Process(pid=7, used_bytes=None),)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({}, None),
        ({"memory_used_bytes": 0}, None),
        ({"memory_used_bytes": USED}, None),
        ({"memory_used_bytes": USED + 1}, Code.NOT_IDLE),
        # what is not known is not free
        ({"memory_used_bytes": None}, Code.NOT_IDLE),
        ({"processes": SOMEBODY}, Code.NOT_IDLE),
        ({"processes": None}, Code.NOT_IDLE),
        ({"mps_processes": SOMEBODY}, Code.NOT_IDLE),
        # most drivers have no answer where no such server runs
        ({"mps_processes": None}, None),
    ],
)
@pytest.mark.parametrize("place", [0, 1])
def test_idle(changes, code, place):
    gpus = [gpu(index, memory_used_bytes=USED) for index in (0, 1)]
    gpus[place] = gpu(place, **{"memory_used_bytes": USED, **changes})
    assert judge.idle(gpus) is code


def test_no_gpu_is_not_an_idle_one():
    assert judge.idle([]) is Code.NOT_IDLE


BEFORE = 100 << 20


LIMIT_OF_MEMORY = BEFORE + judge.LEFT_BYTES


@pytest.mark.parametrize(
    ("now", "above"),
    [
        (0, False),
        (BEFORE, False),
        (LIMIT_OF_MEMORY, False),
        (LIMIT_OF_MEMORY + 1, True),
        (None, True),
    ],
)
def test_each_gpu_is_held_against_its_own_baseline(now, above):
    # listed the other way round: names decide, not places
    baseline = [gpu(1, memory_used_bytes=BEFORE), gpu(0, memory_used_bytes=0)]
    quiet, watched = gpu(0, memory_used_bytes=0), gpu(1, memory_used_bytes=now)
    assert judge.above([quiet, watched], baseline) == (False, above)
    assert judge.above([watched, quiet], baseline) == (above, False)


@pytest.mark.parametrize("baseline", [[], [gpu(0)], [gpu(1, memory_used_bytes=BEFORE)]])
def test_without_a_baseline_there_was_nothing_in_use(baseline):
    assert judge.above([gpu(0, memory_used_bytes=judge.LEFT_BYTES)], baseline) == (False,)
    assert judge.above([gpu(0, memory_used_bytes=judge.LEFT_BYTES + 1)], baseline) == (True,)
    assert judge.above([gpu(0)], baseline) == (True,)
    assert gpu(0).uuid == UUIDS[0]


def tried(rank, epochs=9, mismatches=0):
    return Pattern(rank=rank, epochs=epochs, mismatches=mismatches)


@pytest.mark.parametrize(
    ("ranks", "epochs", "code"),
    [
        ([tried(0), tried(1)], 9, None),
        ([tried(0), tried(1, mismatches=1)], 9, Code.PATTERN_MISMATCH),
        ([tried(0, mismatches=1), tried(1)], 9, Code.PATTERN_MISMATCH),
        ([tried(0), tried(1, epochs=8)], 9, Code.PATTERN_MISMATCH),
        ([tried(0, epochs=8), tried(1)], 9, Code.PATTERN_MISMATCH),
        ([tried(0), tried(0)], 9, Code.PATTERN_MISMATCH),
        ([tried(0)], 9, Code.PATTERN_MISMATCH),
        ([tried(0, epochs=0), tried(1, epochs=0)], 0, Code.PATTERN_MISMATCH),
        ([], 9, Code.PATTERN_MISMATCH),
    ],
)
def test_a_pattern_is_whole_on_both_ranks_or_it_is_none(ranks, epochs, code):
    assert judge.pattern(ranks, epochs) is code


GOOD_WAYS = [[tried(0), tried(1, mismatches=1)], [tried(0, mismatches=1), tried(1)]]


@pytest.mark.parametrize(
    ("ways", "code"),
    [
        (GOOD_WAYS, Code.PATTERN_MISMATCH),
        # seen in one direction only, or by whoever wrote it, or more than was spoiled
        ([GOOD_WAYS[0], [tried(0), tried(1)]], None),
        ([[tried(0), tried(1)], GOOD_WAYS[1]], None),
        (GOOD_WAYS[::-1], None),
        ([[tried(0, mismatches=1), tried(1, mismatches=1)], GOOD_WAYS[1]], None),
        ([[tried(0), tried(1, mismatches=2)], GOOD_WAYS[1]], None),
        (GOOD_WAYS[:1], None),
        ([], None),
        # a run that was cut short shows nothing about the bit
        ([[tried(0), tried(1, epochs=8, mismatches=1)], GOOD_WAYS[1]], Code.INCOMPLETE),
        ([GOOD_WAYS[0], [tried(0, mismatches=1)]], Code.INCOMPLETE),
    ],
)
def test_a_flipped_bit_is_one_message_in_each_direction(ways, code):
    assert judge.flipped(ways, 9) is code


OTHER_A, OTHER_B = Library(name="a", sha256="x"), Library(name="b", sha256="x")


@pytest.mark.parametrize(
    ("found", "expected", "code"),
    [
        ([OTHER_A, B], [A, B], Code.LIBRARY_CHANGED),
        ([A, OTHER_B], [A, B], Code.LIBRARY_CHANGED),
        ([A, B], [A, B], None),
        ([OTHER_A, OTHER_B], [A, B], None),
        ([OTHER_A], [A, B], Code.INCOMPLETE),
        ([OTHER_A, B], [B, A], Code.INCOMPLETE),
        ([], [], Code.INCOMPLETE),
        ([OTHER_A], [], Code.INCOMPLETE),
    ],
)
def test_a_changed_byte_is_one_library_of_the_same(found, expected, code):
    assert judge.one_byte(found, expected) is code


@pytest.mark.parametrize(
    ("facts", "code"),
    [([True, True], Code.LEAK), ([True, False], None), ([False], None), ([], None)],
)
def test_a_leak_shows_in_every_place_that_can_show_it(facts, code):
    assert judge.left_behind(facts) is code
