"""Requests and their queue against a model that is a plain list."""

import itertools

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pp4.errors import BadInputError, Code
from pp4.wire.drafts import Draft, Features, Open
from pp4.worker.front.queue import Queue
from pp4.worker.front.requests import Requests
from tests.unit.worker.fronts import OFFER, WIDTH

CLIENTS = st.integers(0, 2)
NUMBERS = st.integers(1, 3)
DEPTHS = (4, 5, 4)


class Front(RuleBasedStateMachine):
    """Three connections, two of one depth, that open, append, draft, give up and close."""

    def __init__(self):
        super().__init__()
        numbers = itertools.count(1)
        self.tables = [Requests(OFFER, depth, numbers) for depth in DEPTHS]
        self.queue = Queue()
        # of each open request: tokens and last round; and what waits, oldest first
        self.open, self.waiting, self.launched, self.used = {}, [], [], set()
        self.now = 0

    def refused(self, where, call, *given):
        with pytest.raises(BadInputError) as caught:
            call(*given)
        assert caught.value.refusal.code is Code.BAD_INPUT
        assert caught.value.refusal.where == where

    @rule(client=CLIENTS, number=NUMBERS, key=st.integers(0, (1 << 64) - 1))
    def opens(self, client, number, key):
        question, table = Open(sequence=0, request=number, key=key), self.tables[client]
        if (client, number) in self.open:
            self.refused("OPEN, request", table.begin, question)
            return
        request = table.begin(question)
        assert request.own not in self.used
        self.used.add(request.own)
        table.keep(request)
        self.open[client, number] = [0, -1, key, request.own]

    @rule(client=CLIENTS, number=NUMBERS, first=st.integers(0, 4), tokens=st.integers(1, 2))
    def appends(self, client, number, first, tokens):
        question = Features(sequence=0, request=number, first=first, tokens=tokens)
        known, table = self.open.get((client, number)), self.tables[client]
        given = (question, tokens * WIDTH * 2)
        if known is None or self.busy(client, number):
            self.refused("FEATURES, request", table.appendable, *given)
        elif first != known[0]:
            self.refused("FEATURES, first", table.appendable, *given)
        else:
            table.appendable(*given).length += tokens
            known[0] += tokens

    def busy(self, client, number):
        return (client, number) in [name for name, _ in [*self.waiting, *self.launched]]

    @rule(
        client=CLIENTS,
        number=NUMBERS,
        round_=st.integers(0, 6),
        ahead=st.sampled_from([1, 1, 1, 0, 2]),
        anchor=st.sampled_from([0, OFFER.vocab - 1, OFFER.vocab]),
        mode=st.sampled_from(
            [("sampled", 0.5), ("greedy", 0.0), ("sampled", 0.0), ("greedy", 1.0)]
        ),
    )
    def drafts(self, client, number, round_, ahead, anchor, mode):
        known, table = self.open.get((client, number)), self.tables[client]
        self.now += 1
        position = (known[0] if known else 0) + ahead
        draft = Draft(
            sequence=0,
            request=number,
            generation=0,
            slot=0,
            round=round_,
            position=position,
            anchor=anchor,
            mode=mode[0],
            temperature=mode[1],
        )
        given = (draft, self.now, lambda *_: None)
        if known is None or self.busy(client, number):
            self.refused("DRAFT, request", table.accept, *given)
        elif round_ <= known[1]:
            self.refused("DRAFT, round", table.accept, *given)
        elif ahead != 1:
            self.refused("DRAFT, position", table.accept, *given)
        elif anchor == OFFER.vocab:
            self.refused("DRAFT, anchor", table.accept, *given)
        elif mode in (("sampled", 0.0), ("greedy", 1.0)):
            self.refused("DRAFT, temperature", table.accept, *given)
        else:
            asked = table.accept(*given)
            row = (known[3], known[2], position, round_, anchor, mode[0] == "sampled")
            assert tuple(getattr(asked.row, name) for name in asked.row.__slots__) == row
            assert (asked.depth, asked.arrived_ns) == (DEPTHS[client], self.now)
            known[1] = round_
            self.queue.put(asked)
            self.waiting.append(((client, number), asked))

    @precondition(lambda self: self.waiting)
    @rule(largest=st.integers(1, 3))
    def takes(self, largest):
        depth = self.waiting[0][1].depth
        wanted = [one for one in self.waiting if one[1].depth == depth][:largest]
        assert self.queue.take(largest) == [asked for _, asked in wanted]
        self.waiting = [one for one in self.waiting if one not in wanted]
        self.launched += wanted

    @precondition(lambda self: self.launched)
    @rule()
    def ends(self):
        _, asked = self.launched.pop(0)
        assert not self.queue.remove(asked)
        asked.request.asked = None

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def gives_up(self, data):
        index = data.draw(st.integers(0, len(self.waiting) - 1))
        _, asked = self.waiting.pop(index)
        assert self.queue.remove(asked)
        assert not self.queue.remove(asked)
        asked.request.asked = None

    @rule(client=CLIENTS, number=NUMBERS)
    def closes(self, client, number):
        table = self.tables[client]
        if (client, number) not in self.open:
            self.refused("CLOSE, request", table.of, "CLOSE", number)
        elif not self.busy(client, number):
            table.forget(table.of("CLOSE", number))
            del self.open[client, number]

    @invariant()
    def agree(self):
        assert len(self.queue) == len(self.waiting)
        for client, table in enumerate(self.tables):
            told = {request.number: (request.length, request.round) for request in table}
            kept = {
                number: tuple(known[:2])
                for (owner, number), known in self.open.items()
                if owner == client
            }
            assert told == kept


TestFront = Front.TestCase
TestFront.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_nothing_waits_and_nothing_is_taken():
    queue = Queue()
    assert queue.take(4) == []
    assert queue.drain() == []
