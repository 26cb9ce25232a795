"""Clients that behave badly, and the states of a worker from its start to its stop."""

import asyncio
import contextlib

from pp4.errors import Code
from pp4.wire.draft_frames import encode
from pp4.wire.drafts import Hello, Open, Status
from pp4.worker.client import Ask, Client
from pp4.worker.front.limits import Limits
from pp4.worker.front.turns import Turns
from tests.unit.worker.fronts import (
    LOST,
    OFFER,
    PATIENT_S,
    answers,
    raw,
    ready,
    refused,
)


def test_a_client_that_never_reads_is_dropped_and_the_others_go_on(make_worker):
    worker = make_worker(limits=Limits(unread_bytes=4096, write_s=0.3))
    with raw(worker) as silent, worker.client() as client:
        silent.setblocking(False)
        sent, question = 0, encode(Status(sequence=1))
        with contextlib.suppress(OSError):
            while sent < 64 << 20:
                try:
                    sent += silent.send(question * 1000)
                except BlockingIOError:
                    if worker.server.counters.disconnects:
                        break
                    worker.until(lambda: True)
        # it stopped reading long before the client stopped sending
        assert sent < 8 << 20
        worker.until(lambda: worker.server.counters.disconnects == 1)
        ready(client, 1)
        assert client.draft(Ask(1, round=0, anchor=1)).round == 0
        assert worker.server.counters.sent_bytes < 8 << 20


def test_the_questions_of_a_client_that_does_not_read_wait_too(make_worker):
    worker = make_worker(limits=Limits(unread_bytes=4096))
    with raw(worker) as silent:
        silent.setblocking(False)
        worker.until(lambda: len(worker.server._clients) == 1)
        (outbox,) = worker.do(lambda: [one._outbox for one in worker.server._clients])

        def enough():
            with contextlib.suppress(BlockingIOError):
                silent.send(encode(Status(sequence=1)) * 1000)
            return not outbox._room.is_set() or outbox._bytes > 1 << 20

        worker.until(enough)
        one = len(encode(worker.do(worker.server._service.standing, 1)))
        assert 4096 < outbox._bytes <= 4096 + one


def test_until_the_ranks_serve_a_worker_says_how_far_it_is(make_worker):
    worker = make_worker(serving=False)
    with worker.client(depth=0) as client:
        first = client.status()
        assert (first.state, first.offer, first.ranks) == ("starting", None, (11, 12))
        with refused(Code.UNPRIMED):
            client.hello(4)
        worker.do(worker.server.primed)
        assert client.status().state == "primed"
        assert client.status().since >= first.since
        worker.do(worker.server.serve, worker.ranks)
        assert client.status().offer == OFFER
        assert client.hello(4) == OFFER


def test_a_start_that_fails_is_told_to_all(make_worker):
    worker = make_worker(serving=False)
    with worker.client(depth=0) as client:
        worker.do(worker.server.fail, LOST)
        worker.do(worker.server.serve, worker.ranks)
        with refused(Code.RANK_DIED):
            client.hello(4)
        assert client.status().state == "failed"


def test_more_connections_than_it_serves_are_turned_away(make_worker):
    worker = make_worker(limits=Limits(connections=1))
    with worker.client() as client:
        with worker.client(depth=0) as other, refused(Code.WORKER_FULL):
            other.status()
        ready(client, 1)
    worker.until(lambda: worker.server.counters.disconnects == 1)
    with worker.client() as other:
        assert other.status().counters["connected"] == 1


def test_stopping_answers_what_waits_and_lets_the_block_end(worker, client):
    ready(client, 1, 2)
    worker.do(worker.ranks.block)
    launched = client.submit(Ask(1, round=0, anchor=1))
    assert worker.ranks.entered.wait(PATIENT_S)
    waiting = client.submit(Ask(2, round=0, anchor=1))
    worker.waiting(1)
    opening = raw(worker)
    opening.sendall(encode(Hello(sequence=1, depth=4)) + encode(Open(sequence=2, request=1, key=1)))
    worker.until(lambda: len(worker.server._service._turns._waiting) == 1)

    async def stop():
        stopping = asyncio.create_task(worker.server.stop(PATIENT_S))
        while worker.server._service.standing(0).counters["waiting"]:
            await asyncio.sleep(0)
        assert not stopping.done()
        worker.ranks.release()
        await stopping

    worker.wait(stop())
    told = answers(opening, None)
    opening.close()
    assert [one.verb for one in told] == ["WELCOME", "REFUSED"]
    assert told[1].refusal["code"] == Code.INTERRUPTED
    assert [call[0] for call in worker.ranks.calls].count("open") == 2
    assert client.collect(launched).round == 0
    with refused(Code.INTERRUPTED):
        client.collect(waiting)
    with refused(Code.CONNECTION_LOST):
        client.draft(Ask(2, round=1, anchor=1))
    assert worker.server.state == "torn down"
    assert not worker.path.exists()
    with refused(Code.UNREACHABLE):
        Client.unix(worker.path)


def test_stopping_does_not_wait_for_a_block_that_never_ends(worker, client):
    ready(client, 1)
    worker.do(worker.ranks.block)
    launched = client.submit(Ask(1, round=0, anchor=1))
    assert worker.ranks.entered.wait(PATIENT_S)
    worker.wait(worker.server.stop(0.1))
    with refused(Code.INTERRUPTED):
        client.collect(launched)


def test_whose_turn_comes_as_the_worker_stops_does_not_get_it():
    async def main():
        turns, taken = Turns(), []

        async def take():
            async with turns.taken():
                taken.append("a turn")

        async with turns.taken():
            waiting = asyncio.create_task(take())
            await asyncio.sleep(0)
        # it was handed on, and whoever has it has not run yet
        turns.shut(LOST)
        await asyncio.wait([waiting])
        assert waiting.exception().refusal == LOST.refusal
        assert taken == []
        assert await turns.idle(0.0)

    asyncio.run(main())
