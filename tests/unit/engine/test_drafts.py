"""Drafts of a worker whose ranks do as a test says: what is asked, when, and why there is none.

These ranks answer words that are no proposal, so a draft that was asked for and came is MALFORMED;
what they were given is what the tests look at.
"""

import asyncio
import socket
import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from pp4.clock import Deadline, SystemClock
from pp4.engine.adapters.handshake import Wanted
from pp4.engine.drafting import Cause, Want
from pp4.engine.drafts import Drafts, Patience
from pp4.engine.held import Held
from pp4.errors import BadInputError, Code, Refusal, RefusedError, TimedOutError, WrongError
from pp4.kernels import dyadic24
from pp4.verifier.units import Mode
from tests.unit.processes import LONG, within
from tests.unit.worker.fronts import BLOCK, LOST, OFFER, WIDTH, Worker

FIT = OFFER.model_copy(
    update={
        "definition": dyadic24.DEFINITION,
        "definition_sha256": dyadic24.definition_digest(),
        "context": 16,
    }
)
CAME = Cause.MALFORMED
PATIENT = Patience(draft_s=LONG, exchange_s=LONG, retry_steps=3)
FULL = RefusedError(Refusal(Code.CACHE_FULL, "cache", "room", "none"))


@pytest.fixture
def serve(tmp_path):
    started = []

    def start(offer=FIT, **more):
        started.append(Worker(tmp_path / f"w{len(started)}", offer=offer, **more))
        return started[-1]

    yield start
    for one in started:
        one.close()


@pytest.fixture
def worker(serve):
    return serve()


class Asker:
    """Drafts for requests whose rounds and positions are counted here."""

    def __init__(self, path, patience=PATIENT, sampled=False):
        target = SimpleNamespace(vocab=FIT.vocab, width=WIDTH, slots=3)
        wanted = Wanted.of(vocab=FIT.vocab, block=BLOCK, depth=4, sampled=sampled)
        self.drafts = Drafts(path, target, wanted, patience)
        self.round, self.kept, self.told = 0, {}, {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.drafts.disconnect()

    def open(self, slot, request, tokens=0):
        self.drafts.open(slot, request, key=100 + request)
        self.kept[slot], self.told[slot] = 0, b""
        self.keep(slot, tokens)

    def keep(self, slot, tokens):
        features = torch.randn(tokens, WIDTH).bfloat16()
        self.drafts.keep(slot, features)
        self.kept[slot] += tokens
        self.told[slot] += features.view(torch.int16).numpy().tobytes()

    def draft(self, *slots, temperature=0.0):
        self.round += 1
        wants = [Want(one, self.round, 5, self.kept[one] + 1, temperature) for one in slots]
        return self.drafts.draft(wants)

    def counted(self, name):
        return self.drafts.as_dict()[name]


@pytest.fixture
def asker(worker):
    with Asker(worker.path) as made:
        yield made


def features_at(worker):
    """What the ranks have of each request, in the order in which they were opened."""
    return worker.do(lambda: list(worker.ranks.features.values()))


def drafts_at(worker):
    return worker.do(lambda: [call for call in worker.ranks.calls if call[0] == "draft"])


# -- what a worker is told ---------------------------------------------------------------------


def test_a_worker_has_all_features_before_it_is_asked(worker, asker):
    asker.open(0, 10, tokens=3)
    asker.open(1, 11)
    assert asker.draft(0, 1) == [CAME, CAME]
    assert features_at(worker) == [asker.told[0], b""]
    asker.keep(0, 1)
    asker.keep(1, 2)
    asker.keep(1, 1)
    assert asker.draft(0) == [CAME]
    # of the other one nothing was asked, so nothing was sent
    assert features_at(worker) == [asker.told[0], b""]
    assert asker.draft(1, 0) == [CAME, CAME]
    assert features_at(worker) == [asker.told[0], asker.told[1]]
    assert asker.counted("features") == 7
    assert asker.counted("opened") == 2


def test_a_request_that_has_ended_is_closed_with_the_next_step(worker, asker):
    asker.open(0, 10, tokens=3)
    asker.draft(0)
    asker.drafts.close(0)
    asker.open(0, 11, tokens=2)
    asker.draft(0)
    assert features_at(worker) == [asker.told[0]]
    with pytest.raises(BadInputError):
        asker.drafts.close(1)
    with pytest.raises(BadInputError):
        asker.open(0, 12)
    with pytest.raises(BadInputError):
        asker.open(3, 12)


def test_a_position_that_features_do_not_reach_is_never_asked_for(worker, asker):
    asker.open(0, 10, tokens=3)
    for wrong in (3, 5):
        with pytest.raises(BadInputError, match="features of 3 tokens are kept"):
            asker.drafts.draft([Want(0, 1, 5, wrong, 0.0)])
    for other in (
        torch.zeros(1, WIDTH + 1, dtype=torch.bfloat16),
        torch.zeros(WIDTH, dtype=torch.bfloat16),
        torch.zeros(1, WIDTH),
    ):
        with pytest.raises(BadInputError, match="features"):
            asker.drafts.keep(0, other)
    assert drafts_at(worker) == []


def test_what_the_workers_context_cannot_hold_is_not_sent(worker, asker):
    asker.open(0, 10, tokens=16)
    asker.open(1, 11, tokens=17)
    assert asker.draft(0, 1) == [CAME, Cause.NO_ROOM]
    asker.keep(0, 1)
    assert asker.draft(0, 1) == [Cause.NO_ROOM] * 2
    assert features_at(worker) == [asker.told[0][: 16 * WIDTH * 2]]


@pytest.mark.parametrize(
    ("serves", "asks", "temperature", "mode"),
    [
        (True, True, 0.7, Mode.SAMPLED),
        (True, False, 0.7, Mode.DELTA),
        (False, True, 0.7, Mode.DELTA),
        (False, False, 0.7, Mode.DELTA),
        (True, True, 0.0, Mode.GREEDY_T0),
        (False, False, 0.0, Mode.GREEDY_T0),
    ],
)
def test_both_switches_have_to_be_on_for_sampled_drafts(serve, serves, asks, temperature, mode):
    worker, asked = serve(FIT.model_copy(update={"sampled": serves})), []

    def reply(n_out, row):
        """Token 7, all of q on it where it is sampled."""
        asked.append(row.sampled)
        ids, q = np.full((BLOCK, 32), -1, np.int32), np.zeros((BLOCK, 32), np.float32)
        if row.sampled and serves:
            ids[:, 0], q[:, 0] = 7, 1
        tokens, confidence = np.full(BLOCK, 7, np.int32), np.zeros(BLOCK, np.float32)
        return b"".join(one.tobytes() for one in (ids, q, tokens, confidence))

    worker.ranks._reply = reply
    with Asker(worker.path, sampled=asks) as asker:
        asker.open(1, 10, tokens=2)
        (found,) = asker.draft(1, temperature=temperature)
    assert (found.mode, found.tokens.tolist()) == (mode, [7] * 4)
    assert (found.slot, found.round, found.position, found.key) == (1, 1, 3, 110)
    assert asked == [asks and temperature > 0]


@pytest.mark.parametrize(
    "given", [{"draft_s": 0}, {"exchange_s": float("nan")}, {"retry_steps": 0}]
)
def test_patience_has_to_be_some(given):
    with pytest.raises(BadInputError, match="patience"):
        Patience(**given)


def test_features_are_held_from_any_token_on():
    held, whole = Held(1, 2), torch.randn(9, WIDTH).bfloat16()
    for first, end in ((0, 0), (0, 4), (4, 5), (5, 5), (5, 9)):
        held.keep(whole[first:end])
    assert held.kept == 9
    for first in range(9):
        assert torch.equal(held.since(first), whole[first:])


# -- workers that are not there, or not the right ones -----------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"vocab": 999},
        {"draft_vocab": 998},
        {"bounds": ((0, 504), (504, 1000))},
        {"feature_width": 2},
        {"block": 6},
        {"tau": "0.6"},
        {"candidates": 31},
        {"definition": "another"},
        {"definition_sha256": "11" * 32},
    ],
)
def test_a_worker_for_another_target_is_not_asked(serve, change):
    worker = serve(FIT.model_copy(update=change))
    with Asker(worker.path) as asker:
        asker.open(0, 10)
        assert asker.draft(0) == asker.draft(0) == [Cause.UNFIT]
        with pytest.raises(RefusedError) as caught:
            asker.drafts.connect()
        refusal = caught.value.refusal
        assert refusal.code is Code.ABI_MISMATCH
        ((name, value),) = change.items()
        assert refusal.where == f"handshake, {name}"
        assert str(value) in refusal.found
        assert str(value) not in refusal.expected
        assert drafts_at(worker) == []


def test_what_is_wanted_has_to_be_for_the_target():
    target = SimpleNamespace(vocab=FIT.vocab, width=WIDTH, slots=3)
    wanted = Wanted.of(vocab=999, block=BLOCK, depth=4, sampled=False)
    with pytest.raises(BadInputError, match="wanted vocab: expected 1000, the target's"):
        Drafts("nowhere", target, wanted)


def test_so_is_one_without_that_depth(serve):
    worker = serve(FIT.model_copy(update={"depths": (5,)}))
    with Asker(worker.path) as asker:
        asker.open(0, 10)
        assert asker.draft(0) == [Cause.UNFIT]
        assert asker.drafts.trouble.refusal.where == "HELLO, depth"


def test_nobody_is_asked_again_only_after_some_steps(tmp_path):
    with Asker(tmp_path / "nobody") as asker:
        asker.open(0, 10)
        attempts = []
        for _ in range(8):
            assert asker.draft(0) == [Cause.NOT_CONNECTED]
            attempts.append(asker.counted("attempts"))
        assert attempts == [1, 1, 1, 2, 2, 2, 3, 3]
        assert asker.drafts.trouble.refusal.code is Code.UNREACHABLE
        assert not asker.drafts.connected


def test_a_worker_that_starts_is_asked_again(serve):
    worker = serve(serving=False)
    with Asker(worker.path) as asker:
        asker.open(0, 10, tokens=2)
        assert asker.draft(0) == [Cause.NOT_CONNECTED]
        assert asker.drafts.trouble.refusal.code is Code.UNPRIMED
        worker.do(worker.server.serve, worker.ranks)
        assert [asker.draft(0) for _ in range(3)] == [[Cause.NOT_CONNECTED]] * 2 + [[CAME]]
        assert asker.drafts.trouble is None
        assert features_at(worker) == [asker.told[0]]


# -- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["open", "append", "draft"])
def test_a_request_that_was_refused_rests_and_begins_anew(worker, asker, verb):
    asker.open(0, 10, tokens=2)
    asker.open(1, 11, tokens=2)
    assert asker.draft(0) == [CAME]
    asker.keep(0, 1)
    worker.do(worker.ranks.refusing.update, {verb: FULL})
    hit = [Cause.REFUSED, CAME] if verb == "append" else [CAME, Cause.REFUSED]
    if verb == "draft":
        # a batch is refused as a whole
        hit = [Cause.REFUSED, Cause.REFUSED]
    assert asker.draft(0, 1) == hit
    rests = [Cause.RESTING if one is Cause.REFUSED else CAME for one in hit]
    for _ in range(2):
        asker.keep(0, 1)
        asker.keep(1, 1)
        assert asker.draft(0, 1) == rests
    assert asker.draft(0, 1) == [CAME, CAME]
    assert sorted(features_at(worker)) == sorted([asker.told[0], asker.told[1]])
    assert asker.counted("connections") == 1
    assert asker.counted("ended") == 0


def test_one_that_was_refused_may_end_while_it_rests(worker, asker):
    asker.open(0, 10, tokens=2)
    worker.do(worker.ranks.refusing.update, {"append": FULL})
    assert asker.draft(0) == [Cause.REFUSED]
    asker.drafts.close(0)
    asker.open(0, 11, tokens=1)
    assert asker.draft(0) == [CAME]
    assert features_at(worker) == [asker.told[0]]


def test_ranks_that_are_over_are_a_failed_worker(worker, asker):
    asker.open(0, 10, tokens=2)
    assert asker.draft(0) == [CAME]
    worker.do(worker.ranks.lose, LOST)
    worker.until(lambda: worker.server._service.error is not None)
    for _ in range(9):
        assert asker.draft(0) == [Cause.FAILED]
    assert asker.counted("connections") == 1
    assert asker.counted("attempts") == 3
    assert asker.drafts.trouble.refusal.code is LOST.refusal.code


@pytest.mark.parametrize("kind", [WrongError, TimedOutError])
@pytest.mark.parametrize("verb", ["open", "append", "draft"])
def test_whatever_a_worker_says_but_a_refusal_is_its_end(worker, asker, verb, kind):
    worker.do(worker.ranks.refusing.update, {verb: kind(_refusal_of(kind))})
    asker.open(0, 10, tokens=2)
    assert asker.draft(0) == [Cause.FAILED]
    assert not asker.drafts.connected


def _refusal_of(kind):
    code = Code.STEP_TIMEOUT if kind is TimedOutError else Code.RANKS_DIFFER
    return Refusal(code, "ranks", "one", "another")


# -- drafts that do not come -------------------------------------------------------------------


def hasty_for(steps):
    return Patience(draft_s=0.05, exchange_s=LONG, retry_steps=steps)


@pytest.fixture
def hasty(worker):
    """Waits for as many steps as it takes for a draft to be over."""
    with Asker(worker.path, hasty_for(1 << 30)) as made:
        yield made


def test_a_draft_that_does_not_come_is_given_up_and_nothing_is_sent_until_it_is_over(worker, hasty):
    hasty.open(0, 10, tokens=2)
    worker.do(worker.ranks.block)
    assert hasty.draft(0) == [Cause.TIMED_OUT]
    for _ in range(2):
        hasty.keep(0, 1)
        assert hasty.draft(0) == [Cause.WAITING]
    assert features_at(worker) == [hasty.told[0][: 2 * WIDTH * 2]]
    worker.do(worker.ranks.release)

    def drafted():
        (cause,) = hasty.draft(0)
        assert cause in (Cause.WAITING, Cause.TIMED_OUT, CAME)
        return cause is CAME

    assert within(drafted)
    assert features_at(worker) == [hasty.told[0]]
    assert hasty.counted("connections") == 1
    assert hasty.counted("invalidated") == 1 + hasty.counted("expected")


def test_one_that_is_never_over_ends_the_connection(worker):
    with Asker(worker.path, hasty_for(3)) as hasty:
        hasty.open(0, 10, tokens=2)
        worker.do(worker.ranks.block)
        found = [cause for _ in range(6) for cause in hasty.draft(0)]
        waits = [Cause.WAITING] * 3
        assert found == [Cause.TIMED_OUT, *waits, Cause.LOST, Cause.NOT_CONNECTED]
        worker.do(worker.ranks.release)


def test_a_request_may_end_while_its_draft_is_not_over(worker, hasty):
    hasty.open(0, 10, tokens=2)
    worker.do(worker.ranks.block)
    assert hasty.draft(0) == [Cause.TIMED_OUT]
    hasty.drafts.close(0)
    worker.do(worker.ranks.release)
    hasty.open(0, 11, tokens=1)
    assert within(lambda: hasty.draft(0) == [CAME])
    assert features_at(worker) == [hasty.told[0]]
    # nothing of what is over is kept
    talk = hasty.drafts._line.client._talk
    assert not talk._waiting | talk._given_up | talk._answers.keys()


def test_what_a_step_asks_has_one_limit_altogether(worker):
    """Each of the two is answered in time, and both together are not."""
    appending, opening = worker.ranks.append, worker.ranks.open

    async def append(*given):
        await asyncio.sleep(0.3)
        return await appending(*given)

    async def open_(*given):
        await asyncio.sleep(0.3)
        return await opening(*given)

    worker.ranks.append, worker.ranks.open = append, open_
    patience = Patience(draft_s=LONG, exchange_s=0.5, retry_steps=1)
    with Asker(worker.path, patience) as asker:
        asker.open(0, 10, tokens=2)
        found = []
        # a busy machine may be late to answer a connection
        assert within(lambda: found.append(asker.draft(0)) or found[-1] != [Cause.NOT_CONNECTED])
        assert found[-1] == [Cause.LOST]
        assert asker.drafts.trouble.refusal.code is Code.STEP_TIMEOUT


def test_features_that_are_not_taken_in_time_end_the_connection(worker):
    patience = Patience(draft_s=LONG, exchange_s=0.1, retry_steps=2)
    with Asker(worker.path, patience) as asker:
        asker.open(0, 10, tokens=2)
        assert asker.draft(0) == [CAME]
        asker.keep(0, 1)
        worker.ranks.blocking = {"append"}
        worker.do(worker.ranks.block)
        assert asker.draft(0) == [Cause.LOST]
        assert asker.drafts.trouble.refusal.code is Code.STEP_TIMEOUT
        worker.do(worker.ranks.release)
        assert within(lambda: asker.draft(0) == [CAME])
        assert features_at(worker)[-1] == asker.told[0]


@pytest.mark.parametrize(("blocking", "tokens"), [("draft", 0), ("append", 1)])
def test_nothing_is_waited_for_beyond_an_end_that_is_given(worker, asker, blocking, tokens):
    asker.open(0, 10, tokens=2)
    asker.drafts.until = Deadline.after(SystemClock(), LONG)
    assert asker.draft(0) == [CAME]
    asker.keep(0, tokens)
    worker.ranks.blocking = {blocking}
    worker.do(worker.ranks.block)
    # far nearer than its patience
    asker.drafts.until = Deadline.after(SystemClock(), 0.1)
    began = time.monotonic()
    assert asker.draft(0)[0] in (Cause.TIMED_OUT, Cause.LOST)
    assert time.monotonic() - began < LONG / 2
    worker.do(worker.ranks.release)


def test_nobody_is_connected_to_beyond_it(tmp_path):
    with socket.socket(socket.AF_UNIX) as silent, Asker(tmp_path / "s") as asker:
        silent.bind(str(tmp_path / "s"))
        silent.listen()
        asker.drafts.until = Deadline.after(SystemClock(), 0.1)
        began = time.monotonic()
        with pytest.raises(TimedOutError):
            asker.drafts.connect()
        assert time.monotonic() - began < LONG / 2
        assert asker.drafts.offer is None


def test_who_answers_has_made_an_offer(asker):
    asker.drafts.connect()
    assert asker.drafts.offer == FIT
