"""Refusals and failures of the ranks: whoever waits is told, and told the same."""

import threading

import pytest

from pp4.errors import BadInputError, Code, Pp4Error, Refusal, RefusedError, WrongError
from pp4.wire.draft_frames import encode
from pp4.wire.drafts import Hello, Open
from pp4.worker.client import Ask
from tests.unit.worker.fronts import (
    LOST,
    PATIENT_S,
    answers,
    features_of,
    raw,
    ready,
    refused,
)


def test_what_the_ranks_refuse_leaves_everything_as_it_was(worker, client):
    full = RefusedError(Refusal(Code.CACHE_FULL, "cache", "room", "none"))
    worker.ranks.refusing["open"] = full
    with refused(Code.CACHE_FULL):
        client.open(1, key=101)
    ready(client, 1, 2)
    worker.ranks.refusing["append"] = full
    with refused(Code.CACHE_FULL):
        client.features(1, features_of(9, 3))
    worker.do(worker.ranks.block)
    worker.do(worker.ranks.release)
    worker.ranks.refusing["draft"] = BadInputError.of("draft", "another row", "this one")
    asks = [Ask(one, round=0, anchor=1) for one in (1, 2)]
    told = client.draft_many(asks)
    assert {type(one).__name__ for one in told} <= {"BadInputError", "Proposal"}
    (again,) = [ask for ask, one in zip(asks, told, strict=True) if isinstance(one, Pp4Error)][:1]
    assert client.draft(again).round == 0
    assert client.status().state == "serving"


def test_a_refused_batch_is_refused_to_each_of_its_rows(worker, client):
    ready(client, 1, 2, 3)
    worker.do(worker.ranks.block)
    first = client.submit(Ask(1, round=0, anchor=1))
    assert worker.ranks.entered.wait(PATIENT_S)
    rest = [client.submit(Ask(one, round=0, anchor=1)) for one in (2, 3)]
    worker.waiting(2)
    worker.ranks.refusing["draft"] = BadInputError.of("draft", "another row", "this one")
    worker.do(worker.ranks.release)
    assert client.collect(first).round == 0
    for ticket in rest:
        with refused(Code.BAD_INPUT, "draft"):
            client.collect(ticket)
    assert len(client.draft_many([Ask(one, round=0, anchor=1) for one in (2, 3)])) == 2


def test_when_the_ranks_are_lost_everyone_is_told_the_same_at_once(worker, client):
    ready(client, 1, 2)
    worker.do(worker.ranks.block)
    with worker.client() as other, raw(worker) as opening:
        launched = client.submit(Ask(1, round=0, anchor=1))
        assert worker.ranks.entered.wait(PATIENT_S)
        waiting = client.submit(Ask(2, round=0, anchor=1))
        opening.sendall(
            encode(Hello(sequence=1, depth=4)) + encode(Open(sequence=2, request=1, key=1))
        )
        worker.until(lambda: len(worker.server._service._turns._waiting) == 1)
        worker.waiting(1)
        # the block never ends: nobody releases it
        worker.do(worker.ranks.lose)
        told = []
        for ticket in (launched, waiting):
            with pytest.raises(WrongError) as caught:
                client.collect(ticket)
            told.append(caught.value.refusal)
        for call in (lambda: other.open(5, key=1), lambda: worker.client()):
            with pytest.raises(WrongError) as caught:
                call()
            told.append(caught.value.refusal)
        assert {one.as_dict()["found"] for one in told} == {"one"}
        assert all(one.as_dict() == LOST.refusal.as_dict() for one in told)
        assert answers(opening, 2)[1].refusal == LOST.refusal.as_dict()
        standing = other.status()
        assert (standing.state, standing.refusal) == ("failed", LOST.refusal.as_dict())
    assert worker.wait(worker.server.failed()).refusal == LOST.refusal
    assert [fields["state"] for event, fields in worker.events if event == "state"] == [
        "serving",
        "failed",
    ]


@pytest.mark.parametrize("verb", ["open", "append", "close"])
def test_a_call_that_never_ends_ends_with_the_ranks(worker, client, verb):
    ready(client, 1)
    worker.ranks.blocking = {verb}
    worker.do(worker.ranks.block)
    calls = {
        "open": lambda: client.open(2, key=1),
        "append": lambda: client.features(1, features_of(1, 1)),
        "close": lambda: client.close(1),
    }
    losing = threading.Timer(
        0, lambda: worker.ranks.entered.wait(PATIENT_S) and worker.do(worker.ranks.lose)
    )
    losing.start()
    with refused(Code.RANK_DIED):
        calls[verb]()
    losing.join()


def test_nobody_waits_for_ranks_that_do_not_let_go(worker, client):
    ready(client, 1)
    worker.do(worker.ranks.block)
    worker.ranks.stubborn = True
    launched = client.submit(Ask(1, round=0, anchor=1))
    assert worker.ranks.entered.wait(PATIENT_S)
    with raw(worker) as opening:
        opening.sendall(
            encode(Hello(sequence=1, depth=4)) + encode(Open(sequence=2, request=1, key=1))
        )
        worker.until(lambda: len(worker.server._service._turns._waiting) == 1)
        worker.do(worker.ranks.lose)
        assert answers(opening, 2)[1].refusal == LOST.refusal.as_dict()
        with refused(Code.RANK_DIED):
            client.collect(launched)
    worker.do(worker.ranks.release)


def test_a_fault_of_the_front_itself_is_told_and_not_waited_for(worker, client):
    ready(client, 1)

    def fault(*_):
        raise KeyError("nobody foresaw it")

    worker.server._service._count = fault
    with refused(Code.INTERNAL):
        client.draft(Ask(1, round=0, anchor=1))
    assert client.status().state == "failed"


@pytest.mark.parametrize("verb", ["open", "append", "close", "draft"])
@pytest.mark.parametrize("error", [LOST, ValueError("nobody foresaw it")], ids=["known", "not"])
def test_an_error_of_any_call_is_the_end(worker, client, verb, error):
    ready(client, 1)
    worker.ranks.refusing[verb] = error
    calls = {
        "open": lambda: client.open(2, key=1),
        "append": lambda: client.features(1, features_of(1, 1)),
        "close": lambda: client.close(1),
        "draft": lambda: client.draft(Ask(1, round=0, anchor=1)),
    }
    code = Code.RANK_DIED if error is LOST else Code.INTERNAL
    with refused(code) as first:
        calls[verb]()
    for later in ("open", "draft"):
        with refused(code) as again:
            calls[later]()
        assert again.value.refusal == first.value.refusal
    assert client.status().state == "failed"


@pytest.mark.parametrize(
    "change", [lambda replies: replies[:-1], lambda replies: [replies[0][:-4]]]
)
def test_a_batch_that_is_not_whole_does_not_leave(worker, client, change):
    ready(client, 1)
    original = worker.ranks.draft

    async def partial(n_out, rows):
        return change(await original(n_out, rows))

    worker.ranks.draft = partial
    with refused(Code.INCOMPLETE):
        client.draft(Ask(1, round=0, anchor=1))
    assert client.status().state == "failed"


def test_a_long_refusal_does_not_keep_a_failed_worker_from_saying_how_it_is(worker, client):
    worker.do(worker.ranks.lose, WrongError(Refusal(Code.RANK_DIED, "rank 1", "two", "x" * 70_000)))
    worker.until(lambda: worker.server.state == "failed")
    assert client.status().refusal["found"].startswith("xxx")


def test_a_client_that_is_refused_again_and_again_fills_no_log(worker, client):
    for _ in range(20):
        with refused(Code.BAD_INPUT):
            client.abort(1)
    told = [fields["count"] for event, fields in worker.events if event == "refused"]
    assert told == [1, 2, 4, 8, 16]
    assert client.status().counters["refused_BAD_INPUT"] == 20
