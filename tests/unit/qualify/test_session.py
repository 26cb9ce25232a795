"""The coordinator's end of an owner: what it asks, what it believes, what it puts in the books."""

from collections import deque

import pytest

from pp4.errors import Code, Refusal, TimedOutError, WrongError
from pp4.qualify.context import Context
from pp4.qualify.session import CARELESS, PRODUCT, Session, code_of, facts_of
from pp4.qualify.settings import REHEARSAL
from pp4.wire import Event, Reply
from tests.unit.qualify.fakes import Hold

STICKY = Refusal(Code.STICKY, "a", "b", "c").as_dict()


class Channel:
    """Answers from a script; raises on anything that is not in it."""

    pid = 77

    def __init__(self, *answers):
        self.answers, self.sent, self.deadlines = deque(answers), [], []

    def send(self, message, deadline):
        self.sent.append(message)
        self.deadlines.append(deadline)

    def receive(self, deadline):
        answer = self.answers.popleft()
        if isinstance(answer, Exception):
            raise answer
        return answer(self.sent[-1].sequence) if callable(answer) else answer


class Starting(Hold):
    """A HOLD that starts scripted channels."""

    def __init__(self, directory):
        super().__init__(directory)
        self.script, self.started = deque(), []

    def start(self, module, arguments, *, environment, label):
        self.started.append((module, arguments, environment, label))
        return self.script.popleft()


def facts(**given):
    return lambda sequence: Reply(sequence=sequence, facts=given)


def refuses(sequence):
    return Reply(sequence=sequence, refusal=STICKY)


@pytest.fixture
def hold(tmp_path):
    hold = Starting(tmp_path)
    yield hold
    hold.journal.close()


@pytest.fixture
def session(hold):
    def session(*answers):
        channel = Channel(*answers)
        hold.script.append(channel)
        return Session(hold, f"owner-{len(hold.started)}"), channel

    return session


def identity(rank):
    words = dict.fromkeys(("device", "device_name", "python", "torch", "triton", "mapped"), "x")
    return {"facts": {"rank": rank, "pid": 10 + rank, **words}, "refusal": None}


def test_an_owner_starts_in_a_directory_of_its_own_with_the_interpreter(hold, session):
    session()
    ((module, arguments, environment, label),) = hold.started
    assert (module, label) == (PRODUCT, "owner-0")
    assert arguments == [str(hold.directory / "owner-0"), str(hold.directory / "compiled")]
    assert (hold.directory / "owner-0").is_dir()
    assert environment["TRITON_INTERPRET"] == "1"


def test_every_request_has_a_number_of_its_own(session):
    one, channel = session(facts(), facts(), facts())
    for _ in range(3):
        one.ask("settle")
    assert [request.sequence for request in channel.sent] == [1, 2, 3]


def test_events_and_answers_to_earlier_requests_are_passed_over(session):
    stale = Reply(sequence=0, facts={"old": True})
    one, _ = session(stale, Event(sequence=1, name="launching"), facts(new=True))
    assert one.ask("settle") == {"new": True}


def test_an_answer_counts_only_until_its_deadline(session, hold):
    one, channel = session(facts())
    one.ask("settle", limit_s=5.0)
    assert channel.deadlines[0].limit_ns == 15_000_000_000
    assert channel.deadlines[0].clock is hold.clock


def test_a_refusal_is_raised_whole(session):
    one, _ = session(refuses)
    with pytest.raises(WrongError) as caught:
        one.ask("block")
    assert caught.value.refusal.as_dict() == STICKY


def test_a_refusal_without_a_word_is_a_bad_frame(session):
    one, _ = session(lambda sequence: Reply(sequence=sequence))
    with pytest.raises(WrongError) as caught:
        one.ask("block")
    assert caught.value.refusal.code is Code.BAD_FRAME


def test_a_refusal_that_is_wanted_is_a_code(session):
    one, _ = session(refuses, facts())
    assert one.refusal("block") is Code.STICKY
    assert one.refusal("block") is None


def test_a_wait_that_ran_out_is_no_refusal_that_was_wanted(session):
    late = TimedOutError(Refusal(Code.STEP_TIMEOUT, "a", "b", "c"))
    one, _ = session(late)
    with pytest.raises(TimedOutError):
        one.refusal("block")


def test_both_ranks_come_into_the_books_of_the_hold(session, hold):
    one, channel = session(facts(ranks=[identity(0), identity(1)]))
    first, second = one.start()
    assert (first.pid, second.pid) == (10, 11)
    assert hold.owned == [(10, "owner-0-pair-1-rank-0"), (11, "owner-0-pair-1-rank-1")]
    assert [request.verb for request in channel.sent] == ["start"]


def test_a_pair_is_ended_before_the_next_one_starts(session, hold):
    ranks = [identity(0), identity(1)]
    gone = {"pids": [10, 11], "dead": [True, True], "links_left": 0}
    one, channel = session(facts(ranks=ranks), facts(**gone), facts(ranks=ranks), facts(**gone))
    one.start()
    one.start()
    assert one.teardown() == gone
    assert one.teardown() == {"pids": [], "dead": [], "links_left": 0}
    assert [request.verb for request in channel.sent] == ["start", "teardown", "start", "teardown"]
    assert hold.owned[-1] == (11, "owner-0-pair-2-rank-1")


def test_a_link_carries_nonce_and_fence_of_the_hold(session, hold):
    one, channel = session(facts(start=5))
    waits = (REHEARSAL.patient, REHEARSAL.hasty)
    assert one.link(3, waits) == {"start": 5}
    given = channel.sent[0].arguments
    assert (given["nonce"], given["fence"], given["rows"]) == (hold.nonce, hold.fence, 3)
    # a link primes nothing
    assert "shape" not in given
    assert given["waits"] == [one.model_dump() for one in waits]


def test_one_rank_alone_is_asked_by_its_number(session):
    answer = {"facts": None, "refusal": STICKY}
    one, channel = session(facts(**answer))
    assert one.one(1, "run", {"x": 2}) == answer
    (request,) = channel.sent
    assert request.verb == "one"
    assert request.arguments == {"rank": 1, "verb_of_rank": "run", "arguments": {"x": 2}}


def test_a_fresh_pair_is_primed_before_it_is_linked(session, hold):
    identities = facts(ranks=[identity(0), identity(1)])
    one, channel = session(identities, facts(), facts(start=5))
    Context(hold, REHEARSAL).fresh(session=one)
    assert [request.verb for request in channel.sent] == ["start", "prime", "link"]
    given = channel.sent[1].arguments
    assert given == {"shape": REHEARSAL.shape.model_dump(), "recorded": True}


def test_facts_that_are_no_exchange_are_a_bad_frame(session):
    one, _ = session(facts(blocks=[], released=True))
    case = Context(None, REHEARSAL).case(1, 1, 1)
    with pytest.raises(WrongError) as caught:
        one.block(case)
    assert caught.value.refusal.code is Code.BAD_FRAME


def test_the_answer_of_one_rank_is_facts_or_a_code():
    good, bad = {"facts": {"x": 1}, "refusal": None}, {"facts": None, "refusal": STICKY}
    assert facts_of(good) == {"x": 1}
    assert code_of(good) is None
    assert code_of(bad) is Code.STICKY
    with pytest.raises(WrongError) as caught:
        facts_of(bad)
    assert caught.value.refusal.code is Code.STICKY


# -- the context ----------------------------------------------------------------------------


def test_a_context_starts_one_owner_and_another_after_a_restart(hold):
    hold.script.extend([Channel(), Channel(), Channel()])
    context = Context(hold, REHEARSAL)
    first = context.session
    assert context.session is first
    careless = context.careless()
    context.restart()
    context.restart()
    assert context.session is not first
    assert careless is not context.session
    assert [(module, label) for module, _, _, label in hold.started] == [
        (PRODUCT, "owner-1"),
        (CARELESS, "careless-owner-2"),
        (PRODUCT, "owner-3"),
    ]
    assert len(hold.stopped) == 1


def test_arms_have_inputs_of_their_own():
    context = Context(None, REHEARSAL)
    one, other = context.case(2, 3, 1), context.case(2, 3, 2, modes=(1, 2))
    assert (one.batch, one.n_out, one.modes) == (2, 3, (1, 1))
    assert other.modes == (1, 2)
    assert one.seed != other.seed
