"""A worker's sockets over ranks that compute: every question is answered once, and rightly."""

import asyncio
import contextlib
import socket
import threading

import pytest

from pp4.errors import BadInputError, Code, Pp4Error, Refusal, RefusedError, WrongError
from pp4.wire.draft_frames import Decoder, encode
from pp4.wire.drafts import ANSWERS, Close, Draft, Features, Hello, Open, Status
from pp4.worker.client import Ask, Client
from pp4.worker.front.limits import Limits
from pp4.worker.front.turns import Turns
from tests.unit.worker.fronts import LOST, OFFER, PATIENT_S, WIDTH, Worker, features_of, same


@pytest.fixture
def make(tmp_path):
    """Makes workers that end with the test."""
    with contextlib.ExitStack() as ending:

        def made(**given):
            worker = Worker(tmp_path / f"worker-{len(ending._exit_callbacks)}.sock", **given)
            ending.callback(worker.close)
            return worker

        yield made


@pytest.fixture
def worker(make):
    return make()


@pytest.fixture
def client(worker):
    with worker.client() as connected:
        yield connected


@contextlib.contextmanager
def refused(code, where=""):
    """Expects a refusal that names a member."""
    with pytest.raises(Pp4Error) as caught:
        yield caught
    assert caught.value.refusal.code is code
    assert where in caught.value.refusal.where


def ready(client, *requests, tokens=2):
    """Open requests with features."""
    for request in requests:
        client.open(request, key=100 + request)
        client.features(request, features_of(request, tokens))


def raw(worker):
    """A connection without a client."""
    connected = socket.socket(socket.AF_UNIX)
    connected.settimeout(PATIENT_S)
    connected.connect(str(worker.path))
    return connected


def answers(connected, count):
    """Read as many answers, or all until the end where it is None."""
    decoder, found = Decoder(ANSWERS), []
    while count is None or len(found) < count:
        data = connected.recv(1 << 16)
        if not data:
            break
        found += [frame.message for frame in decoder.feed(data)]
    return found


# -- what is right -----------------------------------------------------------------------------


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


def test_a_worker_that_does_not_sample_says_so(make):
    worker = make(offer=OFFER.model_copy(update={"sampled": False}))
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


# -- what is wrong with a question -------------------------------------------------------------


def draft(client, **changed):
    """A draft of request 1 with two tokens, changed."""
    members = {
        "sequence": 900,
        "request": 1,
        "generation": 0,
        "slot": 0,
        "round": 7,
        "position": 3,
        "anchor": 5,
        "mode": "sampled",
        "temperature": 0.5,
    }
    return Draft(**{**members, **changed})


WRONG = {
    "an unknown request": ({"request": 2}, "request"),
    "a round that was used": ({"round": 6}, "round"),
    "a position too low": ({"position": 2}, "position"),
    "a position too high": ({"position": 4}, "position"),
    "an anchor beyond the vocabulary": ({"anchor": OFFER.vocab}, "anchor"),
    "sampled without a temperature": ({"temperature": 0.0}, "temperature"),
    "sampled below 0": ({"temperature": -1.0}, "temperature"),
    "greedy with a temperature": ({"mode": "greedy"}, "temperature"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_draft_is_refused_by_its_member_and_changes_nothing(worker, name):
    changed, member = WRONG[name]
    with raw(worker) as connected:
        connected.sendall(
            encode(Hello(sequence=1, depth=4))
            + encode(Open(sequence=2, request=1, key=9))
            + encode(Features(sequence=3, request=1, first=0, tokens=2), bytes(4 * WIDTH))
            + encode(draft(client, sequence=4, round=6))
        )
        assert answers(connected, 4)[-1].verb == "DRAFTED"
        connected.sendall(encode(draft(client, sequence=5, **changed)))
        (told,) = answers(connected, 1)
        assert (told.verb, told.sequence) == ("REFUSED", 5)
        assert told.refusal["code"] == Code.BAD_INPUT
        assert told.refusal["where"] == f"DRAFT, {member}"
        connected.sendall(encode(draft(client, sequence=6)))
        (told,) = answers(connected, 1)
        assert (told.verb, told.sequence, told.round) == ("DRAFTED", 6, 7)
    assert [call[0] for call in worker.ranks.calls].count("draft") == 2


def test_one_draft_of_a_request_at_a_time(worker, client):
    ready(client, 1)
    worker.do(worker.ranks.block)
    ticket = client.submit(Ask(1, round=0, anchor=1))
    with refused(Code.BAD_INPUT, "DRAFT, request"):
        client.draft(Ask(1, round=1, anchor=1))
    with refused(Code.BAD_INPUT, "FEATURES, request"):
        client.features(1, features_of(1, 1))
    worker.do(worker.ranks.release)
    assert client.collect(ticket).round == 0


@pytest.mark.parametrize(
    ("question", "body", "where"),
    [
        (Features(sequence=9, request=2, first=0, tokens=1), 2 * WIDTH, "FEATURES, request"),
        (Features(sequence=9, request=1, first=1, tokens=1), 2 * WIDTH, "FEATURES, first"),
        (Features(sequence=9, request=1, first=3, tokens=1), 2 * WIDTH, "FEATURES, first"),
        (Features(sequence=9, request=1, first=2, tokens=1), 2 * WIDTH + 2, "FEATURES, body"),
        (Open(sequence=9, request=1, key=0), 0, "OPEN, request"),
        (Close(sequence=9, request=2), 0, "CLOSE, request"),
        (Hello(sequence=9, depth=4), 0, "HELLO, connection"),
    ],
)
def test_a_wrong_question_is_refused_by_its_member(worker, question, body, where):
    with raw(worker) as connected:
        connected.sendall(
            encode(Hello(sequence=1, depth=4))
            + encode(Open(sequence=2, request=1, key=9))
            + encode(Features(sequence=3, request=1, first=0, tokens=2), bytes(4 * WIDTH))
            + encode(question, bytes(body))
            + encode(draft(client, sequence=10))
        )
        told = answers(connected, 5)
    assert [one.verb for one in told[-2:]] == ["REFUSED", "DRAFTED"]
    assert told[-2].refusal["where"] == where
    assert told[-2].sequence == 9


@pytest.mark.parametrize(
    ("hello", "where"),
    [
        (Hello(sequence=1, depth=3), "HELLO, depth"),
        (Hello(sequence=1, depth=4, version=2), "HELLO, version"),
        (Hello(sequence=1, depth=4, abi="pp4-draft-v2"), "HELLO, abi"),
        (Open(sequence=1, request=1, key=1), "OPEN, connection"),
        (draft(None, sequence=1), "DRAFT, connection"),
    ],
)
def test_nothing_goes_before_a_hello_that_fits(worker, hello, where):
    with raw(worker) as connected:
        connected.sendall(
            encode(hello) + encode(Status(sequence=2)) + encode(Hello(sequence=3, depth=5))
        )
        told = answers(connected, 3)
    assert [one.verb for one in told] == ["REFUSED", "STANDING", "WELCOME"]
    assert told[0].refusal["where"] == where


def test_a_bad_frame_is_refused_once_and_ends_its_connection_alone(worker, client):
    ready(client, 1)
    with raw(worker) as connected:
        connected.sendall(encode(Status(sequence=1)) + b"nonsense, and more of it" * 9000)
        told = answers(connected, None)
    assert [one.verb for one in told] == ["STANDING", "REFUSED"]
    assert told[1].sequence is None
    assert told[1].refusal["code"] == Code.BAD_FRAME
    assert client.draft(Ask(1, round=0, anchor=1)).round == 0


# -- what is given up --------------------------------------------------------------------------


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
        connected.sendall(encode(draft(None, sequence=3, position=1)))
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
        connected.sendall(encode(draft(None, sequence=6, position=1, round=8)))
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


# -- refusals and failures of the ranks --------------------------------------------------------


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


# -- clients that behave badly, and the ends of a worker ---------------------------------------


def test_a_client_that_never_reads_is_dropped_and_the_others_go_on(make):
    worker = make(limits=Limits(unread_bytes=4096, write_s=0.3))
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


def test_the_questions_of_a_client_that_does_not_read_wait_too(make):
    worker = make(limits=Limits(unread_bytes=4096))
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


def test_until_the_ranks_serve_a_worker_says_how_far_it_is(make):
    worker = make(serving=False)
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


def test_a_start_that_fails_is_told_to_all(make):
    worker = make(serving=False)
    with worker.client(depth=0) as client:
        worker.do(worker.server.fail, LOST)
        worker.do(worker.server.serve, worker.ranks)
        with refused(Code.RANK_DIED):
            client.hello(4)
        assert client.status().state == "failed"


def test_more_connections_than_it_serves_are_turned_away(make):
    worker = make(limits=Limits(connections=1))
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
