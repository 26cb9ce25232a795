"""Every judge, every branch, from facts made by hand."""

import pytest

from pp4.errors import Code
from pp4.qualify import judge
from pp4.wire.facts import (
    BUCKETS,
    Case,
    Expectation,
    Identity,
    Library,
    Pattern,
    Primed,
    Selected,
    Stream,
    Streamed,
)
from pp4.wire.gpus import Process
from tests.unit.qualify.gpus import UUIDS, gpu
from tests.unit.wire.examples import STAMPS, block, exchange, kept

POISON = -77


def identity(rank, **changes):
    given = {
        "rank": rank,
        "pid": 100 + rank,
        "device": f"d{rank}",
        "device_name": "n",
        "peer_access": True,
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


# -- what the driver says ---------------------------------------------------------------------

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


KERNEL = {"code": "UNPRIMED", "where": "kernel sampled_fused"}


@pytest.mark.parametrize(
    ("refusals", "code"),
    [
        ([KERNEL, KERNEL], Code.UNPRIMED),
        ([KERNEL, None], None),
        ([None, None], None),
        ([KERNEL], None),
        ([], None),
        # the same code where priming itself came to nothing, or there is no rendezvous
        ([KERNEL, {**KERNEL, "where": "block"}], None),
        ([{**KERNEL, "where": "block"}] * 2, None),
        ([{**KERNEL, "where": "link"}] * 2, None),
        ([{**KERNEL, "code": "INTERNAL"}] * 2, None),
    ],
)
def test_unprimed_is_refused_by_the_kernel_on_both_ranks(refusals, code):
    assert judge.unprimed(refusals) is code


def one_primed(rank, **changes):
    given = {
        "rank": rank,
        "key": "k",
        "target": "sm_90",
        "ptx_sha256": "p",
        "cubin_sha256": "c",
        "faults": (),
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


@pytest.mark.parametrize(
    ("change", "cached", "code"),
    [
        ({}, (3, 3), None),
        ({"ptx_sha256": "x"}, (3, 3), Code.KERNELS_DIFFER),
        ({"cubin_sha256": "x"}, (3, 3), Code.KERNELS_DIFFER),
        ({}, (3, 4), Code.COMPILED_AFTER_PRIMING),
        ({}, (0, 0), Code.COMPILED_AFTER_PRIMING),
    ],
)
def test_a_shape_compiled_again_is_what_was_primed(change, cached, code):
    primed = [one_primed(0), one_primed(1)]
    again = [one_primed(0), one_primed(1, **change)]
    assert judge.one_specialisation(again, primed, cached) is code


def test_without_anything_primed_nothing_is_the_same():
    ones = [one_primed(0), one_primed(1)]
    assert judge.one_specialisation(ones, (), (3, 3)) is Code.KERNELS_DIFFER
    assert judge.one_specialisation((), (), (3, 3)) is Code.KERNELS_DIFFER
    assert judge.one_specialisation(ones[:1], ones, (3, 3)) is Code.KERNELS_DIFFER


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


def sampled(rank, tokens=((1, 2), (3, 4)), **changes):
    return Selected(
        rank=rank,
        path="sampled",
        same_objects=False,
        tokens=tokens,
        q_zero=False,
        block=block(rank, **changes),
    )


GONE_WRONG = ((-1, -1), (-1, -1))


@pytest.mark.parametrize(
    ("ranks", "released", "why", "code"),
    [
        ([sampled(0), sampled(1)], True, "", None),
        ([sampled(0), sampled(1)], False, "BAD_LOGITS", Code.BAD_LOGITS),
        ([sampled(0), sampled(1)], False, "", Code.INCOMPLETE),
        ([sampled(0), sampled(1, own_error=2)], True, "", ONE_WORD),
        ([sampled(0), sampled(1, errors=((0, 0), (0, 2)))], True, "", ONE_WORD),
        ([sampled(0)], True, "", ONE_WORD),
        ([sampled(0), ARGMAX], True, "", ONE_WORD),
        ([sampled(0), sampled(0)], True, "", ONE_WORD),
        ([], True, "", ONE_WORD),
        ([sampled(0), sampled(1, stamps=((11, 12), (21, 20)))], True, "", Code.INCOMPLETE),
        ([sampled(0), sampled(1, stamps=((11, 12), ()))], True, "", Code.INCOMPLETE),
        ([sampled(0), sampled(1, epochs=(12,))], True, "", Code.INCOMPLETE),
        ([sampled(0), sampled(1, digest="x")], True, "", Code.RANKS_DIFFER),
        (
            [sampled(0, digest="x"), sampled(1, digest="x")],
            True,
            "",
            Code.OUTPUT_MISMATCH,
        ),
        ([sampled(0), sampled(1, GONE_WRONG)], True, "", Code.OUTPUT_MISMATCH),
    ],
)
def test_what_the_branch_samples_is_judged_like_any_block(ranks, released, why, code):
    assert judge.selected(ranks, released, why, expectation()) is code


# -- streams ----------------------------------------------------------------------------------

ASKED = Stream(batch=2, n_out=3, cached="mixed", seed=1, blocks=4)


def stream_of(rank, **changes):
    """What a rank reports of a stream in which nothing went wrong."""
    given = {
        "rank": rank,
        "blocks": 4,
        "rows": 24,
        "mismatches": 0,
        "first_mismatch": (),
        "inputs": "i",
        "outputs": "o",
        "waits": (0,) * BUCKETS,
        "own_error": 0,
        "peer_error": 0,
        "elapsed_ns": 1,
    }
    return Streamed(**{**given, **changes})


WRONG_STREAMS = [
    ({"mismatches": 1, "first_mismatch": (3, 1, 2)}, Code.OUTPUT_MISMATCH),
    ({"blocks": 3, "rows": 18}, Code.INCOMPLETE),
    ({"blocks": 3}, Code.INCOMPLETE),
    ({"blocks": 5}, Code.INCOMPLETE),
    ({"rows": 23}, Code.INCOMPLETE),
    ({"rows": 25}, Code.INCOMPLETE),
    ({"rows": 0}, Code.INCOMPLETE),
    ({"inputs": "x"}, Code.RANKS_DIFFER),
    ({"outputs": "x"}, Code.RANKS_DIFFER),
    ({"own_error": 2}, Code.BAD_LOGITS),
    ({"peer_error": 2}, Code.BAD_LOGITS),
    # the graver of two words, and a word before what it led to
    ({"own_error": 2, "peer_error": 4}, Code.PROTOCOL),
    ({"own_error": 3, "blocks": 1, "rows": 6, "mismatches": 2, "inputs": "x"}, Code.PEER_TIMEOUT),
    ({"blocks": 3, "mismatches": 1}, Code.INCOMPLETE),
    ({"mismatches": 1, "outputs": "x"}, Code.OUTPUT_MISMATCH),
]


@pytest.mark.parametrize(
    ("changes", "code"), [({}, None), ({"elapsed_ns": 9}, None), *WRONG_STREAMS]
)
@pytest.mark.parametrize("rank", [0, 1])
def test_streamed(changes, code, rank):
    ranks = [stream_of(one, **(changes if one == rank else {})) for one in (0, 1)]
    assert judge.streamed(ranks, ASKED) is code


def test_words_of_both_ranks_count():
    ranks = [stream_of(0, own_error=3), stream_of(1, own_error=5)]
    assert judge.streamed(ranks, ASKED) is Code.EPOCH_EXHAUSTED
    assert judge.streamed(ranks[:1], ASKED, solo=True) is Code.PEER_TIMEOUT


@pytest.mark.parametrize("ranks", [(), (0,), (1,), (1, 0), (0, 0), (1, 1), (0, 1, 1)])
def test_a_stream_of_a_pair_is_told_by_both_ranks(ranks):
    assert judge.streamed([stream_of(rank) for rank in ranks], ASKED) is Code.RANK_DIED


@pytest.mark.parametrize("ranks", [(), (1,), (0, 1), (0, 0)])
def test_a_stream_of_one_gpu_is_told_by_one_rank(ranks):
    assert judge.streamed([stream_of(rank) for rank in ranks], ASKED, solo=True) is Code.RANK_DIED


@pytest.mark.parametrize(("changes", "code"), [({}, None), *WRONG_STREAMS])
def test_a_stream_of_one_gpu_is_judged_alike_but_has_nobody_to_agree_with(changes, code):
    wanted = None if code is Code.RANKS_DIFFER else code
    assert judge.streamed([stream_of(0, **changes)], ASKED, solo=True) is wanted


def by(way, digest="d"):
    return Expectation(by=way, digest=digest, rows=(), tokens=())


WAYS = ("reference", "vectorised")


@pytest.mark.parametrize(
    ("expected", "code"),
    [
        ([by("reference"), by("vectorised")], None),
        ([by("reference"), by("vectorised", "x")], Code.OUTPUT_MISMATCH),
        ([by("reference", "x"), by("vectorised")], Code.OUTPUT_MISMATCH),
        # one way that was asked twice agrees with itself
        ([by("reference"), by("reference")], Code.OUTPUT_MISMATCH),
        ([by("vectorised"), by("vectorised")], Code.OUTPUT_MISMATCH),
        ([by("vectorised"), by("reference")], Code.OUTPUT_MISMATCH),
        ([by("reference")], Code.OUTPUT_MISMATCH),
        ([by("vectorised")], Code.OUTPUT_MISMATCH),
        ([by("reference"), by("vectorised"), by("solo")], Code.OUTPUT_MISMATCH),
        ([], Code.OUTPUT_MISMATCH),
    ],
)
def test_all_ways_that_were_asked_for_agree(expected, code):
    assert judge.agree(expected, WAYS) is code


def test_nothing_agrees_with_nothing():
    assert judge.agree([], ()) is Code.OUTPUT_MISMATCH


# -- waits that run out -----------------------------------------------------------------------


def waiting(*ranks):
    """An exchange that was kept: how long each rank waited, and which positions timed out."""
    blocks = [
        late(rank, waited=waited, errors=errors) for rank, (waited, errors) in enumerate(ranks)
    ]
    return kept("PEER_TIMEOUT").model_copy(update={"blocks": tuple(blocks)})


def at_once(wait):
    """A rank that gave up at its first position."""
    return ((wait, 0), (0, 0)), ((3, 3), (3, 3))


def later(wait, before=0):
    """A rank that gave up at its second position."""
    return ((before, wait), (0, 0)), ((0, 3), (0, 3))


NOT_LATE = ((0, 0), (0, 0)), ((0, 0), (0, 0))

# the bound of a GPU in nanoseconds, one in polls, one so small that a tenth of it is none
BUDGETS = [20_000_000, 4000, 5]


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize(
    ("share", "more", "code"),
    [
        (0, 0, None),
        (1, 0, None),
        (-1, 0, None),
        (1, 1, Code.WAIT_NOT_BOUNDED),
        (-1, -1, Code.WAIT_NOT_BOUNDED),
    ],
)
@pytest.mark.parametrize("rank", [at_once, later])
def test_a_wait_runs_out_within_a_tenth_of_its_budget(budget, share, more, code, rank):
    wait = budget + share * (budget // 10) + more
    for ranks in ([rank(wait), NOT_LATE], [NOT_LATE, rank(wait)], [rank(0), rank(wait)]):
        assert judge.ran_out(waiting(*ranks), budget) is code


@pytest.mark.parametrize("budget", BUDGETS)
def test_no_rank_waits_for_longer_and_some_rank_for_as_long(budget):
    beyond, unbounded = 2 * budget, Code.WAIT_NOT_BOUNDED
    assert judge.ran_out(waiting(at_once(budget), at_once(beyond)), budget) is unbounded
    assert judge.ran_out(waiting(at_once(beyond), at_once(budget)), budget) is unbounded
    assert judge.ran_out(waiting(at_once(0), at_once(0)), budget) is unbounded
    # where nobody gave up, no wait ran out, however long one took
    slow = ((budget, budget), (budget, 0)), ((0, 0), (0, 0))
    assert judge.ran_out(waiting(slow, slow), budget) is unbounded
    assert judge.ran_out(waiting(), budget) is unbounded


def test_a_wait_counts_where_its_rank_gave_up():
    """The first exchange has a larger budget: it may take longer than the one that ran out."""
    assert judge.ran_out(waiting(later(100, before=5000), NOT_LATE), 100) is None
    assert judge.ran_out(waiting(later(5000, before=100), NOT_LATE), 100) is Code.WAIT_NOT_BOUNDED
    # a position after the one that failed waits for nobody
    after = ((100, 5000), (0, 0)), ((3, 3), (3, 3))
    assert judge.ran_out(waiting(after, NOT_LATE), 100) is None


def unsaid(mine=None, other=None):
    """Rank 1 found NaN at its second position and told nobody; rank 0 waited for it."""
    waits = {"waited": ((0, 100), (0, 0)), "errors": ((0, 3), (0, 3)), "own_error": 3}
    told = {"own_error": 2, "errors": ((0, 2), (0, 2))}
    blocks = block(0, **{**waits, **(other or {})}), block(1, **{**told, **(mine or {})})
    return kept("BAD_LOGITS", *blocks)


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (unsaid(), Code.WRONG_ERROR_WORD),
        # told after all
        (unsaid(other={"own_error": 2, "errors": ((0, 2), (0, 2))}), Code.INCOMPLETE),
        (unsaid(other={"own_error": 0, "errors": ((0, 0), (0, 0))}), Code.INCOMPLETE),
        # never found
        (unsaid(mine={"own_error": 0, "errors": ((0, 0), (0, 0))}), Code.INCOMPLETE),
        (unsaid(mine={"own_error": 3}), Code.INCOMPLETE),
        # the position before was not clean
        (unsaid(mine={"errors": ((2, 2), (2, 2))}), Code.INCOMPLETE),
        (unsaid(other={"errors": ((3, 3), (3, 3)), "waited": ((100, 0), (0, 0))}), Code.INCOMPLETE),
        # the other one waited for nothing
        (unsaid(other={"waited": ((0, 1), (0, 0))}), Code.INCOMPLETE),
        (kept("BAD_LOGITS", unsaid().blocks[1]), Code.RANK_DIED),
        (kept("BAD_LOGITS", *unsaid().blocks[::-1]), Code.RANK_DIED),
    ],
)
def test_a_fault_that_was_kept_to_itself_leaves_its_peer_waiting(found, code):
    assert judge.kept_to_itself(found, 1, 100) is code


def test_who_waited_longer_is_told_by_the_first_exchange():
    one, other = (block(0, waited=((wait, 9 - wait),)) for wait in (5, 4))
    assert judge.waited_longer(one, other)
    assert not judge.waited_longer(other, one)
    assert not judge.waited_longer(one, one)


def test_the_longest_wait_is_that_of_any_row_and_position():
    assert judge.longest(block(0, waited=((1, 2), (9, 3)))) == 9
    assert judge.longest(block(0, waited=((), (4,)))) == 4
    assert judge.longest(block(0, waited=())) == 0


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
LIMIT = 1000


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
    assert judge.failed_closed(found, TIMEOUT, LIMIT, died) is code


def test_nobody_who_speaks_has_not_failed_closed():
    silent = kept(TIMEOUT).model_copy(update={"blocks": ()})
    assert judge.failed_closed(silent, TIMEOUT, LIMIT) is Code.RANK_DIED


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(("took", "code"), [(LIMIT, None), (LIMIT + 1, Code.WAIT_NOT_BOUNDED)])
def test_a_wait_without_a_bound_is_no_failing_closed(rank, took, code):
    slow = [late(one, elapsed_ns=took if one == rank else 1) for one in (0, 1)]
    assert judge.failed_closed(kept(TIMEOUT, *slow), TIMEOUT, LIMIT) is code


def flawed(*rows):
    return kept(
        "BAD_LOGITS", *(block(rank, own_error=2, errors=row) for rank, row in enumerate(rows))
    )


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (flawed(((0, 2, 2),), ((0, 2, 2),)), None),
        (flawed(((0, 2),), ((0, 2),)), None),
        (flawed(((0, 2, 2),), ((2, 2, 2),)), Code.WRONG_ERROR_WORD),
        (flawed(((0, 2, 2),), ((0, 0, 2),)), Code.WRONG_ERROR_WORD),
        (flawed(((0, 2, 2),), ((0, 3, 3),)), Code.WRONG_ERROR_WORD),
        (flawed(((0, 3, 3),), ((0, 3, 3),)), Code.WRONG_ERROR_WORD),
        (flawed(((0,),), ((0,),)), Code.WRONG_ERROR_WORD),
        (flawed((), ((0, 2, 2),)), Code.WRONG_ERROR_WORD),
        (flawed(((0, 2, 2),)), Code.WRONG_ERROR_WORD),
        (flawed(), Code.WRONG_ERROR_WORD),
    ],
)
def test_a_fault_shows_from_its_position_on_and_on_both_ranks(found, code):
    assert judge.inside(found, Code.BAD_LOGITS) is code


NOTHING, WAITED = ((0, 0), (0, 0)), ((0, 1), (0, 0))


def still(rank, **changes):
    """A rank that failed before and was launched again: it waits for nobody."""
    return late(rank, **{"waited": NOTHING, **changes})


@pytest.mark.parametrize(
    ("blocks", "ranks", "code"),
    [
        ([still(0, elapsed_ns=LIMIT), still(1)], (0, 1), None),
        ([still(0)], (0,), None),
        # waited again, which ends in the very same word
        ([still(0), still(1, waited=WAITED)], (0, 1), Code.STICKY),
        ([still(0, waited=WAITED), still(1)], (0, 1), Code.STICKY),
        ([still(0, waited=WAITED)], (0,), Code.STICKY),
        ([still(0), still(1, elapsed_ns=LIMIT + 1)], (0, 1), Code.WAIT_NOT_BOUNDED),
        ([still(0), still(1, own_error=2)], (0, 1), Code.WRONG_ERROR_WORD),
        ([still(0), still(1, errors=((3, 0), (3, 3)))], (0, 1), Code.STICKY),
        ([still(0)], (0, 1), Code.RANK_DIED),
        ([], (0,), Code.RANK_DIED),
    ],
)
def test_a_failed_rank_that_is_launched_again_waits_for_nobody(blocks, ranks, code):
    assert judge.stuck(blocks, ranks, TIMEOUT, LIMIT) is code


def test_whatever_the_fault_was_nobody_waits_for_it_again():
    again = {"own_error": 2, "errors": ((2, 2), (2, 2))}
    assert judge.stuck([still(0, **again)], (0,), Code.BAD_LOGITS, LIMIT) is None
    waiting_again = [still(0, **again, waited=WAITED)]
    assert judge.stuck(waiting_again, (0,), Code.BAD_LOGITS, LIMIT) is Code.STICKY


def answered(**changes):
    """Rank 0 has given up, rank 1 comes late with a clean answer."""
    return kept(TIMEOUT, late(0), block(1, **{"peer_error": 3, **changes}))


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (answered(), TIMEOUT),
        (answered().model_copy(update={"released": True}), Code.RELEASED_AFTER_ERROR),
        (kept("PROTOCOL", *answered().blocks), Code.PROTOCOL),
        # a late rank that failed as well shows nothing about late answers
        (answered(own_error=3), None),
        (answered(errors=((0, 0), (0, 3))), None),
        (answered(stamps=((1, 2), (3, 9))), None),
        (answered(stamps=()), None),
        (answered(elapsed_ns=LIMIT + 1), None),
        (kept(TIMEOUT, block(0), block(1, peer_error=3)), None),
        (kept(TIMEOUT, late(0)), None),
        (kept(TIMEOUT, late(0), died=(1,)), None),
        (kept(TIMEOUT), None),
    ],
)
def test_a_late_answer_is_kept_only_if_there_was_one(found, code):
    assert judge.late_answer(found, 1, LIMIT) is code


HEAD = Code.UNSUPPORTED_HEAD_MODE


@pytest.mark.parametrize(
    ("found", "code"),
    [
        ([HEAD, HEAD], None),
        ([HEAD, None], Code.NOT_ORIGINAL),
        ([HEAD, Code.UNPRIMED], Code.NOT_ORIGINAL),
        ([None, None], Code.NOT_ORIGINAL),
        ([HEAD], Code.NOT_ORIGINAL),
        ([], Code.NOT_ORIGINAL),
    ],
)
def test_a_refusal_by_another_name_is_not_called_by_the_wanted_one(found, code):
    assert judge.refused(found, HEAD) is code


@pytest.mark.parametrize(
    ("facts", "code"),
    [([True, True], Code.LEAK), ([True, False], None), ([False], None), ([], None)],
)
def test_a_leak_shows_in_every_place_that_can_show_it(facts, code):
    assert judge.left_behind(facts) is code


def test_the_examples_are_healthy():
    """Every case above spoils one detail of these; that they pass is what makes the rest mean."""
    assert judge.healthy(exchange()) is None
    assert exchange().expected_stamps == STAMPS
