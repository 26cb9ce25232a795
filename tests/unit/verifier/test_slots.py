"""Which reply belongs to which draft, against a ledger that remembers everything."""

import dataclasses

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from pp4.errors import BadInputError, Code, WrongError
from pp4.verifier import slots as module
from pp4.verifier.slots import Arrival, Ask, Slots

COUNT = 3
ASKED = {"request": 8, "round": 4, "position": 20}
numbers = st.integers(0, 3)


def refused(call, *arguments):
    with pytest.raises(WrongError) as caught:
        call(*arguments)
    assert caught.value.refusal.code is Code.BAD_PROPOSAL


def test_a_reply_is_used_once():
    slots = Slots(2)
    ask = slots.ask(1, **ASKED)
    assert ask == Ask(1, 1, 8, 4, 20)
    assert slots.waiting() == (ask,)
    assert slots.arrived(ask) is Arrival.EXPECTED
    assert slots.waiting() == ()
    assert slots.arrived(ask) is Arrival.DUPLICATED
    assert slots.ask(1, **ASKED).generation == 2
    assert slots.arrived(ask) is Arrival.LATE


def test_what_was_given_up_comes_too_late():
    slots = Slots(1)
    ask = slots.ask(0, **ASKED)
    slots.invalidate(0)
    assert slots.arrived(ask) is Arrival.LATE
    # its slot is at a generation that nobody was told of
    refused(slots.arrived, dataclasses.replace(ask, generation=2))
    assert slots.ask(0, **ASKED).generation == 3


@pytest.mark.parametrize(
    "change", [{"slot": 1}, {"generation": 2}, {"generation": 0}, {"request": 9}, {"round": 5},
               {"position": 21}],
)  # fmt: skip
def test_a_reply_that_was_not_asked_for_is_refused(change):
    slots = Slots(2)
    ask = slots.ask(0, **ASKED)
    refused(slots.arrived, dataclasses.replace(ask, **change))
    assert slots.counters.unknown == 1
    assert slots.waiting() == (ask,)


def test_a_slot_holds_one_draft():
    slots = Slots(1)
    slots.ask(0, **ASKED)
    with pytest.raises(BadInputError, match="no draft under way"):
        slots.ask(0, **ASKED)
    for slot in (-1, 1):
        with pytest.raises(BadInputError, match="slot"):
            slots.ask(slot, **ASKED)


def test_there_has_to_be_a_draft_to_give_up():
    slots = Slots(1)
    with pytest.raises(BadInputError, match="to give up"):
        slots.invalidate(0)


def test_there_have_to_be_slots():
    with pytest.raises(BadInputError):
        Slots(0)


def test_generations_end_in_a_refusal(monkeypatch):
    monkeypatch.setattr(module, "_GENERATIONS", 3)
    slots = Slots(1)
    for _ in range(2):
        slots.arrived(slots.ask(0, **ASKED))
    with pytest.raises(BadInputError, match="none is left"):
        slots.ask(0, **ASKED)


class Ledger(RuleBasedStateMachine):
    """Any order of drafts, replies, copies and lies; the ledger keeps every draft there was."""

    asks = Bundle("asks")

    def __init__(self):
        super().__init__()
        self.slots = Slots(COUNT)
        self.every = []
        self.state = {}
        """By ask: waiting, answered, over."""
        self.counts = dict.fromkeys(self.slots.counters.as_dict(), 0)

    def current(self, slot):
        return next(
            (ask for ask in self.every if ask.slot == slot and self.state[ask] != "over"), None
        )

    @rule(target=asks, slot=st.integers(0, COUNT - 1), request=numbers, number=numbers, at=numbers)
    def ask(self, slot, request, number, at):
        before = self.current(slot)
        if before and self.state[before] == "waiting":
            with pytest.raises(BadInputError):
                self.slots.ask(slot, request=request, round=number, position=at)
            return before
        made = self.slots.ask(slot, request=request, round=number, position=at)
        assert all(one.generation < made.generation for one in self.every if one.slot == slot)
        if before:
            self.state[before] = "over"
        self.every.append(made)
        self.state[made] = "waiting"
        self.counts["asked"] += 1
        return made

    @rule(ask=asks)
    def reply(self, ask):
        wanted = {"waiting": "expected", "answered": "duplicated", "over": "late"}[self.state[ask]]
        assert self.slots.arrived(ask) == wanted
        self.counts[wanted] += 1
        if wanted == "expected":
            self.state[ask] = "answered"

    @rule(ask=asks, name=st.sampled_from(["slot", "generation", "request", "round", "position"]),
          by=st.sampled_from([-1, 1, 7]))  # fmt: skip
    def lie(self, ask, name, by):
        told = dataclasses.replace(ask, **{name: getattr(ask, name) + by})
        true = next((one for one in self.every if one == told), None)
        pairs = {(one.slot, one.generation): one for one in self.every}
        known = pairs.get((told.slot, told.generation))
        if true is not None:
            self.reply(true)
        elif known is not None and self.state[known] == "over":
            # of what is over nothing is kept that could contradict it
            assert self.slots.arrived(told) is Arrival.LATE
            self.counts["late"] += 1
        elif known is None and 0 < told.generation < self.newest(told.slot):
            assert self.slots.arrived(told) is Arrival.LATE
            self.counts["late"] += 1
        else:
            refused(self.slots.arrived, told)
            self.counts["unknown"] += 1

    def newest(self, slot):
        return max((one.generation for one in self.every if one.slot == slot), default=0)

    @rule(slot=st.integers(0, COUNT - 1))
    def invalidate(self, slot):
        before = self.current(slot)
        if before is None:
            with pytest.raises(BadInputError):
                self.slots.invalidate(slot)
            return
        self.slots.invalidate(slot)
        self.state[before] = "over"
        self.counts["invalidated"] += 1

    @invariant()
    def counters_and_waiting_agree(self):
        assert self.slots.counters.as_dict() == self.counts
        waiting = [ask for ask in self.every if self.state[ask] == "waiting"]
        assert self.slots.waiting() == tuple(sorted(waiting, key=lambda ask: ask.slot))


TestLedger = Ledger.TestCase
TestLedger.settings = settings(max_examples=60, stateful_step_count=30)
