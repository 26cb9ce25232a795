"""What a step told is passed on in parts, and its end with the last of them."""

from collections import deque
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pp4.errors import Code, Refusal, WrongError
from pp4.hold.steps import Step
from pp4.wire import MAX_FRAME, Reply, Request, encode


def step_that_told(items, ended, refusal=None):
    """A step that was told about and not started."""
    step = Step.__new__(Step)
    step.items, step.ended = items, ended
    step._facts, step._refusal = (None if refusal else {"n": 1}), refusal
    step.channel = SimpleNamespace(last_lines=lambda count: ("last",))
    return step


@given(st.lists(st.integers(0, 400_000), max_size=12), st.booleans())
def test_every_item_arrives_once_and_the_end_comes_last(sizes, refused):
    items = [{"note": "x" * size, "number": number} for number, size in enumerate(sizes)]
    step = step_that_told(items, True, {"code": "NOT_IDLE"} if refused else None)
    taken, readings = [], 0
    while True:
        seen = step.watched(len(taken))
        readings += 1
        assert len(encode(Reply(sequence=1, facts=seen.model_dump(mode="json")))) < MAX_FRAME / 8
        taken += seen.items
        if seen.ended:
            break
        assert (seen.facts, seen.refusal) == (None, None)
        # never an empty answer before the end: it would be asked for without a pause for ever
        assert seen.items
    assert taken == items
    assert readings <= len(items) + 1
    assert (seen.facts is None) is refused
    assert (seen.refusal is None) is not refused


class Ended:
    """The channel of a step that has answered and ended before anybody looked."""

    def __init__(self, messages, status):
        self.parts, self.status = [[one] for one in messages], status

    @property
    def exited(self):
        return self.status is not None

    def poll(self):
        if not self.parts:
            raise self.gone()
        return self.parts.pop(0)

    def gone(self):
        return WrongError(Refusal(Code.RANK_DIED, "step", "a live process", "its stream ended"))

    def last_lines(self, count):
        return ()


def ended_step(messages, status=0, whole=False):
    step = step_that_told([], False)
    step._whole, step._answered = whole, None
    step._bytes, step._left, step._over, step._waiting = 0, 0, False, deque()
    step._facts, step.channel = None, Ended(messages, status)
    step.pump()
    return step.watched(0)


def test_an_answer_counts_although_the_step_has_ended_meanwhile():
    tell = Request(sequence=0, verb="tell", arguments={"note": "a"})
    seen = ended_step([tell, Reply(sequence=1, facts={"n": 5})])
    assert (seen.items, seen.ended, seen.facts, seen.refusal) == (
        ({"note": "a"},),
        True,
        {"n": 5},
        None,
    )


def test_a_step_that_ended_without_an_answer_died():
    seen = ended_step([Request(sequence=0, verb="tell", arguments={"note": "a"})])
    assert (seen.items, seen.ended, seen.facts) == (({"note": "a"},), True, None)
    assert seen.refusal["code"] == "RANK_DIED"


@pytest.mark.parametrize(("status", "refused"), [(0, False), (70, True), (-9, True)])
def test_what_counts_whole_is_over_when_its_guard_says_so(status, refused):
    seen = ended_step([Reply(sequence=1, facts={"n": 5})], status, whole=True)
    assert seen.ended
    assert (seen.facts, seen.refusal is not None) == (None if refused else {"n": 5}, refused)


def test_what_counts_whole_goes_on_after_its_answer():
    step = step_that_told([], False)
    step._whole, step._answered = True, None
    step._bytes, step._left, step._over, step._waiting = 0, 0, False, deque()
    step.channel = Ended([Reply(sequence=1, facts={})], None)
    step.channel.flush = lambda: 0
    for _ in range(3):
        step.pump()
    assert not step.ended
    step.channel.status = 0
    step.pump()
    assert step.done


def test_a_step_that_goes_on_has_no_end():
    seen = step_that_told([], False).watched(0)
    assert (seen.items, seen.ended, seen.last_line) == ((), False, "last")
