"""Every judge, every branch, from facts made by hand."""

import pytest

from pp4.errors import Code
from pp4.qualify import judge
from pp4.wire.facts import Case, Expectation, Identity, Library, Primed, Selected
from tests.unit.wire.examples import STAMPS, block, exchange, kept

POISON = -77


def identity(rank, **changes):
    given = {
        "rank": rank,
        "pid": 100 + rank,
        "device": f"d{rank}",
        "device_name": "n",
        "python": "3",
        "torch": "2",
        "triton": "3",
        "mapped": "m",
    }
    return Identity(**{**given, **changes})


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
    ],
)
def test_devices(changes, expected, code):
    identities = [identity(rank, **change) for rank, change in enumerate(changes)]
    assert judge.devices(identities, expected) is code


def test_one_rank_alone_is_no_pair():
    assert judge.devices([identity(0)], ("d0", "d1")) is Code.DEVICE_MISMATCH
    assert judge.devices([], ()) is Code.LIBRARY_CHANGED


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


def one_primed(rank, **changes):
    given = {
        "rank": rank,
        "key": "k",
        "target": "sm_90",
        "ptx_sha256": "p",
        "cubin_sha256": "c",
        "primed_ns": 10 + rank,
    }
    return Primed(**{**given, **changes})


@pytest.mark.parametrize(
    ("change", "first_launch", "meanwhile", "code"),
    [
        ({}, 11, "UNPRIMED", None),
        ({}, 12, "UNPRIMED", None),
        ({}, 10, "UNPRIMED", Code.LAUNCHED_BEFORE_PRIMED),
        ({}, 12, "", Code.LAUNCHED_BEFORE_PRIMED),
        ({}, 12, "STICKY", Code.LAUNCHED_BEFORE_PRIMED),
        ({"key": "x"}, 12, "UNPRIMED", Code.KERNELS_DIFFER),
        ({"ptx_sha256": "x"}, 12, "UNPRIMED", Code.KERNELS_DIFFER),
        ({"cubin_sha256": "x"}, 12, "UNPRIMED", Code.KERNELS_DIFFER),
        ({"key": "x"}, 0, "", Code.KERNELS_DIFFER),
    ],
)
def test_primed(change, first_launch, meanwhile, code):
    ones = [one_primed(0), one_primed(1, **change)]
    assert judge.primed(ones, first_launch, meanwhile) is code


@pytest.mark.parametrize("count", [0, 1, 3])
def test_primed_needs_two(count):
    ones = [one_primed(0)] * count
    assert judge.primed(ones, 99, "UNPRIMED") is Code.KERNELS_DIFFER


ONE_WORD = Code.RELEASED_ON_ONE_WORD


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (exchange(), None),
        (exchange(block(1), block(0)), None),
        (kept("PEER_TIMEOUT", block(0, own_error=3)), None),
        (exchange(block(0)), ONE_WORD),
        (exchange(block(0), block(0)), ONE_WORD),
        (exchange(block(0), block(1), block(1)), ONE_WORD),
        (exchange(block(0), block(1, own_error=3)), ONE_WORD),
        (exchange(block(0, peer_error=3), block(1)), ONE_WORD),
        (exchange(block(0), block(1, errors=((0, 0), (0, 2)))), ONE_WORD),
        (exchange(block(0, errors=((POISON, 0), (0, 0))), block(1)), ONE_WORD),
    ],
)
def test_release(found, code):
    assert judge.release(found) is code


def test_a_release_without_any_report_is_on_nobodys_word():
    nothing = exchange().model_copy(update={"blocks": ()})
    assert judge.release(nothing) is ONE_WORD


HEALTHY = [
    (exchange(), None),
    (exchange(block(0)), ONE_WORD),
    (kept("PEER_TIMEOUT"), Code.PEER_TIMEOUT),
    (kept("INCOMPLETE"), Code.INCOMPLETE),
    (kept("RANKS_DIFFER"), Code.RANKS_DIFFER),
    (exchange(block(0), block(1, stamps=((1, 2), (3, 4)))), Code.INCOMPLETE),
    (exchange(block(0, stamps=()), block(1, stamps=())), Code.INCOMPLETE),
    (exchange(block(0), block(1, digest="x")), Code.RANKS_DIFFER),
]


@pytest.mark.parametrize(("found", "code"), HEALTHY)
def test_healthy(found, code):
    assert judge.healthy(found) is code


def expectation(digest="d" * 64, rows=("row-0", "row-1")):
    return Expectation(by="reference", digest=digest, rows=rows, tokens=((1, 2), (3, 4)))


@pytest.mark.parametrize(
    ("found", "expected", "code"),
    [
        *[(found, [expectation()], code) for found, code in HEALTHY],
        (exchange(), [expectation(), expectation()], None),
        (exchange(), [expectation(), expectation("x")], Code.OUTPUT_MISMATCH),
        (exchange(), [expectation("x"), expectation()], Code.OUTPUT_MISMATCH),
    ],
)
def test_equal(found, expected, code):
    assert judge.equal(found, expected) is code


def test_equal_to_nothing_is_not_equal():
    """No expectation is no evidence: an empty list must not pass for every output."""
    assert judge.equal(exchange(), []) is Code.OUTPUT_MISMATCH


CASE = Case(batch=2, n_out=2, seed=1, modes=(1, 2))
ARGMAX = Selected(rank=0, path="original", same_objects=True, tokens=((9, 9), (3, 4)), q_zero=True)


def pair_of(**changes):
    return exchange(block(0, **changes), block(1, **changes))


@pytest.mark.parametrize(
    ("found", "expected", "greedy", "code"),
    [
        (pair_of(q_zero=(0, 1)), expectation(), ARGMAX, None),
        (kept("BAD_LOGITS"), expectation(), ARGMAX, Code.BAD_LOGITS),
        (
            pair_of(q_zero=(0, 1)),
            expectation(rows=("x", "row-1")),
            ARGMAX,
            Code.OUTPUT_MISMATCH,
        ),
        (pair_of(q_zero=(0, 0)), expectation(), ARGMAX, Code.T0_DREW),
        (pair_of(q_zero=(1, 0)), expectation(), ARGMAX, Code.T0_DREW),
        (
            pair_of(q_zero=(0, 1)),
            expectation(),
            ARGMAX.model_copy(update={"tokens": ((1, 2), (3, 5))}),
            Code.T0_NOT_ARGMAX,
        ),
        # the greedy row differs from the reference in what only the digest shows
        (pair_of(q_zero=(0, 1)), expectation("x"), ARGMAX, Code.OUTPUT_MISMATCH),
    ],
)
def test_mixed(found, expected, greedy, code):
    assert judge.mixed(found, expected, greedy, CASE) is code


@pytest.mark.parametrize(
    ("before", "after", "changed", "code"),
    [
        (("a", "b", "c"), ("a", "x", "c"), 1, None),
        (("a", "b", "c"), ("a", "b", "c"), 1, None),
        (("a", "b", "c"), ("x", "b", "c"), 1, Code.NEIGHBOUR_CHANGED),
        (("a", "b", "c"), ("a", "x", "x"), 1, Code.NEIGHBOUR_CHANGED),
        (("a", "b", "c"), ("a", "x", "c"), 0, Code.NEIGHBOUR_CHANGED),
    ],
)
def test_neighbours(before, after, changed, code):
    one, other = block(0, rows=before), block(0, rows=after)
    assert judge.neighbours(one, other, changed) is code


def test_neighbours_of_different_batches_do_not_compare():
    with pytest.raises(ValueError, match="argument 2 is longer"):
        judge.neighbours(block(0, rows=("a",)), block(0, rows=("a", "b")), 0)


TIMEOUT = Code.PEER_TIMEOUT


def late(rank, **changes):
    return block(rank, **{"own_error": 3, "errors": ((3, 3), (3, 3)), **changes})


@pytest.mark.parametrize(
    ("found", "died", "code"),
    [
        (kept(TIMEOUT, late(0), late(1)), (), None),
        (kept(TIMEOUT, late(0), late(1, own_error=0, peer_error=3)), (), None),
        (kept(TIMEOUT, late(0), order=(0,)), (), None),
        (kept(TIMEOUT, late(0), died=(1,)), (1,), None),
        (exchange(late(0), late(1)), (), Code.RELEASED_AFTER_ERROR),
        (exchange(), (), Code.RELEASED_AFTER_ERROR),
        (kept("BAD_LOGITS", late(0), late(1)), (), Code.WRONG_ERROR_WORD),
        (kept(TIMEOUT, late(0), late(1, own_error=0)), (), Code.WRONG_ERROR_WORD),
        (kept(TIMEOUT, late(0), late(1, own_error=5)), (), Code.WRONG_ERROR_WORD),
        (kept(TIMEOUT, late(0)), (), Code.RANK_DIED),
        (kept(TIMEOUT, late(0), died=(1,)), (), Code.RANK_DIED),
        (kept(TIMEOUT, late(0), late(1)), (1,), Code.RANK_DIED),
        (kept(TIMEOUT, late(0), late(0)), (), Code.RANK_DIED),
        (kept(TIMEOUT, late(1), order=(0,)), (), Code.RANK_DIED),
    ],
)
def test_failed_closed(found, died, code):
    assert judge.failed_closed(found, TIMEOUT, died) is code


def test_nobody_who_speaks_has_not_failed_closed():
    silent = kept(TIMEOUT).model_copy(update={"blocks": ()})
    assert judge.failed_closed(silent, TIMEOUT) is Code.RANK_DIED


def test_the_examples_are_healthy():
    """Every case above spoils one detail of these; that they pass is what makes the rest mean."""
    assert judge.healthy(exchange()) is None
    assert exchange().expected_stamps == STAMPS
