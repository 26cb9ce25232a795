"""The coordinator's end of an owner: what it asks, what it believes, what it puts in the books."""

from collections import deque
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from pp4.config import INTERPRETED, ON_GPUS
from pp4.errors import Code, Refusal, RefusedError, TimedOutError, WrongError
from pp4.qualify.context import Context
from pp4.qualify.session import CARELESS, PRODUCT, Session, code_of, facts_of
from pp4.qualify.settings import REHEARSAL
from pp4.wire import Event, Reply
from tests.unit.qualify.fakes import Hold
from tests.unit.qualify.gpus import UUIDS, gpu, report

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
    def session(*answers, **more):
        channel = Channel(*answers)
        hold.script.append(channel)
        label = f"owner-{len(hold.started)}"
        return Session(hold, label, hold.directory / "compiled", **more), channel

    return session


def identity(rank):
    words = dict.fromkeys(("device", "device_name", "python", "torch", "triton", "mapped"), "x")
    given = {"rank": rank, "pid": 10 + rank, "peer_access": True, **words}
    return {"facts": given, "refusal": None}


def test_an_owner_starts_in_a_directory_of_its_own_with_the_interpreter(hold, session):
    session()
    ((module, arguments, environment, label),) = hold.started
    assert (module, label) == (PRODUCT, "owner-0")
    assert arguments == [str(hold.directory / "owner-0"), str(hold.directory / "compiled")]
    assert (hold.directory / "owner-0").is_dir()
    assert environment == INTERPRETED


@pytest.mark.parametrize(
    ("gpus", "solo", "last"),
    [
        (("GPU-a", "GPU-b"), False, ["GPU-a", "GPU-b"]),
        (("GPU-a",), True, ["--solo", "GPU-a"]),
        ((), True, ["--solo"]),
    ],
)
def test_an_owner_is_told_its_gpus_in_the_order_of_the_hold(hold, session, gpus, solo, last):
    hold.gpus = gpus
    session(solo=solo)
    ((_, arguments, environment, _),) = hold.started
    assert arguments[2:] == last
    # interpreted kernels on a GPU, or compiled ones without, would qualify something else
    assert environment == (ON_GPUS if gpus else INTERPRETED)


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
    given = {"rank": 1, "verb_of_rank": "run", "arguments": {"x": 2}, "limit_s": 120.0}
    assert request.arguments == given
    assert channel.deadlines[0].limit_ns == 130_000_000_000


@pytest.mark.parametrize("second", [None, {"y": 2}])
def test_both_ranks_are_asked_with_the_limit_that_the_answer_has(session, second):
    answers = [{"facts": {"x": 1}, "refusal": None}, {"facts": None, "refusal": STICKY}]
    one, channel = session(facts(ranks=answers))
    assert one.both("stream", {"x": 1}, second, limit_s=500.0) == tuple(answers)
    (request,) = channel.sent
    assert request.verb == "both"
    assert request.arguments == {
        "verb_of_rank": "stream",
        "arguments": [{"x": 1}, second or {"x": 1}],
        "limit_s": 500.0,
    }
    # whoever relays the answer gets a little longer than whoever gives it
    assert channel.deadlines[0].limit_ns == 510_000_000_000


def test_one_rank_may_be_given_longer(session):
    one, channel = session(facts(facts={}, refusal=None))
    one.one(0, "stream", {}, limit_s=7.0)
    assert channel.sent[0].arguments["limit_s"] == 7.0
    assert channel.deadlines[0].limit_ns == 17_000_000_000


PAIR = facts(ranks=[identity(0), identity(1)])
GONE = facts(pids=[10, 11], dead=[True, True], links_left=0)
NOTHING = facts()
SHAPE = REHEARSAL.shape


def verbs(channel):
    return [request.verb for request in channel.sent]


def test_a_fresh_pair_is_primed_before_it_is_linked(session, hold):
    one, channel = session(PAIR, NOTHING, facts(start=5))
    Context(hold, REHEARSAL).fresh(session=one)
    assert verbs(channel) == ["start", "prime", "link"]
    given = channel.sent[1].arguments
    assert given == {"shape": SHAPE.model_dump(), "recorded": True, "controls": ()}
    assert channel.sent[2].arguments["waits"] == [REHEARSAL.patient.model_dump()] * 2


def healthy(answer):
    return facts(healthy=answer, why="")


def test_a_healthy_pair_serves_again_with_nothing_but_a_new_rendezvous(session, hold):
    one, channel = session(PAIR, NOTHING, NOTHING, healthy(True), NOTHING)
    context = Context(hold, REHEARSAL)
    context.fresh(session=one)
    assert context.hasty(session=one) is one
    assert verbs(channel) == ["start", "prime", "link", "healthy", "link"]
    # the rendezvous is new in its bounds as well
    assert channel.sent[-1].arguments["waits"] == [REHEARSAL.hasty.model_dump()] * 2
    assert hold.owned == [(10, "owner-0-pair-1-rank-0"), (11, "owner-0-pair-1-rank-1")]


REPLACED = ["teardown", "start", "prime", "link"]


@pytest.mark.parametrize("answer", [False, None, 0, "true", 1])
def test_a_pair_that_does_not_say_that_it_is_healthy_is_replaced(session, hold, answer):
    one, channel = session(PAIR, NOTHING, NOTHING, healthy(answer), GONE, PAIR, NOTHING, NOTHING)
    context = Context(hold, REHEARSAL)
    context.fresh(session=one)
    context.fresh(session=one)
    assert verbs(channel)[3:] == ["healthy", *REPLACED]
    assert hold.owned[-1] == (11, "owner-0-pair-2-rank-1")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({}, {"shape": REHEARSAL.late_shape}),
        ({"shape": REHEARSAL.late_shape}, {}),
        ({}, {"controls": ("tie_other_way",)}),
        ({"controls": ("tie_other_way",)}, {}),
        ({"controls": ("tie_other_way",)}, {"controls": ("skip_bad_test",)}),
    ],
)
def test_another_shape_or_other_controls_are_another_pair(session, hold, first, second):
    """A mutant that was loaded once must not be there for the next arm."""
    one, channel = session(PAIR, NOTHING, NOTHING, GONE, PAIR, NOTHING, NOTHING)
    context = Context(hold, REHEARSAL)
    context.fresh(session=one, **first)
    context.fresh(session=one, **second)
    # it is not even asked how it is
    assert verbs(channel)[3:] == REPLACED
    given = channel.sent[-2].arguments
    assert given["shape"] == second.get("shape", SHAPE).model_dump()
    assert given["controls"] == second.get("controls", ())


def test_a_pair_with_the_same_controls_serves_again(session, hold):
    one, channel = session(PAIR, NOTHING, NOTHING, healthy(True), NOTHING)
    context = Context(hold, REHEARSAL)
    for _ in range(2):
        context.fresh(session=one, controls=("tie_other_way",))
    assert verbs(channel)[3:] == ["healthy", "link"]


def test_a_pair_that_was_torn_down_is_not_ready(session, hold):
    one, channel = session(PAIR, NOTHING, NOTHING, GONE, PAIR, NOTHING, NOTHING)
    context = Context(hold, REHEARSAL)
    context.fresh(session=one)
    one.teardown()
    assert not one.ready(SHAPE, ())
    context.fresh(session=one)
    assert verbs(channel)[3:] == REPLACED


def test_a_pair_whose_priming_failed_is_not_ready(session, hold):
    one, channel = session(PAIR, refuses, GONE, PAIR, NOTHING, NOTHING)
    context = Context(hold, REHEARSAL)
    with pytest.raises(WrongError):
        context.fresh(session=one)
    assert not one.ready(SHAPE, ())
    context.fresh(session=one)
    assert verbs(channel) == ["start", "prime", *REPLACED]


def test_a_pair_that_was_started_anew_is_not_primed(session):
    one, _ = session(PAIR, NOTHING, GONE, PAIR)
    one.start()
    one.prime(SHAPE)
    one.start()
    assert not one.ready(SHAPE, ())


def test_facts_that_are_no_exchange_are_a_bad_frame(session):
    one, _ = session(facts(blocks=[], released=True))
    case = Context(SimpleNamespace(directory=Path()), REHEARSAL).case(1, 1, 1)
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
    context = Context(SimpleNamespace(directory=Path()), REHEARSAL)
    one, other = context.case(2, 3, 1), context.case(2, 3, 2, modes=(1, 2))
    assert (one.batch, one.n_out, one.modes) == (2, 3, (1, 1))
    assert other.modes == (1, 2)
    assert one.seed != other.seed


def test_binaries_are_kept_in_the_hold_or_where_they_are_to_last(hold, tmp_path):
    assert Context(hold, REHEARSAL).compiled == hold.directory / "compiled"
    hold.script.extend([Channel(), Channel()])
    context = Context(hold, REHEARSAL, tmp_path / "kept")
    assert context.session is not context.careless()
    assert [arguments[1] for _, arguments, _, _ in hold.started] == [str(tmp_path / "kept")] * 2


@pytest.mark.parametrize(
    ("reference", "solo_run", "asked", "by"),
    [
        ("reference", False, True, ("reference", "solo")),
        ("vectorised", False, True, ("vectorised", "solo")),
        ("vectorised", False, False, ("vectorised",)),
        # where both ranks run the solo kernel it would be held against itself
        ("vectorised", True, True, ("vectorised",)),
    ],
)
def test_a_case_is_held_against_what_the_settings_say(hold, reference, solo_run, asked, by):
    answers = [
        {"facts": {"by": one, "digest": "d", "rows": [], "tokens": []}, "refusal": None}
        for one in by
    ]
    channel = Channel(facts(ranks=answers))
    hold.script.append(channel)
    context = Context(hold, replace(REHEARSAL, reference=reference, solo=solo_run))
    found = context.expect(context.case(1, 1, 1), solo=asked)
    assert tuple(one.by for one in found) == by
    assert channel.sent[0].arguments["by"] == by
    assert ("--solo" in hold.started[0][1]) is solo_run


def test_the_gpus_of_a_hold_come_rank_0_first_whatever_the_driver_counts(hold):
    hold.gpus = UUIDS[::-1]
    found = report(gpu(0), gpu(1), gpu(2)).model_dump(mode="json")
    channel = Channel(facts(**found))
    hold.script.append(channel)
    assert tuple(one.uuid for one in Context(hold, REHEARSAL).gpus()) == UUIDS[::-1]
    assert verbs(channel) == ["gpus"]


def test_a_gpu_of_the_hold_that_is_gone_is_refused(hold):
    hold.gpus = UUIDS
    hold.script.append(Channel(facts(**report(gpu(0)).model_dump(mode="json"))))
    with pytest.raises(RefusedError) as caught:
        Context(hold, REHEARSAL).gpus()
    assert caught.value.refusal.code is Code.NO_GPU_PAIR


@pytest.mark.parametrize("error", [None, ValueError("an arm with a bug")])
def test_a_foreign_process_ends_however_its_arm_does(hold, error):
    hold.gpus = UUIDS
    channel = Channel(Event(sequence=0, name="occupied"))
    hold.script.append(channel)
    expected = pytest.raises(ValueError, match="a bug") if error else nullcontext()
    with expected, Context(hold, REHEARSAL).foreign():
        assert hold.stopped == []
        if error:
            raise error
    ((module, arguments, _, label),) = hold.started
    assert (module, arguments, label) == ("pp4.worker.foreign", [UUIDS[0]], "foreign")
    assert hold.stopped == [channel]
