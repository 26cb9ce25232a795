"""The walk through the plan: order, journal, and what becomes of arms that end otherwise."""

import pytest

from pp4.errors import (
    Code,
    Exit,
    Pp4Error,
    Refusal,
    RefusedError,
    TimedOutError,
    UncleanError,
    WrongError,
)
from pp4.qualify.arms import Finding, found
from pp4.qualify.pair_qualify import VERDICT_EXIT, ArmResult, pair_qualify, plan, verdict
from pp4.qualify.plan import Step
from pp4.receipts.gates import FailedVerdict
from pp4.receipts.journal import first_break
from tests.unit.qualify.fakes import (
    Hold,
    Transcript,
    Watched,
    catching,
    finds,
    gate_of,
    passing,
    raises,
)

CAUGHT = Code.PEER_TIMEOUT


@pytest.fixture
def hold(tmp_path):
    hold = Hold(tmp_path)
    yield hold
    hold.journal.close()


@pytest.fixture
def transcript():
    return Transcript()


@pytest.fixture
def walk(hold, transcript):
    """Walk arms of one gate; -> results."""

    def walk(*arms):
        return pair_qualify(Watched(hold, transcript), (gate_of(0, *arms),), transcript)

    return walk


def refusal(code):
    return Refusal(code, "there", "this", "that", left="process 9")


def test_the_order_of_calls_is_the_order_of_the_plan(hold, transcript):
    def noting(name):
        def run(context):
            transcript.append(name)
            return Finding(None)

        return run

    gates = (
        gate_of(0, passing("a", noting("a")), passing("b", noting("b"))),
        gate_of(3, passing("a", noting("3a"), gate=3)),
    )
    results = pair_qualify(Watched(hold, transcript), gates, transcript)
    names = ["gate-0/a", "gate-0/b", "gate-3/a"]
    assert transcript == [
        ("planned", names),
        *[("started", names[0]), "a", ("finished", names[0], "pass")],
        *[("started", names[1]), "b", ("finished", names[1], "pass")],
        *[("started", names[2]), "3a", ("finished", names[2], "pass")],
    ]
    assert [result.step for result in results] == list(plan(gates))


def test_the_journal_is_the_plan_step_by_step(hold, transcript, walk):
    results = walk(
        passing("good", finds()),
        passing("bad", finds(Code.LEAK)),
        catching("seen", CAUGHT, finds(CAUGHT)),
        catching("missed", CAUGHT, finds()),
        passing("raised", raises(WrongError(refusal(Code.RANK_DIED)))),
    )
    lines = hold.lines()
    assert first_break(lines) is None
    expected = []
    for result in results:
        expected += [("begin", result.step.name, None), ("end", result.step.name, result.found)]
    assert [(line["event"], line["step"], line["found"]) for line in lines] == expected


def test_an_arm_begins_in_the_journal_before_it_runs(hold, walk):
    seen = []

    def look(context):
        seen.extend((line["event"], line["step"]) for line in hold.lines())
        return Finding(None)

    walk(passing("a", look))
    assert seen == [("begin", "gate-0/a")]


@pytest.mark.parametrize(
    ("expected", "code", "text"),
    [
        ("pass", None, "pass"),
        ("pass", Code.LEAK, "failed(LEAK)"),
        ("caught(LEAK)", Code.LEAK, "caught(LEAK)"),
        ("caught(LEAK)", Code.STICKY, "caught(STICKY)"),
        ("caught(LEAK)", None, "failed(CONTROL_NOT_CAUGHT)"),
    ],
)
def test_a_finding_in_words(expected, code, text):
    assert found(Step(0, "a", expected, "x"), Finding(code)) == text


@pytest.mark.parametrize("kind", [WrongError, RefusedError, Pp4Error])
def test_a_control_that_raises_its_very_code_was_not_judged_and_is_not_caught(
    walk, transcript, kind
):
    (result,) = walk(catching("a", CAUGHT, raises(kind(refusal(CAUGHT)))))
    assert result.found == f"failed({CAUGHT})"
    assert not result.as_expected
    assert result.finding.facts["left"] == "process 9"
    assert "restart" in transcript


def test_a_pass_arm_that_raises_has_failed_with_that_code(walk):
    (result,) = walk(passing("a", raises(RefusedError(refusal(Code.UNPRIMED)))))
    assert result.found == "failed(UNPRIMED)"


@pytest.mark.parametrize("code", [Code.STEP_TIMEOUT, Code.RANK_DIED])
def test_a_wait_that_ran_out_is_a_timeout_whatever_it_says(walk, code):
    (result,) = walk(catching("a", Code.STEP_TIMEOUT, raises(TimedOutError(refusal(code)))))
    assert result.found == "failed(STEP_TIMEOUT)"


@pytest.mark.parametrize("error", [KeyError("ranks"), IndexError("tuple"), ValueError("Code")])
def test_an_arm_with_a_bug_fails_by_itself_and_the_others_still_run(walk, transcript, error):
    results = walk(
        catching("a", Code.INTERNAL, raises(error)), passing("b", finds()), passing("c", finds())
    )
    assert [result.found for result in results] == ["failed(INTERNAL)", "pass", "pass"]
    assert type(error).__name__ in results[0].finding.facts["refusal"]
    assert transcript.count("restart") == 1


def test_unclean_goes_through_at_once_and_nothing_follows(hold, walk, transcript):
    ran = []
    with pytest.raises(UncleanError) as caught:
        walk(
            passing("a", raises(UncleanError(refusal(Code.SURVIVOR)))),
            passing("b", lambda context: ran.append(True)),
        )
    assert caught.value.refusal.code is Code.SURVIVOR
    assert ran == []
    assert "restart" not in transcript
    assert [(line["event"], line["step"]) for line in hold.lines()] == [("begin", "gate-0/a")]


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_whatever_is_no_error_goes_through(walk, stop):
    with pytest.raises(stop):
        walk(passing("a", raises(stop())))


@pytest.mark.parametrize(
    ("took", "text"),
    [(1.0, "pass"), (2.0, "pass"), (2.001, "failed(STEP_TIMEOUT)"), (60, "failed(STEP_TIMEOUT)")],
)
def test_an_arm_that_passes_too_late_has_not_passed(hold, walk, took, text):
    def slow(context):
        hold.clock.advance(took)
        return Finding(None, {"kept": 1}, 7)

    (result,) = walk(passing("a", slow, limit_s=2.0))
    assert result.found == text
    assert result.finding.facts == {"kept": 1}
    assert result.finding.repetitions == 7
    assert (result.elapsed_ns, result.limit_ns) == (round(took * 1e9), 2_000_000_000)


def test_a_control_that_is_caught_too_late_is_not_caught(hold, walk):
    def slow(context):
        hold.clock.advance(1000)
        return Finding(CAUGHT)

    (result,) = walk(catching("a", CAUGHT, slow))
    assert result.found == "failed(STEP_TIMEOUT)"


def test_time_asleep_counts(hold, walk):
    def slept(context):
        hold.clock.suspend(3600)
        return Finding(None)

    (result,) = walk(passing("a", slept))
    assert result.found == "failed(STEP_TIMEOUT)"


def result(text, expected="pass", gating=True):
    return ArmResult(Step(0, "a", expected, "x", gating), text, Finding(None), 1, 2)


GOOD, MISSED = result("pass"), result("failed(CONTROL_NOT_CAUGHT)", "caught(LEAK)")
LATE, WRONG, NOT_RUN = (
    result(f"{text})") for text in ("failed(STEP_TIMEOUT", "failed(LEAK", "not_run(GATE_NOT_RUN")
)


@pytest.mark.parametrize(
    ("results", "word"),
    [
        ([GOOD], "rehearsed"),
        ([GOOD, result("caught(LEAK)", "caught(LEAK)")], "rehearsed"),
        ([GOOD, result("failed(LEAK)", gating=False)], "rehearsed"),
        ([GOOD, MISSED], "wrong"),
        ([GOOD, WRONG], "wrong"),
        ([GOOD, result("caught(STICKY)", "caught(LEAK)")], "wrong"),
        ([GOOD, LATE], "timeout"),
        ([LATE, LATE, GOOD], "timeout"),
        ([LATE, WRONG], "wrong"),
        ([LATE, MISSED], "wrong"),
        ([NOT_RUN, GOOD], "inconclusive"),
        ([NOT_RUN, WRONG], "wrong"),
        ([NOT_RUN, LATE], "timeout"),
    ],
)
def test_the_verdict(results, word):
    assert verdict(results, "rehearsed") == word
    assert (VERDICT_EXIT[word] is Exit.DONE) is (word == "rehearsed")


@pytest.mark.parametrize("results", [[], [result("failed(LEAK)", gating=False)]])
def test_nothing_that_counts_is_no_good_verdict(results):
    with pytest.raises(RefusedError) as caught:
        verdict(results, "rehearsed")
    assert caught.value.refusal.code is Code.GATE_NOT_RUN


def test_every_verdict_that_a_walk_can_end_in_has_an_exit_code():
    words = {"rehearsed", "qualified", "wrong", "timeout", "inconclusive", "unclean"}
    # a worker's receipt has no gates and a word of its own
    assert set(VERDICT_EXIT) == {*words, "recorded"}
    # one word more: a refusal ends before there is anything to write down
    assert set(FailedVerdict.__args__) | {"rehearsed", "qualified"} == words | {"refused"}
    bad = ("wrong", "inconclusive", "timeout", "unclean")
    assert [VERDICT_EXIT[word] for word in bad] == [1, 4, 5, 6]
