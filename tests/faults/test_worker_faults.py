"""Real signals at a worker's ranks and at its owner: one error for all, soon, nobody is left."""

import contextlib
import os
import signal
import time

import pytest

from pp4.errors import Code, Pp4Error, RefusedError
from pp4.wire.draft_frames import encode
from pp4.wire.drafts import Draft, Drafted, Hello, Open, Refused
from pp4.worker.client import Ask
from tests.faults.worker_players import Line
from tests.faults.worker_specs import features_of
from tests.faults.workers import SMALL, Worker
from tests.unit.processes import halt, running, within

SOON_S = 15.0
"""Within which an error has reached everybody; it takes milliseconds, and machines may hiccup."""
HASTY = {"block_s": 3.0, "stop_s": 3.0}
END_S = 20.0


class Chain:
    """Workers on one socket, each the successor of one that was done away with."""

    def __init__(self, directory, checkpoint):
        self._directory, self._checkpoint = directory, checkpoint
        self._count, self.worker = 0, None

    def start(self, **settings):
        """Start the next one, whatever became of the last; -> it, perhaps before it serves."""
        self.close()
        self._count += 1
        directory = self._directory / str(self._count)
        socket = self._directory / "s"
        given = {"limits": HASTY, **settings}
        self.worker = Worker(directory, self._checkpoint, socket=socket, **given)
        return self.worker

    def serving(self):
        """A worker that serves: the last one's successor where that is over."""
        if self.worker is not None and self.worker.process.poll() is None:
            # a test that went wrong may have left it in any state
            with contextlib.suppress(AssertionError):
                return self.worker.serving()
        return self.start().serving()

    def close(self):
        if self.worker is not None:
            self.worker.close()


@pytest.fixture(scope="module")
def chain(tmp_path_factory, drafter):
    made = Chain(tmp_path_factory.mktemp("chain"), drafter)
    yield made
    made.close()


class Callers:
    """Clients of one worker, each with an open request 1 that has features."""

    def __init__(self, worker, depths=(4, 5, 4)):
        self.worker = worker
        self.clients = [worker.client(depth, limit_s=SOON_S * 4) for depth in depths]
        for place, client in enumerate(self.clients):
            client.open(1, key=place)
            client.features(1, features_of(place, 5, SMALL.feature_width))
        self.round, self.tickets = 0, []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for client in self.clients:
            client.disconnect()

    def ask(self):
        """An ask of each, sampled and greedy ones."""
        self.round += 1
        return [Ask(1, self.round, 7, place % 2) for place in range(len(self.clients))]

    def drafts(self):
        """A draft of each; -> what came of them."""
        return [outcome(c.draft, ask) for c, ask in zip(self.clients, self.ask(), strict=True)]

    def submit(self):
        """Ask for a draft of each, and see them arrive."""
        before = self.worker.status().counters["asked"]
        self.tickets = [c.submit(ask) for c, ask in zip(self.clients, self.ask(), strict=True)]
        asked = before + len(self.tickets)
        assert within(lambda: self.worker.status().counters["asked"] == asked)

    def collect(self):
        """What came of the drafts that were asked for."""
        pairs = zip(self.clients, self.tickets, strict=False)
        return [outcome(client.collect, ticket) for client, ticket in pairs]


class Crowd:
    """Lines with eight open requests each, whose answers nobody has read yet."""

    LINES, REQUESTS = 4, 8

    def __init__(self, worker):
        self.lines = [Line(worker.socket) for _ in range(self.LINES)]
        self.answers = []
        for place, line in enumerate(self.lines):
            frames = [Hello(sequence=0, depth=4 + place % 2)]
            frames += [Open(sequence=10 + n, request=n, key=n) for n in range(self.REQUESTS)]
            line.socket.sendall(b"".join(map(encode, frames)))
            self.answers.append([])
            while len(self.answers[place]) < len(frames):
                self.answers[place] += line.receive()
            self.answers[place].clear()

    def ask(self, round_number):
        """One draft of every request of every line, in one piece."""
        for line in self.lines:
            drafts = [
                Draft(
                    sequence=100 * (round_number + 1) + number,
                    request=number,
                    generation=0,
                    slot=0,
                    round=round_number,
                    position=1,
                    anchor=number,
                    mode="sampled",
                    temperature=1.0,
                )
                for number in range(self.REQUESTS)
            ]
            line.socket.sendall(b"".join(map(encode, drafts)))

    def read(self, more):
        """-> code of every draft that was asked for last, and of as many more of the first line.

        None where it was drafted.  No draft is answered twice, and none is left out.
        """
        told = []
        for place, line in enumerate(self.lines):
            frames, wanted = [], self.REQUESTS + (0 if place else more)
            while len(frames) < wanted:
                frames += line.receive()
            answers = {frame.message.sequence: frame.message for frame in frames}
            assert len(frames) == len(answers) == wanted
            told += [
                one.refusal["code"] if isinstance(one, Refused) else None
                for one in answers.values()
            ]
        return told

    def read_to_the_end(self):
        """-> what came of every draft of every line, by sequence, until the end of the stream."""
        for line, answers in zip(self.lines, self.answers, strict=True):
            while frames := line.receive():
                answers += frames
        return [
            {frame.message.sequence: frame.message for frame in answers} for answers in self.answers
        ]

    def close(self):
        for line in self.lines:
            line.close()


def outcome(call, *arguments):
    """What a call gives, an error included."""
    try:
        return call(*arguments)
    except Pp4Error as error:
        return error


def codes(outcomes):
    """Codes of errors; None for what is no error."""
    return [one.refusal.code if isinstance(one, Pp4Error) else None for one in outcomes]


def is_failed_for_good(worker, callers, code):
    """The same error for everybody, old and new, and both ranks gone while the owner lives."""
    standing = worker.until("failed")
    assert standing.refusal["code"] == code
    for client in callers.clients:
        again = outcome(client.draft, callers.ask()[0]), outcome(client.open, 9, 9)
        assert [one.refusal.as_dict() for one in again] == [standing.refusal] * 2
    with worker.client() as late:
        assert outcome(late.hello, 4).refusal.as_dict() == standing.refusal
    assert within(lambda: worker.gone)
    assert worker.process.poll() is None
    assert worker.until("failed").refusal == standing.refusal


def ends(worker, code):
    """SIGTERM ends what is left, in time, and nothing stays."""
    ended = worker.end(END_S)
    assert ended.code == code, ended.log
    assert worker.gone
    assert not worker.socket.exists()
    (torn_down,) = ended.events("torn_down")
    assert torn_down["dead"] == [True, True]
    assert torn_down["pids"] == list(worker.ranks)
    assert torn_down["links_left"] == 0


def serves(worker):
    """A worker drafts for everybody."""
    with Callers(worker) as callers:
        assert codes(callers.drafts()) == [None] * 3


# -- a rank ---------------------------------------------------------------------------------


def test_a_rank_killed_before_the_worker_serves(chain):
    worker = chain.start()
    coming = ("starting", "primed")
    worker.until(*coming)
    # it comes no further: every step takes both
    halt(worker.ranks[1])
    assert worker.until(*coming).offer is None
    with worker.client() as waiting:
        assert codes([outcome(waiting.hello, 4)]) == [Code.UNPRIMED]
        os.kill(worker.ranks[1], signal.SIGKILL)
        ended = worker.ended(END_S)
        assert ended.code == 1
        refused = ended.log[-1]
        assert (refused["event"], refused["code"]) == ("refused", "RANK_DIED")
        assert refused["found"] == f"process {worker.ranks[1]} has ended"
        (failed,) = ended.events("failed")
        assert failed["code"] == "RANK_DIED"
        assert codes([outcome(waiting.status)]) == [Code.CONNECTION_LOST]
    assert worker.gone
    assert not worker.socket.exists()
    serves(chain.serving())


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_killed_while_nothing_is_asked(chain, rank):
    worker = chain.serving()
    with Callers(worker) as callers:
        assert codes(callers.drafts()) == [None] * 3
        began = time.monotonic()
        os.kill(worker.ranks[rank], signal.SIGKILL)
        worker.until("failed")
        seconds = time.monotonic() - began
        print(f"noticed within {seconds:.3f} s")
        assert seconds < SOON_S
        assert codes(callers.drafts()) == [Code.RANK_DIED] * 3
        is_failed_for_good(worker, callers, "RANK_DIED")
    ends(worker, code=1)
    serves(chain.serving())


@pytest.mark.parametrize(("rank", "lasts"), [(0, True), (1, True), (1, False)])
def test_a_rank_killed_under_load(chain, rank, lasts):
    worker = chain.serving()
    with Callers(worker) as callers, contextlib.closing(Crowd(worker)) as crowd:
        if lasts:
            # a block takes both, and the other one has stopped
            halt(worker.ranks[1 - rank])
        callers.submit()
        crowd.ask(1)
        # it waits behind a block
        crowd.lines[0].socket.sendall(encode(Open(sequence=1, request=99, key=1)))
        began = time.monotonic()
        os.kill(worker.ranks[rank], signal.SIGKILL)
        told = [*codes(callers.collect()), *crowd.read(1)]
        seconds = time.monotonic() - began
        print(f"answered within {seconds:.3f} s")
        assert seconds < SOON_S
        # what was drafted before may have left
        assert set(told) <= ({"RANK_DIED"} if lasts else {"RANK_DIED", None})
        # the one that has stopped is proven dead as well
        is_failed_for_good(worker, callers, "RANK_DIED")
    ends(worker, code=1)
    serves(chain.serving())


@pytest.mark.parametrize("asked", ["draft", "open"])
def test_a_rank_that_stops_does_not_outlast_the_bound(chain, asked):
    worker = chain.serving()
    with Callers(worker) as callers, worker.client(4) as other:
        halt(worker.ranks[1])
        began = time.monotonic()
        if asked == "draft":
            callers.submit()
        found = outcome(other.open, 1, 1)
        seconds = time.monotonic() - began
        assert codes([found]) == [Code.STEP_TIMEOUT]
        assert found.refusal.expected == "an answer within 3 s"
        assert HASTY["block_s"] * 0.9 < seconds < HASTY["block_s"] + SOON_S
        assert codes(callers.collect()) == [Code.STEP_TIMEOUT] * len(callers.tickets)
        is_failed_for_good(worker, callers, "STEP_TIMEOUT")
    ends(worker, code=1)


# -- the owner ------------------------------------------------------------------------------


@pytest.mark.parametrize("stopped", [False, True])
def test_ranks_end_with_an_owner_that_is_killed(chain, stopped):
    worker = chain.serving()
    with Callers(worker) as callers:
        if stopped:
            halt(worker.ranks[0])
            callers.submit()
        worker.signal(signal.SIGKILL)
        assert within(lambda: not any(running(pid) for pid in worker.ranks))
        lost = callers.collect() if stopped else callers.drafts()
        assert codes(lost) == [Code.CONNECTION_LOST] * 3
    # its file is still there, and its successor takes the place
    assert worker.socket.exists()
    with pytest.raises(RefusedError) as caught:
        worker.status()
    assert caught.value.refusal.code is Code.UNREACHABLE
    serves(chain.serving())


@pytest.mark.parametrize("stopped", [False, True])
def test_an_owner_that_is_asked_to_end_under_load(chain, stopped):
    worker = chain.serving()
    before = worker.status().counters["asked"]
    with contextlib.closing(Crowd(worker)) as crowd:
        if stopped:
            halt(worker.ranks[0])
        crowd.ask(0)
        every = crowd.LINES * crowd.REQUESTS
        assert within(lambda: worker.status().counters["asked"] == before + every)
        began = time.monotonic()
        worker.signal(signal.SIGTERM)
        for answered in crowd.read_to_the_end():
            assert sorted(answered) == [100 + number for number in range(crowd.REQUESTS)]
            for one in answered.values():
                assert isinstance(one, Drafted) or one.refusal["code"] == "INTERRUPTED"
                assert not (stopped and isinstance(one, Drafted))
        ended = worker.ended(END_S)
        print(f"ended within {time.monotonic() - began:.3f} s")
    assert ended.code == 0
    assert worker.gone
    assert not worker.socket.exists()
    assert ended.events("torn_down")[0]["dead"] == [True, True]
