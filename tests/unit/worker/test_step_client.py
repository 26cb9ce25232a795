"""What an engine asks for many requests at once, and who judges the blocks that come."""

import contextlib
import threading

import pytest

from pp4.errors import Code, Pp4Error, Refusal, RefusedError, TimedOutError, WrongError
from pp4.wire.draft_frames import encode
from pp4.wire.drafts import Aborted, Appended, Refused
from pp4.worker.client import Ask
from pp4.worker.step_client import StepClient
from tests.unit.processes import within
from tests.unit.worker.fronts import BLOCK, LOST, OFFER, PATIENT_S, WIDTH, features_of, same
from tests.unit.worker.test_client import ASK, BODY, Script, drafted, refused

FULL = RefusedError(Refusal(Code.CACHE_FULL, "cache", "room", "none"))


@pytest.fixture
def asker(worker):
    with StepClient.unix(worker.path, PATIENT_S) as client:
        client.hello(4)
        yield client


def codes(refusals):
    return {request: error.refusal.code for request, error in refusals.items()}


def test_many_requests_are_begun_fed_drafted_and_ended(worker, asker):
    assert asker.open_many({1: 101, 2: 102, 3: 103}) == {}
    given = {one: features_of(one, one) for one in (1, 2, 3)}
    assert asker.features_many({one: (0, bits) for one, bits in given.items()}) == {}
    asks = [Ask(one, round=7, anchor=5) for one in (1, 2, 3)]
    for one, ticket in zip((1, 2, 3), asker.submit_many(asks), strict=True):
        found = asker.collect(ticket)
        assert same(found, 4, 100 + one, one + 1, 7, 5, False, given[one].tobytes())
    assert asker.close_many([1, 2, 3]) == {}
    assert worker.do(lambda: worker.ranks.features) == {}
    assert asker.open_many({}) == asker.features_many({}) == asker.close_many([]) == {}


def test_what_is_refused_is_told_by_request(worker, asker):
    asker.open(2, key=0)
    assert codes(asker.open_many({1: 0, 2: 0, 3: 0})) == {2: Code.BAD_INPUT}
    features = {1: (0, features_of(1, 2)), 2: (5, features_of(2, 2)), 3: (0, features_of(3, 65))}
    refusals = {2: Code.BAD_INPUT, 3: Code.CACHE_FULL}
    assert codes(asker.features_many(features)) == refusals
    assert codes(asker.close_many([1, 4, 3])) == {4: Code.BAD_INPUT}
    assert asker.over is None


def test_of_many_frames_the_first_refusal_is_told():
    script = Script(largest_body=WIDTH * 2 * 3 + 1)
    try:
        with StepClient(script.far, PATIENT_S) as client:
            client.hello(4)
            bits = features_of(1, 7)
            assert client.features_many({1: (2, bits), 5: (0, bits[:1])}) == {}
            sent = [(one, body) for one, body in script.seen if one.verb == "FEATURES"]
            told = [(one.request, one.first, one.tokens) for one, _ in sent]
            assert told == [(1, 2, 3), (1, 5, 3), (1, 8, 1), (5, 0, 1)]
            assert b"".join(body for _, body in sent[:3]) == bits.tobytes()

            refusals = iter([FULL.refusal, LOST.refusal, LOST.refusal])
            script.say["FEATURES"] = lambda asked: encode(
                Refused(sequence=asked.sequence, refusal=next(refusals).as_dict())
            )
            assert codes(client.features_many({1: (0, bits)})) == {1: Code.CACHE_FULL}
    finally:
        script.close()


@pytest.mark.parametrize("verb", ["open", "append", "close"])
def test_what_is_not_answered_in_time_ends_the_connection(worker, asker, verb):
    asker.open(9, key=0)
    worker.ranks.blocking = {verb}
    worker.do(worker.ranks.block)
    calls = {
        "open": lambda: asker.open_many({1: 0}, 0.05),
        "append": lambda: asker.features_many({9: (0, features_of(1, 2))}, 0.05),
        "close": lambda: asker.close_many([9], 0.05),
    }
    refused(calls[verb], Code.STEP_TIMEOUT, TimedOutError)
    assert asker.over is not None
    worker.do(worker.ranks.release)
    refused(lambda: asker.open(2, key=0), Code.CONNECTION_LOST)


def test_a_draft_is_given_up_without_waiting(worker, asker):
    asker.open_many({1: 101, 2: 102})
    worker.do(worker.ranks.block)
    one, two = asker.submit_many([Ask(1, 0, 5), Ask(2, 0, 5)])
    refused(lambda: asker.collect(one, 0.0), Code.STEP_TIMEOUT, TimedOutError)
    assert asker.waits(one)
    asker.give_up(one)
    assert not asker.waits(one)
    ticket = asker.ask_abort(1)
    assert asker.aborted({1: ticket}) == set()
    assert asker.aborted({}) == set()
    worker.do(worker.ranks.release)
    assert within(lambda: asker.aborted({1: ticket}) == {1})
    assert same(asker.collect(two), 4, 102, 1, 0, 5, False, b"")
    # and it can be asked for again
    asker.draft(Ask(1, round=1, anchor=5))


# -- answers to something else -----------------------------------------------------------------


@pytest.fixture
def script():
    made = Script()
    yield made
    made.close()


@pytest.fixture
def judged(script):
    """Makes a client whose blocks are judged."""
    with contextlib.ExitStack() as ending:

        def made(judge=None):
            client = ending.enter_context(StepClient(script.far, PATIENT_S, judge))
            client.hello(4)
            client.open(1, key=7)
            return client

        yield made


def test_an_answer_about_another_request_ends_the_connection(script, judged):
    client = judged()
    script.say["FEATURES"] = lambda asked: encode(
        Appended(sequence=asked.sequence, request=1, length=9)
    )
    refused(lambda: client.features_many({1: (0, features_of(1, 2))}), Code.BAD_FRAME, WrongError)


def test_so_does_an_abort_of_another_request(script, judged):
    client = judged()
    script.say["ABORT"] = lambda asked: encode(
        Aborted(sequence=asked.sequence, request=2, dropped=False)
    )
    ticket = client.ask_abort(1)

    def ended():
        try:
            return not client.aborted({1: ticket}) and False
        except WrongError as error:
            return error.refusal.code is Code.BAD_FRAME

    assert within(ended)


def test_blocks_that_are_turned_down_are_dropped_whatever_they_answer(script, judged):
    asked_for, seen = threading.Event(), []

    def judge(block):
        seen.append(block.generation)
        return block.generation == 8

    def told(asked):
        asked_for.set()
        pieces = [
            drafted(asked, generation=1),
            drafted(asked, generation=2, sequence=1),
            drafted(asked, generation=3, sequence=1 << 40),
            drafted(asked),
            drafted(asked, generation=4),
        ]
        return b"".join(encode(one, bytes(BODY)) for one in pieces)

    script.say["DRAFT"] = told
    client = judged(judge)
    assert client.draft(ASK).generation == 8
    client.open(2, key=1)
    assert seen == [1, 2, 3, 8, 4]


def test_a_block_that_was_given_up_is_judged_too(script, judged):
    seen, kept = [], []
    script.say["DRAFT"] = lambda asked: kept.append(asked) or b""
    client = judged(lambda block: seen.append(block.round) or False)
    refused(lambda: client.draft(ASK, 0.02), Code.STEP_TIMEOUT, TimedOutError)
    assert within(lambda: kept)
    script.near.sendall(encode(drafted(kept[0]), bytes(BODY)))
    client.open(2, key=1)
    assert seen == [ASK.round]
    # it was answered by that, and not a second time
    again = Refused(sequence=kept[0].sequence, refusal=FULL.refusal.as_dict())
    script.near.sendall(encode(again))
    refused(lambda: client.open(3, key=1), Code.BAD_FRAME, WrongError)


def test_what_is_dropped_without_an_end_is_not_waited_for(script, judged):
    """Each receive finds something, so none of them runs out of time."""
    client = judged(lambda block: False)
    script.say["DRAFT"] = lambda asked: threading.Thread(target=flood, args=(asked,)).start() or b""

    def flood(asked):
        piece = encode(drafted(asked), bytes(BODY)) * 64
        with contextlib.suppress(OSError):
            while True:
                script.near.sendall(piece)

    refused(lambda: client.draft(ASK, 0.05), Code.STEP_TIMEOUT, TimedOutError)


@pytest.mark.parametrize("sequence", [1, 1 << 40])
def test_a_block_that_may_be_used_still_has_to_answer_its_question(script, judged, sequence):
    script.say["DRAFT"] = lambda asked: encode(drafted(asked, sequence=sequence), bytes(BODY))
    client = judged(lambda block: True)
    refused(lambda: client.draft(ASK), Code.BAD_FRAME, WrongError)


def test_a_judge_that_refuses_ends_the_connection(script, judged):
    def judge(block):
        raise WrongError(Refusal(Code.BAD_PROPOSAL, "reply", "one", "another"))

    client = judged(judge)
    refused(lambda: client.draft(ASK), Code.BAD_PROPOSAL, WrongError)
    refused(lambda: client.open(2, key=1), Code.BAD_PROPOSAL, Pp4Error)
    assert script.far.fileno() == -1


def test_the_offer_is_that_of_the_worker(asker):
    assert asker.offer == OFFER
    assert asker.offer.block == BLOCK
