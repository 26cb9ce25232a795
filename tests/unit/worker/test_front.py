"""A worker's sockets over ranks that compute: what is right, and what is given up."""

import pytest

from pp4.errors import Code, Pp4Error
from pp4.wire.draft_frames import encode
from pp4.wire.drafts import Hello, Open
from pp4.worker.client import Ask
from tests.unit.worker.fronts import (
    OFFER,
    PATIENT_S,
    answers,
    draft,
    features_of,
    raw,
    ready,
    refused,
    same,
)


@pytest.mark.parametrize("depth", [4, 5])
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_a_request_from_its_opening_to_its_closing(worker, depth, temperature):
    with worker.client(depth) as client:
        assert client.offer == OFFER
        ready(client, 3)
        ask = Ask(3, round=5, anchor=999, temperature=temperature, generation=8, slot=6)
        given = (103, 3, 5, 999, temperature > 0, features_of(3, 2))
        proposal = client.draft(ask)
        assert same(proposal, depth, *given)
        assert (proposal.request, proposal.round, proposal.position) == (3, 5, 3)
        assert (proposal.generation, proposal.slot) == (8, 6)
        assert proposal.mode == ("sampled" if temperature else "greedy")
        client.close(3)
        with refused(Code.BAD_INPUT, "request"):
            client.draft(ask)
    assert worker.ranks.features == {}


def test_a_worker_that_does_not_sample_says_so(make_worker):
    worker = make_worker(offer=OFFER.model_copy(update={"sampled": False}))
    with worker.client() as client:
        ready(client, 1)
        assert client.draft(Ask(1, round=0, anchor=1, temperature=0.7)).mode == "greedy"


def test_drafts_that_wait_together_are_drafted_together(worker, client):
    ready(client, 1, 2, 3, 4)
    worker.do(worker.ranks.block)
    first = client.submit(Ask(1, round=0, anchor=1))
    assert worker.ranks.entered.wait(PATIENT_S)
    rest = [client.submit(Ask(one, round=0, anchor=one)) for one in (2, 3, 4)]
    worker.waiting(3)
    worker.do(worker.ranks.release)
    for request, ticket in zip((1, 2, 3, 4), [first, *rest], strict=True):
        given = (100 + request, 3, 0, request, False, features_of(request, 2))
        assert same(client.collect(ticket), 4, *given)
    drafts = [call for call in worker.ranks.calls if call[0] == "draft"]
    assert drafts == [("draft", 4, (1,)), ("draft", 4, (2, 3, 4))]
    counters = client.status().counters
    assert (counters["blocks"], counters["rows"], counters["replies"]) == (2, 4, 4)
    assert (counters["padded_rows"], counters["positions"]) == (1, 16)
    assert sum(worker.server.counters.waits) == 4
    assert worker.server.counters.wait_ns > 0


def test_a_batch_has_one_depth_and_the_oldest_goes_first(worker, client):
    ready(client, 1, 2, 3)
    with worker.client(5) as deeper:
        ready(deeper, 1, 2)
        worker.do(worker.ranks.block)
        tickets = [client.submit(Ask(1, round=0, anchor=1))]
        assert worker.ranks.entered.wait(PATIENT_S)
        deep = []
        for count, (asker, request) in enumerate(
            ((deeper, 1), (client, 2), (deeper, 2), (client, 3))
        ):
            (deep if asker is deeper else tickets).append(
                asker.submit(Ask(request, round=0, anchor=1))
            )
            worker.waiting(count + 1)
        worker.do(worker.ranks.release)
        for ticket in tickets:
            client.collect(ticket)
        for ticket in deep:
            deeper.collect(ticket)
    drafts = [call for call in worker.ranks.calls if call[0] == "draft"]
    assert drafts == [("draft", 4, (1,)), ("draft", 5, (4, 5)), ("draft", 4, (2, 3))]


def test_turns_are_taken_in_order_of_arrival(worker, client):
    ready(client, 1)
    with worker.client() as other, worker.client() as third:
        ready(other, 1)
        ready(third, 1)
        worker.do(worker.ranks.block)
        begun = client.submit(Ask(1, round=0, anchor=1))
        assert worker.ranks.entered.wait(PATIENT_S)
        before = len(worker.ranks.calls)
        appending = raw(worker)
        try:
            appending.sendall(
                encode(Hello(sequence=1, depth=4)) + encode(Open(sequence=2, request=1, key=1))
            )
            # it waits for its turn, and then a draft comes
            worker.until(lambda: len(worker.server._service._turns._waiting) == 1)
            late = other.submit(Ask(1, round=0, anchor=1))
            worker.waiting(1)
            worker.do(worker.ranks.release)
            client.collect(begun)
            other.collect(late)
            assert len(answers(appending, 2)) == 2
        finally:
            appending.close()
        assert [call[0] for call in worker.ranks.calls[before:]][:2] == ["open", "draft"]


def test_a_waiting_draft_that_is_aborted_never_reaches_the_ranks(worker, client):
    ready(client, 1, 2)
    worker.do(worker.ranks.block)
    first = client.submit(Ask(1, round=0, anchor=1))
    assert worker.ranks.entered.wait(PATIENT_S)
    second = client.submit(Ask(2, round=0, anchor=1))
    assert client.abort(2) is True
    with refused(Code.INTERRUPTED):
        client.collect(second)
    worker.do(worker.ranks.release)
    assert client.collect(first).round == 0
    assert [call for call in worker.ranks.calls if call[0] == "draft"] == [("draft", 4, (1,))]
    assert client.abort(2) is False
    with refused(Code.BAD_INPUT, "round"):
        client.draft(Ask(2, round=0, anchor=1))
    assert client.draft(Ask(2, round=1, anchor=1)).round == 1


def test_an_abort_of_what_the_ranks_have_is_answered_when_they_are_done(worker):
    with raw(worker) as connected:
        connected.sendall(
            encode(Hello(sequence=1, depth=4)) + encode(Open(sequence=2, request=1, key=9))
        )
        worker.do(worker.ranks.block)
        connected.sendall(encode(draft(sequence=3, position=1)))
        assert worker.ranks.entered.wait(PATIENT_S)
        abort = b'{"verb":"ABORT","sequence":%d,"request":1}'
        for sequence in (4, 5):
            meta = abort % sequence
            head = b"PP4D\1\0\0\0" + len(meta).to_bytes(4, "little") + bytes(4)
            connected.sendall(head + meta)
        # the second ABORT is refused, and its answer proves that the first one was read
        told = answers(connected, 3)
        assert [(one.verb, one.sequence) for one in told[2:]] == [("REFUSED", 5)]
        worker.do(worker.ranks.release)
        told = answers(connected, 2)
        assert [(one.verb, one.sequence) for one in told] == [("REFUSED", 3), ("ABORTED", 4)]
        assert told[0].refusal["code"] == Code.INTERRUPTED
        connected.sendall(encode(draft(sequence=6, position=1, round=8)))
        (told,) = answers(connected, 1)
        assert (told.verb, told.sequence, told.round) == ("DRAFTED", 6, 8)


def test_closing_gives_up_the_draft_that_is_under_way(worker, client):
    ready(client, 1)
    worker.do(worker.ranks.block)
    ticket = client.submit(Ask(1, round=0, anchor=1))
    assert worker.ranks.entered.wait(PATIENT_S)
    with pytest.raises(Pp4Error) as caught:
        client.close(1, limit_s=0.05)
    assert caught.value.refusal.code is Code.STEP_TIMEOUT
    worker.do(worker.ranks.release)
    with refused(Code.INTERRUPTED):
        client.collect(ticket)
    worker.until(lambda: worker.ranks.features == {})
    assert [call[0] for call in worker.ranks.calls][-2:] == ["draft", "close"]
    client.open(1, key=1)


def test_a_client_that_leaves_takes_its_requests_and_drafts_along(worker, client):
    ready(client, 1)
    leaving = worker.client()
    ready(leaving, 1, 2, 3)
    worker.do(worker.ranks.block)
    kept = client.submit(Ask(1, round=0, anchor=1))
    assert worker.ranks.entered.wait(PATIENT_S)
    leaving.submit(Ask(1, round=0, anchor=1))
    leaving.submit(Ask(2, round=0, anchor=1))
    worker.waiting(2)
    leaving.disconnect()
    worker.waiting(0)
    worker.do(worker.ranks.release)
    assert client.collect(kept).round == 0
    worker.until(lambda: len(worker.ranks.features) == 1)
    assert [call for call in worker.ranks.calls if call[0] == "draft"] == [("draft", 4, (1,))]
    assert worker.server.counters.disconnects == 1
    assert worker.server.counters.closed == 3


def test_a_client_that_leaves_during_its_block_disturbs_nobody(worker, client):
    leaving = worker.client()
    ready(leaving, 1)
    worker.do(worker.ranks.block)
    leaving.submit(Ask(1, round=0, anchor=1))
    assert worker.ranks.entered.wait(PATIENT_S)
    leaving.disconnect()
    worker.do(worker.ranks.release)
    worker.until(lambda: worker.ranks.features == {})
    ready(client, 1)
    assert client.draft(Ask(1, round=0, anchor=1)).round == 0
