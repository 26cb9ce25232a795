"""Streams of rows: how many are asked for, and that no way to be wrong in one is passed over."""

from dataclasses import replace
from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pp4.clock import ManualClock
from pp4.errors import Code, WrongError
from pp4.qualify.arms import found
from pp4.qualify.context import Context
from pp4.qualify.gates import KERNELS, streams
from pp4.qualify.pair_qualify import ArmResult, plan
from pp4.qualify.settings import REHEARSAL
from pp4.qualify.soak import result, with_soak
from pp4.wire.facts import BUCKETS, Expectation, Streamed
from tests.unit.qualify.fakes import Hold

CACHED = ("none", "mixed", "most", "all")
SETTINGS = replace(REHEARSAL, more_shapes=(REHEARSAL.late_shape,), streamed_rows=100)
SHAPES = (SETTINGS.shape, *SETTINGS.more_shapes)
KINDS = list(product(SHAPES, SETTINGS.batches, CACHED))


def one_stream(asked, rank, **changes):
    """What a rank says of a stream that it went through."""
    given = {
        "rank": rank,
        "blocks": asked["blocks"],
        "rows": asked["blocks"] * asked["batch"] * asked["n_out"],
        "mismatches": 0,
        "first_mismatch": (),
        "inputs": f"inputs of {asked['seed']}",
        "outputs": f"outputs of {asked['seed']}",
        "waits": (0,) * 7 + (asked["blocks"],) + (0,) * (BUCKETS - 8),
        "own_error": 0,
        "peer_error": 0,
        "elapsed_ns": 1,
    }
    return Streamed(**{**given, **changes}).model_dump(mode="json")


def streams_of(asked, changes=None):
    """What both ranks answer; ``changes`` by rank."""
    return tuple(
        {"facts": one_stream(asked, rank, **(changes or {}).get(rank, {})), "refusal": None}
        for rank in (0, 1)
    )


class Streaming:
    """A session whose pair goes through streams; one of them may be spoiled."""

    def __init__(self, spoiled=None, place=0, clock=None):
        self.spoiled, self.place, self.clock = spoiled or {}, place, clock
        self.primed, self.asked, self.limits, self.links = [], [], [], 0

    def ready(self, shape, controls):
        return bool(self.primed) and self.primed[-1] == shape

    def start(self):
        """A pair."""

    def prime(self, shape, **how):
        self.primed.append(shape)

    def link(self, rows, waits):
        self.links += 1

    def _answers(self, asked, limit_s):
        spoiled = self.spoiled if len(self.asked) == self.place else {}
        self.asked.append((self.primed[-1], asked))
        self.limits.append(limit_s)
        if self.clock is not None:
            self.clock.advance(10.0)
        return streams_of(asked, spoiled)

    def both(self, verb, first, second=None, *, limit_s):
        assert (verb, second) == ("stream", None)
        return self._answers(first, limit_s)

    def one(self, rank, verb, arguments, *, limit_s):
        assert (rank, verb) == (0, "stream")
        return self._answers(arguments, limit_s)[0]


@pytest.fixture
def hold(tmp_path):
    hold = Hold(tmp_path)
    yield hold
    hold.journal.close()


def many(hold, session, settings=SETTINGS):
    """Run the arm; -> its finding."""
    context = Context(hold, settings)
    context._session = session
    (arm,) = (arm for arm in streams.ARMS if arm.step.arm == "many-rows")
    return arm.run(context)


def test_every_vocabulary_batch_and_kind_of_row_is_streamed_once(hold):
    session = Streaming()
    finding = many(hold, session)
    assert finding.code is None
    found = [(shape, one["batch"], one["cached"]) for shape, one in session.asked]
    assert found == KINDS
    # one pair for each vocabulary, which goes through all of its streams on one rendezvous
    assert session.primed == list(SHAPES)
    assert session.links == len(SHAPES)
    for _, one in session.asked:
        assert (one["skew_ns"], one["off"]) == (SETTINGS.skew_ns, False)
    assert set(session.limits) == {500.0}
    assert finding.facts["vocabularies"] == tuple(shape.vocab for shape in SHAPES)
    assert finding.repetitions == finding.facts["rows"] >= SETTINGS.streamed_rows
    blocks = sum(one["blocks"] for _, one in session.asked)
    # the exchanges of both ranks
    assert finding.facts["waits_below_2_to"][7] == 2 * blocks
    assert sum(finding.facts["waits_below_2_to"]) == 2 * blocks


def test_no_two_streams_have_a_seed_in_common(hold):
    session = Streaming()
    many(hold, session)
    seeds = [one["seed"] + place for _, one in session.asked for place in range(one["blocks"])]
    assert len(set(seeds)) == len(seeds)


@given(
    rows=st.integers(1, 200_000),
    n_out=st.integers(1, 7),
    batches=st.lists(st.integers(1, 64), min_size=1, max_size=5),
    more=st.integers(0, 3),
)
@settings(max_examples=50)
def test_at_least_as_many_rows_as_asked_and_no_block_too_many(
    tmp_path_factory, rows, n_out, batches, more
):
    hold = Hold(tmp_path_factory.mktemp("hold"))
    changed = replace(
        REHEARSAL,
        more_shapes=(REHEARSAL.late_shape,) * more,
        streamed_rows=rows,
        streamed_n_out=n_out,
        batches=tuple(batches),
    )
    session = Streaming()
    finding = many(hold, session, changed)
    hold.journal.close()
    assert finding.repetitions >= rows
    # one block less of each would be too few
    one_less = finding.repetitions - sum(one["batch"] * n_out for _, one in session.asked)
    assert one_less < rows


SPOILED = [
    ({"mismatches": 1, "first_mismatch": (0, 0, 0)}, Code.OUTPUT_MISMATCH),
    ({"own_error": 3, "blocks": 0, "rows": 0}, Code.PEER_TIMEOUT),
    ({"peer_error": 4}, Code.PROTOCOL),
    ({"blocks": 0, "rows": 0}, Code.INCOMPLETE),
    ({"inputs": "other ones"}, Code.RANKS_DIFFER),
    ({"outputs": "other ones"}, Code.RANKS_DIFFER),
]


@pytest.mark.parametrize("place", [0, 4, len(KINDS) - 1])
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(("changes", "code"), SPOILED)
def test_one_stream_that_is_wrong_ends_the_arm_and_is_named(hold, changes, code, rank, place):
    session = Streaming({rank: changes}, place)
    finding = many(hold, session)
    assert finding.code is code
    shape, batch, cached = KINDS[place]
    told = {name: finding.facts[name] for name in ("vocab", "batch", "cached")}
    assert told == {"vocab": shape.vocab, "batch": batch, "cached": cached}
    assert len(session.asked) == place + 1
    assert finding.facts["mismatches"][rank] == changes.get("mismatches", 0)


def test_a_rank_that_refuses_a_stream_is_not_passed_over(hold):
    class Refusing(Streaming):
        def _answers(self, asked, limit_s):
            words = dict.fromkeys(("expected", "found", "source", "host", "left", "next"), "x")
            refusal = {"code": "STICKY", "where": "stream", **words}
            return streams_of(asked)[0], {"facts": None, "refusal": refusal}

    with pytest.raises(WrongError) as caught:
        many(hold, Refusing())
    assert caught.value.refusal.code is Code.STICKY


def test_solo_one_rank_streams_alone(hold):
    session = Streaming({1: {"mismatches": 5}})
    finding = many(hold, session, replace(SETTINGS, solo=True))
    assert finding.code is None
    wrong = many(hold, Streaming({0: {"mismatches": 5}}), replace(SETTINGS, solo=True))
    assert wrong.code is Code.OUTPUT_MISMATCH


# -- the two references -----------------------------------------------------------------------

WAYS = ("reference", "vectorised")


class Expecting(Streaming):
    """A session whose references agree, but where a test says otherwise."""

    def __init__(self, answer=None):
        super().__init__()
        self.cases, self.answer = [], answer

    def expect(self, case, *by):
        self.cases.append((self.primed[-1], case, by))
        made = tuple(Expectation(by=one, digest="d", rows=(), tokens=()) for one in by)
        return made if self.answer is None else self.answer(len(self.cases), made)


def agreeing(hold, session):
    context = Context(hold, SETTINGS)
    context._session = session
    (arm,) = (arm for arm in streams.ARMS if arm.step.arm == "vectorised-agrees")
    return arm.run(context)


def test_the_references_are_compared_at_every_shape_content_and_flaw(hold):
    session = Expecting()
    finding = agreeing(hold, session)
    assert finding.code is None
    assert {by for _, _, by in session.cases} == {WAYS}
    assert {shape for shape, _, _ in session.cases} == set(SHAPES)
    at_first = [case for shape, case, _ in session.cases if shape == SETTINGS.shape]
    contents = {"random", "constant", "tile-ties", "shard-ties", "two-finite", "extremes"}
    assert {case.content for case in at_first} == contents
    assert {case.flaw for case in at_first} == {"none", "nan", "inf", "empty"}
    assert {mode for case in at_first for mode in case.modes} == {0, 1, 2}
    rows = sum(case.batch * case.n_out for _, case, _ in session.cases)
    assert finding.repetitions == finding.facts["rows"] == rows


def test_a_case_in_which_the_references_part_is_named(hold):
    healthy = Expecting()
    agreeing(hold, healthy)
    for place, (shape, case, _) in enumerate(healthy.cases, 1):
        for spoil in (
            lambda made: (made[0], made[1].model_copy(update={"digest": "x"})),
            lambda made: (made[0],),
            lambda made: (made[0], made[0]),
            lambda made: (),
        ):
            session = Expecting(lambda n, made, p=place, s=spoil: s(made) if n == p else made)
            finding = agreeing(hold, session)
            assert finding.code is Code.OUTPUT_MISMATCH
            assert finding.facts == {"vocab": shape.vocab, "content": case.content}
            assert len(session.cases) == place


# -- the soak ---------------------------------------------------------------------------------


def soaked(tmp_path, session_of, minutes=1):
    clock = ManualClock()
    hold = Hold(tmp_path, clock)
    context = Context(hold, SETTINGS)
    context._session = session = session_of(clock)
    (arm,) = (
        arm for gate in with_soak(KERNELS, minutes) for arm in gate.arms if arm.step.arm == "soak"
    )
    finding = arm.run(context)
    hold.journal.close()
    told = result([ArmResult(arm.step, found(arm.step, finding), finding, 0, 0)])
    return finding, told, session


def test_a_soak_is_an_arm_only_where_it_is_asked_for():
    assert with_soak(KERNELS, 0) == KERNELS
    for minutes in (1, 60):
        gates = with_soak(KERNELS, minutes)
        (soak,) = [step for step in plan(gates) if step not in plan(KERNELS)]
        assert (soak.name, soak.expected, soak.gating) == ("gate-2/soak", "pass", True)
        assert str(minutes) in soak.what
        (limit,) = (a.limit_s for gate in gates for a in gate.arms if a.step is soak)
        # the last stream may begin in the last moment
        assert 60 * minutes < limit <= 60 * minutes + 500


def test_a_soak_repeats_every_kind_until_its_time_is_over(tmp_path):
    finding, told, session = soaked(tmp_path, lambda clock: Streaming(clock=clock), minutes=4)
    assert finding.code is None
    # ten seconds a stream
    assert len(session.asked) == finding.facts["streams"] == 24
    found = [(shape, one["batch"], one["cached"]) for shape, one in session.asked]
    assert found == [*KINDS, *KINDS][:24]
    # a rendezvous for each
    assert session.links == 24
    rows = sum(one["blocks"] * one["batch"] * one["n_out"] for _, one in session.asked)
    blocks = sum(one["blocks"] for _, one in session.asked)
    assert told == {
        "positions": str(rows),
        "mismatches": "0",
        "wait_histogram": [0] * 7 + [2 * blocks] + [0] * (BUCKETS - 8),
    }
    assert finding.repetitions == finding.facts["rows"] == rows
    seeds = [one["seed"] for _, one in session.asked]
    assert min(b - a for a, b in pairwise(seeds)) >= 200


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(("changes", "code"), SPOILED)
def test_a_soak_ends_at_the_first_stream_that_is_wrong(tmp_path, rank, changes, code):
    made = soaked(tmp_path, lambda clock: Streaming({rank: changes}, 2, clock), 60)
    finding, told, session = made
    assert len(session.asked) == 3
    assert finding.code is code
    # what it went through until then is told
    assert told["mismatches"] == str(changes.get("mismatches", 0))
    assert int(told["positions"]) == finding.facts["rows"] > 0


# -- the controls of a stream -----------------------------------------------------------------


@pytest.mark.parametrize("name", ["many-rows-of-a-mutant", "many-rows-unstamped"])
@pytest.mark.parametrize(
    ("changes", "code"), [({}, None), ({"mismatches": 8}, Code.OUTPUT_MISMATCH), *SPOILED[1:]]
)
def test_a_mutant_in_a_stream_is_caught_by_what_differs(hold, name, changes, code):
    context = Context(hold, SETTINGS)
    context._session = session = Streaming(dict.fromkeys((0, 1), changes))
    (arm,) = (arm for arm in streams.ARMS if arm.step.arm == name)
    finding = arm.run(context)
    if code is Code.RANKS_DIFFER:
        # both ranks give the same other thing: that alone is no mismatch
        code = None
    assert finding.code is code
    ((_, asked),) = session.asked
    assert asked["control"] == finding.facts["mutant"]
    assert arm.step.expected == "caught(OUTPUT_MISMATCH)"
