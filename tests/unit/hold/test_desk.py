"""The rules of a supervisor, asked without a socket."""

from types import SimpleNamespace

import pytest

from pp4.clock import Deadline, ManualClock
from pp4.hold import desk as desks
from pp4.hold.desk import Desk
from pp4.hold.lease import Lease
from pp4.wire import Request
from pp4.wire.holds import Granted, Watched

GRANTED = Granted(
    hold="0123456789abcdef", fence=7, nonce="n", exclusion="host", boot_id="b", gpus=("g",),
    opened_at="2026-01-01T00:00:00Z", bound_s=100.0, ttl_s=30.0, deadline_boottime_ns=1,
    transport="ssh", rehearsal=True, directory="/d", public="/p", work="/w", compiled="/c",
)  # fmt: skip
OURS = {"hold": GRANTED.hold, "fence": GRANTED.fence}


class Step:
    """A step that is started and says nothing."""

    started = 0

    def __init__(self, hold, granted, asked):
        Step.started += 1
        self.ended = False
        self.channel = SimpleNamespace(pid=4242)

    def pump(self):
        """Nothing comes."""

    def watched(self, after):
        return Watched(items=(), last_line="", ended=self.ended)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def desk(clock, monkeypatch):
    monkeypatch.setattr(desks, "Step", Step)
    Step.started = 0
    hold = SimpleNamespace(deadline=Deadline.after(clock, 100))
    return Desk(hold, GRANTED, Lease(clock, 30))


def ask(desk, verb, sequence=1, **arguments):
    return desk.answer_once(Request(sequence=sequence, verb=verb, arguments=arguments))


def code(reply):
    return None if reply.refusal is None else reply.refusal["code"]


def test_a_heartbeat_renews_the_lease_and_never_the_deadline(desk, clock):
    clock.advance(29)
    assert ask(desk, "beat", **OURS).facts == {
        "lease_ns": 30_000_000_000,
        "deadline_ns": 71_000_000_000,
        "steps": [],
    }
    for _ in range(3):
        clock.advance(23)
        ask(desk, "beat", **OURS)
        desk.look()
    # 98 s: alive; 101 s: over, however often it was heard
    assert desk.closing is None
    clock.advance(3)
    desk.look()
    assert desk.closing == "deadline"


def test_a_lease_that_ran_out_is_no_more_renewed(desk, clock):
    clock.advance(30)
    assert code(ask(desk, "beat", **OURS)) == "LEASE_LOST"
    desk.look()
    assert desk.closing == "abandoned"
    assert code(ask(desk, "start", **OURS, label="a", module="m")) == "LEASE_LOST"


@pytest.mark.parametrize(
    "named", [{"hold": GRANTED.hold, "fence": 6}, {"hold": GRANTED.hold, "fence": 8},
              {"hold": "fedcba9876543210", "fence": 7}],
)  # fmt: skip
@pytest.mark.parametrize("verb", ["beat", "start", "watch", "close"])
def test_another_hold_or_fence_changes_nothing(desk, named, verb):
    more = {"start": {"label": "a", "module": "m"}, "watch": {"label": "a"}}.get(verb, {})
    reply = ask(desk, verb, **named, **more)
    assert code(reply) == "STALE_FENCE"
    assert reply.refusal["expected"] == f"HOLD {GRANTED.hold}, fence 7"
    assert (desk.closing, desk.steps) == (None, {})


def test_a_start_that_comes_twice_is_done_once_and_answered_twice(desk):
    first = ask(desk, "start", 5, **OURS, label="a", module="m")
    again = ask(desk, "start", 5, **OURS, label="a", module="m")
    assert first == again
    assert first.facts == {"pid": 4242}
    assert Step.started == 1
    # another client counts from one as well: its request of that number is another request
    assert ask(desk, "start", 5, **OURS, label="b", module="m").facts == {"pid": 4242}
    assert Step.started == 2
    stale = {**OURS, "fence": 8}
    assert code(ask(desk, "start", 5, **stale, label="a", module="m")) == "STALE_FENCE"
    # another request for the same label is another matter
    assert code(ask(desk, "start", 6, **OURS, label="a", module="m")) == "EXISTS"


def test_after_a_close_nothing_starts_and_its_answer_waits_for_the_end(desk):
    assert ask(desk, "close", 3, **OURS, why="failed") is None
    assert ask(desk, "close", 4, **OURS, why="done") is None
    # the first reason stays
    assert desk.closing == "failed"
    assert code(ask(desk, "start", 5, **OURS, label="a", module="m")) == "STALE_FENCE"
    assert code(ask(desk, "beat", 6, **OURS)) == "STALE_FENCE"


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [
        ("open", {}),
        ("", {}),
        ("beat", {}),
        ("beat", {**OURS, "extra": 1}),
        ("start", {**OURS, "label": "../x", "module": "m"}),
        ("start", {**OURS, "label": "a", "module": "-c"}),
        ("close", {**OURS, "why": "because"}),
        ("watch", {**OURS, "label": "a", "after": -1}),
    ],
)
def test_what_is_no_request_is_one_refusal(desk, verb, arguments):
    assert code(ask(desk, verb, **arguments)) == "BAD_FRAME"
    assert desk.closing is None


def test_an_unknown_step_is_named(desk):
    ask(desk, "start", 5, **OURS, label="a", module="m")
    reply = ask(desk, "watch", 6, **OURS, label="b")
    assert (reply.refusal["expected"], reply.refusal["found"]) == ("one of ['a']", "b")
