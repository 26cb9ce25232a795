"""Gates with a session that answers what a test says: what they ask, and what they make of it."""

import pytest

from pp4.errors import Code, WrongError
from pp4.qualify.context import Context
from pp4.qualify.gates import KERNELS
from pp4.qualify.settings import REHEARSAL
from pp4.wire.facts import Exchange, Expectation
from tests.unit.qualify.fakes import Hold
from tests.unit.qualify.test_judge import one_primed
from tests.unit.wire.examples import block, exchange, kept

SHAPE = REHEARSAL.shape.model_dump()
KERNEL = "kernel sampled_fused"


def refusal(code="UNPRIMED", where=KERNEL):
    """A rank's answer that is a refusal."""
    words = dict.fromkeys(("expected", "found", "source", "host", "left", "next"), "x")
    return {"facts": None, "refusal": {"code": code, "where": where, **words}}


def facts(**given):
    """A rank's answer that is facts."""
    return {"facts": given, "refusal": None}


def of(found):
    """An answer that carries a model."""
    return facts(**found.model_dump(mode="json"))


class Scripted:
    """A session whose answers are a table; what it was asked stands in ``asked``."""

    def __init__(self, **answers):
        self.answers, self.asked = answers, []

    def _answer(self, name, *given):
        self.asked.append((name, *given))
        found = self.answers.get(name, {})
        if isinstance(found, list):
            return found.pop(0)
        return found(*given) if callable(found) else found

    def both(self, verb, first, second=None):
        return self._answer(verb)

    def one(self, rank, verb, arguments):
        return self._answer("one", rank, verb)

    def ask(self, verb, **given):
        return self._answer(verb)

    def block(self, case, launches=None, **how) -> Exchange:
        return self._answer("block")

    def expect(self, case, *, solo=True):
        return self._answer("expect")

    def refusal(self, verb, **given):
        return self._answer("refusal")

    def start(self):
        return self._answer("start")

    def prime(self, shape, **how):
        return self._answer("prime-by-owner")

    def link(self, rows, waits):
        return self._answer("link")

    def teardown(self):
        return {"pids": [1, 2], "dead": [True, True], "links_left": 0}


@pytest.fixture
def run(tmp_path):
    """Run one arm with a scripted session; -> its finding."""
    hold = Hold(tmp_path)

    def run(name, session, **record):
        context = Context(hold, REHEARSAL)
        for field, facts in record.items():
            setattr(context.record, field, facts)
        context._session = session
        (arm,) = (arm for gate in KERNELS for arm in gate.arms if arm.step.name == name)
        return arm.run(context)

    yield run
    hold.journal.close()


# -- gate 0 and gate 1 ----------------------------------------------------------------------


def patterns(first, second):
    return [
        facts(rank=rank, epochs=epochs, mismatches=0) for rank, epochs in enumerate((first, second))
    ]


def test_a_pattern_needs_both_ranks_to_finish(run):
    asked = REHEARSAL.pattern_epochs
    whole = Scripted(pattern=lambda: patterns(asked, asked))
    assert run("gate-0/data-pattern", whole).code is None
    short = Scripted(pattern=lambda: patterns(asked, asked - 1))
    assert run("gate-0/data-pattern", short).code is Code.PATTERN_MISMATCH


def test_a_writer_that_refused_is_not_passed_over(run):
    refused = Scripted(pattern=lambda: [refusal("STEP_TIMEOUT"), patterns(0, 2000)[1]])
    with pytest.raises(WrongError):
        run("gate-0/data-pattern", refused)


def test_an_early_capture_is_caught_only_at_the_kernel(run):
    primed = [facts(), facts()]
    caught = Scripted(prime=primed, capture=lambda: [refusal(), refusal()])
    caught.answers["prime"] = lambda: primed
    assert run("gate-1/unprimed-capture", caught).code is Code.UNPRIMED
    elsewhere = Scripted(prime=lambda: primed, capture=lambda: [refusal(where="block")] * 2)
    assert run("gate-1/unprimed-capture", elsewhere).code is None


def test_priming_that_failed_is_no_early_capture(run):
    failed = Scripted(
        prime=lambda: [facts(), refusal("INTERNAL", "compile")],
        capture=lambda: [refusal(), refusal()],
    )
    with pytest.raises(WrongError):
        run("gate-1/unprimed-capture", failed)


# -- gate 2 ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pair", "solo", "code"),
    [
        (((), ()), ((), ()), None),
        (((), ("a store",)), ((), ()), Code.PTX_ORDER),
        (((), ()), (("a store",), ()), Code.PTX_ORDER),
        ((), ((), ()), Code.PTX_ORDER),
        (((), ()), (), Code.PTX_ORDER),
    ],
)
def test_the_order_is_read_in_all_that_was_primed(run, pair, solo, code):
    record = {
        name: tuple(one_primed(rank, faults=faults) for rank, faults in enumerate(ones))
        for name, ones in (("primed", pair), ("solo", solo))
    }
    assert run("gate-2/ptx-order", Scripted(), **record).code is code


# -- gate 3 ---------------------------------------------------------------------------------

EXPECTED = (
    Expectation(by="reference", digest="d" * 64, rows=("row-0", "row-1"), tokens=((1, 2), (3, 4))),
)


def replays(spoiled=None, place=0):
    """Replay, then an eager block, for every replay; one of them is spoiled."""
    count = 2 * len(REHEARSAL.depths) * REHEARSAL.replays
    blocks = [exchange() for _ in range(count)]
    if spoiled is not None:
        blocks[place] = spoiled
    return Scripted(
        capture=lambda: [facts(), facts()],
        select=lambda: {"ranks": [facts(), facts()]},
        expect=lambda: EXPECTED,
        block=blocks,
    )


def test_every_replay_has_an_eager_run_beside_it(run):
    session = replays()
    finding = run("gate-3/replay-equals-eager", session)
    assert (finding.code, finding.repetitions) == (None, len(REHEARSAL.depths) * REHEARSAL.replays)
    assert session.answers["block"] == []


@pytest.mark.parametrize("place", range(2 * len(REHEARSAL.depths) * REHEARSAL.replays))
def test_a_replay_or_an_eager_run_that_is_not_healthy_is_found(run, place):
    # rank 1 alone is wrong: rank 0 has the right digest in every one of these
    spoiled = [
        (kept("PEER_TIMEOUT"), Code.PEER_TIMEOUT),
        (exchange(block(0), block(1, digest="x")), Code.RANKS_DIFFER),
        (exchange(block(0), block(1, stamps=())), Code.INCOMPLETE),
    ]
    for found, code in spoiled:
        assert run("gate-3/replay-equals-eager", replays(found, place)).code is code


# -- gate 4 ---------------------------------------------------------------------------------


def test_a_refusal_by_another_name_fails_by_its_own(run):
    session = Scripted(
        select=lambda: {"ranks": [refusal("UNSUPPORTED_HEAD_MODE"), refusal("UNPRIMED")]}
    )
    finding = run("gate-4/refusals", session)
    assert finding.code is Code.NOT_ORIGINAL
    assert finding.facts["wanted"] == "UNSUPPORTED_HEAD_MODE"
    assert finding.facts["found"] == ("UNSUPPORTED_HEAD_MODE", "UNPRIMED")


# -- gate 5 ---------------------------------------------------------------------------------

SECOND = 1_000_000_000


def late(rank, seconds=0.1, **changes):
    given = {"own_error": 3, "errors": ((0, 3), (0, 3)), "elapsed_ns": round(seconds * SECOND)}
    return block(rank, **{**given, **changes})


def again(rank, seconds=0.1):
    return of(late(rank, seconds, errors=((3, 3), (3, 3))))


def failed(name, *blocks, relaunched, **more):
    """A failed block, then ranks that are launched alone, then a healthy pair."""
    return Scripted(
        block=[kept("PEER_TIMEOUT", *blocks, **more), exchange()],
        refusal=Code.STICKY,
        one=lambda rank, verb: relaunched[rank],
    )


def test_the_survivor_of_a_killed_peer_is_launched_again_alone(run):
    session = failed("killed", late(0, 2), relaunched=[again(0)], died=(1,))
    assert run("gate-5/killed", session).code is None
    assert [asked for asked in session.asked if asked[0] == "one"] == [("one", 0, "run")]


def test_a_survivor_that_waits_again_is_found(run):
    session = failed("killed", late(0, 2), relaunched=[again(0, 2)], died=(1,))
    assert run("gate-5/killed", session).code is Code.STICKY


def test_ranks_are_launched_again_one_after_the_other(run):
    session = failed("late", late(0, 2), late(1), relaunched=[again(0), again(1)])
    assert run("gate-5/late-first", session).code is None
    alone = [asked for asked in session.asked if asked[0] in ("one", "run")]
    assert alone == [("one", 0, "run"), ("one", 1, "run")]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_waits_again_is_found_by_the_time_that_it_takes(run, rank):
    relaunched = [again(one, 2 if one == rank else 0.1) for one in (0, 1)]
    session = failed("late", late(0, 2), late(1), relaunched=relaunched)
    assert run("gate-5/late-first", session).code is Code.STICKY


def test_a_wait_far_beyond_its_bound_is_found(run):
    slow = REHEARSAL.failed_block_s + 1
    session = failed("late", late(0, slow), late(1), relaunched=[again(0), again(1)])
    assert run("gate-5/late-first", session).code is Code.STEP_TIMEOUT


def answered(**changes):
    """Rank 0 gave up; rank 1 has something to say."""
    both = late(0, errors=((3, 3), (3, 3))), block(1, **{"peer_error": 3, **changes})
    return Scripted(block=lambda: kept("PEER_TIMEOUT", *both))


def test_a_late_rank_that_failed_as_well_controls_nothing(run):
    assert run("gate-5/late-answer", answered()).code is Code.PEER_TIMEOUT
    assert run("gate-5/late-answer", answered(own_error=3)).code is None
    assert run("gate-5/late-answer", answered(stamps=((0, 0), (0, 0)))).code is None
    assert run("gate-5/late-answer", answered(errors=((3, 3), (3, 3)))).code is None


# -- gate 7 ---------------------------------------------------------------------------------


def test_a_workspace_of_an_owner_that_ended_is_not_settled(run, tmp_path):
    session = Scripted(settle=lambda: {"ranks": [], "links": []})
    assert run("gate-7/settled", session).code is None
    (tmp_path / "careless-owner-2").mkdir()
    (tmp_path / "careless-owner-2" / "link-1-rank-0").touch()
    finding = run("gate-7/settled", session)
    assert finding.code is Code.LEAK
    assert finding.facts["workspaces_on_disk"] == ("careless-owner-2/link-1-rank-0",)


def test_a_leak_that_shows_in_one_place_only_is_not_caught(run, tmp_path):
    (tmp_path / "link-1-rank-0").touch()
    session = Scripted(settle=lambda: {"ranks": [4], "links": ["link-1-rank-0"]})
    assert run("gate-7/leak", session).code is None


def test_libraries_are_hashed_again_at_the_end(run):
    session = Scripted(libraries=lambda: {"libraries": [{"name": "a", "sha256": "1"}]})
    # nothing was recorded in gate 0: there is nothing that it could be the same as
    assert run("gate-7/libraries-unchanged", session).code is Code.LIBRARY_CHANGED
