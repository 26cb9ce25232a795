"""Features that wait while the ranks are busy: what travels together, and how each is answered."""

import asyncio
import contextlib
import socket
import threading

import pytest

from pp4.errors import BadInputError, Code, Refusal, RefusedError
from pp4.wire.draft_frames import encode
from pp4.wire.drafts import Abort, Close, Features, Hello, Open, Status
from pp4.worker.client import Ask
from pp4.worker.front import appends
from pp4.worker.front.limits import Limits
from pp4.worker.step_client import StepClient
from tests.unit.worker.fronts import (
    LOST,
    PATIENT_S,
    WIDTH,
    answers,
    draft,
    features_of,
    raw,
    ready,
    refused,
    same,
)

TOKEN = 2 * WIDTH
"""Bytes of a token."""


def features(sequence, request, first=0, tokens=1):
    """A FEATURES whose bits are those of its sequence."""
    question = Features(sequence=sequence, request=request, first=first, tokens=tokens)
    return encode(question, features_of(sequence, tokens).tobytes())


def bits(sequence, tokens=1):
    return features_of(sequence, tokens).tobytes()


@contextlib.contextmanager
def line(worker, requests):
    """A connection without a client that has opened some requests."""
    with raw(worker) as connected:
        opens = [encode(Open(sequence=one, request=one, key=100 + one)) for one in requests]
        connected.sendall(encode(Hello(sequence=0, depth=4)) + b"".join(opens))
        told = answers(connected, 1 + len(requests))
        assert {one.verb for one in told[1:]} <= {"OPENED"}
        yield connected


@contextlib.contextmanager
def busy(worker, client):
    """The ranks have a draft of the client's request 1 until this ends."""
    ready(client, 1)
    worker.do(worker.ranks.block)
    ticket = client.submit(Ask(1, round=0, anchor=1))
    assert worker.ranks.entered.wait(PATIENT_S)
    try:
        yield
    finally:
        worker.do(worker.ranks.release)
    assert client.collect(ticket).round == 0


def parts_waiting(worker, count):
    """Wait until as many FEATURES wait for a turn."""
    worker.until(lambda: len(worker.server._service._appends) == count)


def calls(worker, *verbs):
    return [call for call in worker.ranks.calls if call[0] in verbs]


def said(told):
    return [(one.verb, one.sequence) for one in told]


def test_features_that_wait_travel_together(worker, client):
    with line(worker, range(4)) as connected:
        with busy(worker, client):
            for number in range(4):
                connected.sendall(features(10 + number, number, tokens=1 + number))
            parts_waiting(worker, 4)
        told = answers(connected, 4)
    assert said(told) == [("APPENDED", 10 + number) for number in range(4)]
    assert [(one.request, one.length) for one in told] == [(n, 1 + n) for n in range(4)]
    # the client's own request is the fifth
    assert calls(worker, "append") == [("append", 5), ("append", 1, 2, 3, 4)]
    counters = client.status().counters
    assert (counters["appends"], counters["append_parts"]) == (2, 5)
    assert counters["appended"] == 2 + 1 + 2 + 3 + 4


def test_features_of_several_connections_travel_together_in_order_of_arrival(worker, client):
    with line(worker, [0, 1]) as one, line(worker, [0, 1]) as two:
        with busy(worker, client):
            for count, (asker, number) in enumerate([(one, 1), (two, 0), (one, 0), (two, 1)], 1):
                asker.sendall(features(10 + count, number))
                parts_waiting(worker, count)
        assert said(answers(one, 2)) == [("APPENDED", 11), ("APPENDED", 13)]
        assert said(answers(two, 2)) == [("APPENDED", 12), ("APPENDED", 14)]
        assert calls(worker, "append")[1:] == [("append", 2, 3, 1, 4)]
        kept = [worker.ranks.features[own] for own in (1, 2, 3, 4)]
        assert kept == [bits(13), bits(11), bits(12), bits(14)]


def test_more_than_the_ranks_take_at_once_goes_in_as_many_turns(worker, client):
    worker.ranks.capacity = 5 * TOKEN
    sizes = [2, 3, 1, 7, 5, 1]
    with line(worker, range(6)) as connected:
        with busy(worker, client):
            for number, tokens in enumerate(sizes):
                connected.sendall(features(10 + number, number, tokens=tokens))
            parts_waiting(worker, 6)
        told = answers(connected, 6)
    assert [one.length for one in told] == sizes
    assert said(told) == [("APPENDED", 10 + number) for number in range(6)]
    own = [call[1:] for call in calls(worker, "append")[1:]]
    # one that is too large goes too, and is what the ranks say
    assert own == [(1, 2), (3,), (4,), (5,), (6,)]


def test_no_more_parts_than_a_call_may_have_go_in_it(worker, client, monkeypatch):
    monkeypatch.setattr(appends, "_PARTS", 2)
    with line(worker, range(5)) as connected:
        with busy(worker, client):
            connected.sendall(b"".join(features(10 + number, number) for number in range(5)))
            parts_waiting(worker, 5)
        assert said(answers(connected, 5)) == [("APPENDED", 10 + number) for number in range(5)]
    assert calls(worker, "append")[1:] == [("append", 1, 2), ("append", 3, 4), ("append", 5)]


def test_a_fault_between_two_answers_leaves_nobody_without_one(worker, client):
    with line(worker, [0]) as connected, line(worker, [0]) as other:
        with busy(worker, client):
            connected.sendall(features(10, 0))
            parts_waiting(worker, 1)
            other.sendall(features(20, 0))
            parts_waiting(worker, 2)

            def fault(_, message, body=b""):
                raise KeyError("nobody foresaw it")

            (first, _) = worker.server._service._appends._waiting
            first.answer = fault
        (told,) = answers(other, 1)
        assert (told.verb, told.refusal["code"]) == ("REFUSED", Code.INTERNAL)
    assert client.status().state == "failed"


def test_of_one_request_the_second_waits_for_the_next_turn(worker, client):
    with line(worker, [0, 1, 2]) as connected:
        with busy(worker, client):
            connected.sendall(
                features(10, 0)
                + features(11, 1)
                + features(12, 0, first=1, tokens=2)
                + features(13, 2)
            )
            parts_waiting(worker, 2)
        told = answers(connected, 4)
        assert said(told) == [("APPENDED", 10 + number) for number in range(4)]
        assert [one.length for one in told] == [1, 1, 3, 1]
        assert calls(worker, "append")[1:] == [("append", 1, 2), ("append", 1, 3)]
        assert worker.ranks.features[1] == bits(10) + bits(12, 2)


def test_what_comes_behind_a_refused_one_of_its_request_is_held_against_what_is_kept(worker):
    """The first is beyond the context, so the second would leave a gap."""
    with line(worker, [0]) as connected:
        connected.sendall(
            features(10, 0, tokens=65) + features(11, 0, first=65) + features(12, 0, tokens=2)
        )
        told = answers(connected, 3)
    assert said(told) == [("REFUSED", 10), ("REFUSED", 11), ("APPENDED", 12)]
    assert told[0].refusal["code"] == Code.CACHE_FULL
    assert (told[1].refusal["where"], told[1].refusal["expected"]) == ("FEATURES, first", "0")


def test_one_that_is_refused_among_others_is_refused_alone(worker, client):
    with line(worker, range(3)) as connected:
        with busy(worker, client):
            connected.sendall(features(10, 0) + features(11, 1, tokens=65) + features(12, 2))
            parts_waiting(worker, 3)
        told = answers(connected, 3)
        assert said(told) == [("APPENDED", 10), ("REFUSED", 11), ("APPENDED", 12)]
        assert told[1].refusal["code"] == Code.CACHE_FULL
        assert calls(worker, "append")[1:] == [("append", 1, 2, 3)]
        connected.sendall(features(13, 1, tokens=64))
        assert [one.length for one in answers(connected, 1)] == [64]
    counters = client.status().counters
    assert counters["appended"] == 2 + 1 + 1 + 64
    assert counters["refused_CACHE_FULL"] == 1


def test_a_call_that_is_refused_is_refused_to_each_and_changes_nothing(worker, client):
    with line(worker, range(2)) as connected:
        with busy(worker, client):
            connected.sendall(features(10, 0) + features(11, 1))
            parts_waiting(worker, 2)
            worker.ranks.refusing["appends"] = BadInputError.of("features", "others", "these")
        told = answers(connected, 2)
        assert said(told) == [("REFUSED", 10), ("REFUSED", 11)]
        connected.sendall(features(12, 0) + features(13, 1))
        assert said(answers(connected, 2)) == [("APPENDED", 12), ("APPENDED", 13)]
    assert client.status().state == "serving"


def test_what_follows_features_waits_for_them(worker, client):
    """A draft needs their length; the others are answered in the order in which they were asked."""
    with line(worker, range(3)) as connected:
        with busy(worker, client):
            connected.sendall(features(10, 0, tokens=2) + features(11, 1) + features(12, 2))
            connected.sendall(
                encode(Status(sequence=13))
                + encode(Features(sequence=14, request=7, first=0, tokens=1), bytes(TOKEN))
                + encode(draft(sequence=15, request=0))
                + encode(Abort(sequence=16, request=1))
                + encode(Close(sequence=17, request=1))
                + encode(Open(sequence=18, request=1, key=7))
            )
            parts_waiting(worker, 3)
        told = answers(connected, 9)
    drafted = [one for one in told if one.verb == "DRAFTED"]
    assert [one.sequence for one in drafted] == [15]
    assert said([one for one in told if one.verb != "DRAFTED"]) == [
        ("APPENDED", 10),
        ("APPENDED", 11),
        ("APPENDED", 12),
        ("STANDING", 13),
        ("REFUSED", 14),
        ("ABORTED", 16),
        ("CLOSED", 17),
        ("OPENED", 18),
    ]
    assert told[3].counters["appended"] == 2 + 4


def test_a_wrong_one_behind_others_is_refused_behind_them(worker, client):
    with line(worker, range(2)) as connected:
        with busy(worker, client):
            connected.sendall(features(10, 0) + features(11, 1, first=3) + features(12, 1))
            parts_waiting(worker, 1)
        told = answers(connected, 3)
    assert said(told) == [("APPENDED", 10), ("REFUSED", 11), ("APPENDED", 12)]


def test_what_came_before_a_bad_frame_is_answered_before_the_end(worker, client):
    with line(worker, range(2)) as connected:
        with busy(worker, client):
            connected.sendall(features(10, 0) + features(11, 1) + b"nonsense" * 9)
            parts_waiting(worker, 2)
        told = answers(connected, None)
    assert said(told) == [("APPENDED", 10), ("APPENDED", 11), ("REFUSED", None)]
    worker.until(lambda: len(worker.ranks.features) == 1)


def test_a_client_that_says_no_more_is_still_answered(worker, client):
    with line(worker, range(2)) as connected:
        with busy(worker, client):
            connected.sendall(features(10, 0) + features(11, 1))
            connected.shutdown(socket.SHUT_WR)
            parts_waiting(worker, 2)
        assert said(answers(connected, None)) == [("APPENDED", 10), ("APPENDED", 11)]
    worker.until(lambda: len(worker.ranks.features) == 1)
    # closed after what was appended
    assert [call[0] for call in worker.ranks.calls][-3:] == ["append", "close", "close"]


def test_a_client_that_leaves_disturbs_nobody_whose_features_wait_beside_its_own(worker, client):
    with line(worker, range(2)) as staying:
        with busy_after(worker, client, range(2)) as leaving:
            leaving.sendall(features(10, 0) + features(11, 1))
            parts_waiting(worker, 2)
            leaving.close()
            staying.sendall(features(20, 0) + features(21, 1))
            parts_waiting(worker, 4)
        assert said(answers(staying, 2)) == [("APPENDED", 20), ("APPENDED", 21)]
        worker.until(lambda: len(worker.ranks.features) == 3)


@contextlib.contextmanager
def busy_after(worker, client, requests):
    """As busy, with another connection that has opened some requests before."""
    with line(worker, requests) as connected, busy(worker, client):
        yield connected


def test_features_of_a_broken_connection_are_given_up(worker, client):
    """Where its end is an error there is nobody to be answered, and the ranks are spared it."""
    with line(worker, range(2)) as connected, busy(worker, client):
        connected.sendall(features(10, 0) + features(11, 1))
        parts_waiting(worker, 2)
        (broken,) = [one for one in worker.server._clients if len(one._requests) == 2]
        worker.do(worker.server._clients[broken].cancel)
        parts_waiting(worker, 0)
    worker.until(lambda: len(worker.ranks.features) == 1)
    assert calls(worker, "append") == [("append", 3)]


def test_all_features_of_a_connection_together_are_no_more_than_one_may_be(make_worker):
    worker = make_worker(limits=Limits(largest_body=4 * TOKEN))
    with (
        worker.client() as client,
        line(worker, range(4)) as connected,
        line(worker, [0]) as other,
    ):
        with busy(worker, client):
            for number, tokens in enumerate([1, 3, 1, 2]):
                connected.sendall(features(10 + number, number, tokens=tokens))
            parts_waiting(worker, 2)
            # somebody else's are not held up by that
            other.sendall(features(20, 0, tokens=4))
            parts_waiting(worker, 3)
        assert said(answers(connected, 4)) == [("APPENDED", 10 + number) for number in range(4)]
        assert said(answers(other, 1)) == [("APPENDED", 20)]
    assert calls(worker, "append")[1:] == [("append", 1, 2, 5), ("append", 3, 4)]


def test_features_and_drafts_take_turns_about(worker, client):
    """Whoever has had a turn waits behind who waits: neither can keep the other out."""
    worker.ranks.capacity = TOKEN
    worker.ranks.offer = worker.ranks.offer.model_copy(update={"batches": (1,)})
    with line(worker, range(3)) as drafting, line(worker, range(3)) as appending:
        with busy(worker, client):
            drafts = [draft(sequence=30 + n, request=n, position=1) for n in range(3)]
            drafting.sendall(b"".join(map(encode, drafts)))
            worker.waiting(3)
            appending.sendall(b"".join(features(40 + n, n) for n in range(3)))
            parts_waiting(worker, 3)
            before = len(worker.ranks.calls)
        answers(drafting, 3)
        answers(appending, 3)
        turns = [call[0] for call in worker.ranks.calls[before:]]
    assert sorted(turns) == ["append"] * 3 + ["draft"] * 3
    assert turns in (["append", "draft"] * 3, ["draft", "append"] * 3)


def test_when_the_ranks_are_lost_all_features_are_answered_the_same(worker, client):
    with line(worker, range(3)) as connected, line(worker, range(2)) as other:
        worker.ranks.blocking = {"append"}
        worker.do(worker.ranks.block)
        connected.sendall(features(10, 0))
        assert worker.ranks.entered.wait(PATIENT_S)
        # beside what the ranks have, two that wait, one behind them, and two of somebody else
        connected.sendall(features(11, 1) + features(12, 2) + features(13, 0, first=1))
        other.sendall(features(20, 0) + features(21, 1))
        parts_waiting(worker, 4)
        worker.do(worker.ranks.lose)
        for asker, sequences in ((connected, [10, 11, 12, 13]), (other, [20, 21])):
            told = answers(asker, len(sequences))
            assert said(told) == [("REFUSED", sequence) for sequence in sequences]
            assert all(one.refusal == LOST.refusal.as_dict() for one in told)
    assert client.status().state == "failed"
    assert worker.ranks.calls[-1] == ("append", 1)


def test_nobody_waits_for_ranks_that_do_not_let_go_of_features(worker, client):
    """And what they say in the end is told to nobody a second time."""
    with line(worker, range(2)) as connected:
        worker.ranks.blocking, worker.ranks.stubborn = {"append"}, True
        worker.do(worker.ranks.block)
        connected.sendall(features(10, 0))
        assert worker.ranks.entered.wait(PATIENT_S)
        connected.sendall(features(11, 1))
        parts_waiting(worker, 1)
        worker.do(worker.ranks.lose)
        assert said(answers(connected, 2)) == [("REFUSED", 10), ("REFUSED", 11)]
        worker.do(worker.ranks.release)
        worker.until(lambda: not worker.ranks._busy)
        connected.sendall(encode(Status(sequence=12)))
        assert said(answers(connected, 1)) == [("STANDING", 12)]


def test_stopping_answers_features_that_wait_and_lets_those_end_that_the_ranks_have(worker):
    with line(worker, range(3)) as connected:
        worker.ranks.blocking = {"append"}
        worker.do(worker.ranks.block)
        connected.sendall(features(10, 0))
        assert worker.ranks.entered.wait(PATIENT_S)
        connected.sendall(features(11, 1) + features(12, 2))
        parts_waiting(worker, 2)

        async def stop():
            stopping = asyncio.create_task(worker.server.stop(PATIENT_S))
            while len(worker.server._service._appends):
                await asyncio.sleep(0)
            assert not stopping.done()
            worker.ranks.release()
            await stopping

        worker.wait(stop())
        told = answers(connected, None)
    assert said(told) == [("REFUSED", 11), ("REFUSED", 12), ("APPENDED", 10)]
    assert [one.refusal["code"] for one in told[:2]] == [Code.INTERRUPTED] * 2


FULL = RefusedError(Refusal(Code.CACHE_FULL, "cache", "room", "none"))


@pytest.mark.parametrize(
    "change",
    [
        lambda told: told[:-1],
        lambda told: [*told, 1],
        lambda told: [told[0] + 1, *told[1:]],
        lambda told: [told[0] - 1, FULL],
    ],
)
def test_answers_that_are_not_whole_end_the_ranks_and_nothing_of_them_leaves(
    worker, client, change
):
    original = worker.ranks.append

    async def partial(parts):
        return change(await original(parts))

    with line(worker, range(2)) as connected:
        with busy(worker, client):
            worker.ranks.append = partial
            connected.sendall(features(10, 0) + features(11, 1))
            parts_waiting(worker, 2)
        told = answers(connected, 2)
    assert said(told) == [("REFUSED", 10), ("REFUSED", 11)]
    assert {one.refusal["code"] for one in told} == {Code.INCOMPLETE}
    assert client.status().state == "failed"


def test_a_step_of_an_engine_travels_in_few_calls_and_is_drafted_from_what_it_sent(worker, client):
    count = 12
    with StepClient.unix(worker.path, PATIENT_S) as engine:
        engine.hello(4)
        assert engine.open_many({one: 100 + one for one in range(count)}) == {}
        given = {one: features_of(one, 1 + one % 3) for one in range(count)}
        told = []
        with busy(worker, client):
            sending = threading.Thread(
                target=lambda: told.append(
                    engine.features_many({one: (0, bits) for one, bits in given.items()})
                )
            )
            sending.start()
            parts_waiting(worker, count)
        sending.join(PATIENT_S)
        assert told == [{}]
        assert len(calls(worker, "append")) == 2
        asks = [Ask(one, round=1, anchor=2) for one in range(count)]
        for one, ticket in enumerate(engine.submit_many(asks)):
            tokens = 1 + one % 3
            found = engine.collect(ticket)
            assert same(found, 4, 100 + one, tokens + 1, 1, 2, False, given[one].tobytes())


def test_a_request_that_the_ranks_do_not_have_room_for_is_no_end_of_a_step(worker):
    with StepClient.unix(worker.path, PATIENT_S) as engine:
        engine.hello(4)
        engine.open_many({1: 1, 2: 2, 3: 3})
        given = {1: (0, features_of(1, 2)), 2: (0, features_of(2, 65)), 3: (0, features_of(3, 1))}
        found = engine.features_many(given)
        assert {one: error.refusal.code for one, error in found.items()} == {2: Code.CACHE_FULL}
        with refused(Code.BAD_INPUT, "FEATURES, first"):
            engine._lengths[3] = 2
            engine.features(3, features_of(3, 1))
