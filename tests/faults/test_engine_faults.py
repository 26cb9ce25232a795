"""Real faults between an engine and its worker: greedy text stays the target's own.

Each fault is done to bytes on a socket or to a process, and the counters say what it was.
"""

import os
import signal

import pytest

from pp4.engine.decoding import Engine
from pp4.engine.drafting import Cause
from pp4.engine.drafts import Patience
from pp4.engine.requests import Request
from pp4.errors import Code
from tests.faults import draft_relay as relays
from tests.unit.engine.doubles import greedy
from tests.unit.engine.served import Served, drafts_of, table
from tests.unit.processes import LONG, halt, within

PROMPTS = [[3, 1, 4], [1, 5, 9, 2, 6, 5], [7], [2, 2]]
LIMIT = 8
PATIENT = Patience(draft_s=LONG, exchange_s=LONG, retry_steps=2)
HASTY = Patience(draft_s=0.3, exchange_s=LONG, retry_steps=2)
"""For replies that do not come; a busy machine may find others late as well."""


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    made = Served(tmp_path_factory.mktemp("served"))
    yield made
    made.close()


@pytest.fixture
def decode(served, tmp_path):
    """Decode greedily over a relay; -> counters, causes, and what the relay did."""

    def run(fault, patience=PATIENT, temperature=0.0, limit=LIMIT):
        target = table(slots=3)
        path = tmp_path / "relay"
        with (
            relays.Relay(path, served.socket, fault),
            drafts_of(path, target, patience, sampled=True) as drafts,
        ):
            engine = Engine(target, drafts)
            for key, prompt in enumerate(PROMPTS):
                engine.submit(Request(prompt, limit, temperature, key=key))
            outputs = {}
            for step in engine.steps():
                outputs |= {one.request: one.tokens for one in step.finished}
        assert len(outputs) == len(PROMPTS)
        for number, prompt in enumerate(PROMPTS):
            if not temperature:
                assert outputs[number] == greedy(target, prompt, limit)
        return engine.as_dict()

    return run


def causes(told):
    """Rows that were decoded plainly, by cause, those that are not 0."""
    found = {cause: told[f"plain_{cause}"] for cause in Cause}
    return {cause: count for cause, count in found.items() if count}


def test_a_relay_that_does_nothing_changes_nothing(decode):
    told = decode(relays.Fault())
    assert causes(told) == {}
    assert told["drafts_expected"] == told["drafts_asked"] > 0
    assert told["drafts_connections"] == 1


def test_a_reply_that_is_lost_costs_its_step(decode):
    fault = relays.Dropped({1, 2})
    told = decode(fault, HASTY)
    assert told["plain_timed_out"] >= fault.done == 2
    assert told["drafts_invalidated"] == told["plain_timed_out"]
    # until the worker says that the draft is over
    assert set(causes(told)) <= {Cause.TIMED_OUT, Cause.WAITING}
    assert told["drafts_connections"] == 1


def test_a_reply_that_is_late_is_dropped_and_counted(decode):
    fault = relays.Late({1, 2})
    told = decode(fault, HASTY)
    assert told["plain_timed_out"] >= told["drafts_late"] >= fault.done == 2
    assert set(causes(told)) <= {Cause.TIMED_OUT, Cause.WAITING}
    assert told["drafts_connections"] == 1


def test_a_second_copy_is_dropped_and_counted(decode):
    fault = relays.Doubled(range(7))
    told = decode(fault)
    assert causes(told) == {}
    # one that is seen only after its slot has moved on counts as late
    assert told["drafts_duplicated"] + told["drafts_late"] == fault.done == 7
    assert told["drafts_connections"] == 1


def test_a_reply_of_an_old_generation_is_dropped_and_counted(decode):
    fault = relays.Replayed(range(6, 10))
    told = decode(fault)
    assert causes(told) == {}
    assert told["drafts_late"] == fault.done == 4
    assert told["drafts_connections"] == 1


def test_so_it_is_where_it_takes_the_place_of_the_right_one(decode):
    fault = relays.Stale({6})
    told = decode(fault, HASTY)
    assert told["drafts_late"] >= fault.done == 1
    assert told["plain_timed_out"] >= 1
    assert told["drafts_connections"] == 1


@pytest.mark.parametrize("kind", [relays.SwappedSlots, relays.Unasked, relays.SwappedSequences])
def test_a_reply_to_what_was_never_asked_ends_the_connection(decode, kind):
    told = decode(kind({3, 4}))
    assert told["plain_untrusted"] > 0
    assert set(causes(told)) <= {Cause.UNTRUSTED, Cause.NOT_CONNECTED}
    assert told["drafts_ended"] >= 1
    # and it is drafted again over another one
    assert told["drafts_connections"] == told["drafts_ended"] + 1
    if kind is not relays.SwappedSequences:
        assert told["drafts_unknown"] == told["drafts_ended"]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_blocks_under_each_others_heads_are_only_worse_drafts(decode, temperature):
    fault = relays.SwappedBodies({3, 4, 6, 7})
    told = decode(fault, temperature=temperature)
    assert fault.done == 4
    assert causes(told) == {}


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_q_that_is_off_by_a_ticket_is_no_proposal(decode, temperature):
    fault = relays.OffByATicket({0, 4, 5})
    told = decode(fault, temperature=temperature)
    assert causes(told) == {Cause.MALFORMED: 3}
    assert told["drafts_invalidated"] == fault.done == 3
    assert told["drafts_connections"] == 1


def test_a_frame_that_is_cut_ends_the_connection(decode):
    told = decode(relays.Cut({4}))
    assert told["plain_untrusted"] > 0
    assert told["drafts_ended"] == 1
    assert told["drafts_connections"] == 2


def test_a_connection_that_ends_is_made_again_with_all_features(decode):
    told = decode(relays.Ended({4, 12}))
    assert told["plain_lost"] > 0
    assert set(causes(told)) == {Cause.LOST, Cause.NOT_CONNECTED}
    assert told["drafts_ended"] == 2
    assert told["drafts_connections"] == 3
    assert told["drafts_opened"] > len(PROMPTS)
    assert told["drafts_unknown"] == 0


# -- processes ---------------------------------------------------------------------------------


class Stream:
    """An engine that gets requests for as long as a test looks at its steps."""

    def __init__(self, path, patience):
        self.target = table(slots=2)
        self.drafts = drafts_of(path, self.target, patience)
        self.engine = Engine(self.target, self.drafts)
        self.limit = 30
        self._steps = self._run()

    def _run(self):
        while True:
            self.engine.submit(Request(PROMPTS[0], self.limit))
            self.engine.submit(Request(PROMPTS[1], self.limit))
            yield from self.engine.steps()

    def until(self, cause):
        """Step until a row was decoded for a cause, None for with a draft."""

        def came():
            step = next(self._steps)
            for one in step.finished:
                assert one.tokens == greedy(self.target, PROMPTS[one.request % 2], self.limit)
            return cause in {row.cause for row in step.rows}

        assert within(came), self.engine.as_dict()

    def causes(self):
        return causes(self.engine.as_dict())


def test_a_worker_that_stands_still_is_left_alone_until_it_goes_on(served):
    stream = Stream(served.socket, Patience(draft_s=0.3, exchange_s=0.3, retry_steps=3))
    stream.until(None)
    halt(served.worker.pid)
    try:
        stream.until(Cause.NOT_CONNECTED)
        assert {Cause.LOST, Cause.TIMED_OUT} & set(stream.causes())
        attempts = stream.drafts.as_dict()["attempts"]
        while stream.drafts.as_dict()["attempts"] == attempts:
            stream.until(Cause.NOT_CONNECTED)
        assert stream.drafts.trouble.refusal.code is Code.STEP_TIMEOUT
    finally:
        os.kill(served.worker.pid, signal.SIGCONT)
    stream.until(None)
    stream.drafts.disconnect()
    assert Cause.FAILED not in stream.causes()


def test_a_worker_that_dies_is_replaced_by_the_next_on_its_socket(served, tmp_path):
    """Last of this file: it does away with its worker."""
    stream = Stream(served.socket, Patience(draft_s=LONG, exchange_s=LONG, retry_steps=2))
    stream.until(None)
    os.kill(served.worker.ranks[1], signal.SIGKILL)
    stream.until(Cause.FAILED)
    assert stream.drafts.trouble.refusal.code is Code.RANK_DIED
    assert not stream.drafts.connected
    # it stays so: the next that answers there says the same
    attempts = stream.drafts.as_dict()["attempts"]
    while stream.drafts.as_dict()["attempts"] == attempts:
        stream.until(Cause.FAILED)
    served.worker.close()
    stream.until(Cause.NOT_CONNECTED)
    assert stream.drafts.trouble.refusal.code is Code.UNREACHABLE

    after = served.start(tmp_path / "again")
    stream.until(None)
    after.process.kill()
    stream.until(Cause.LOST)
    assert stream.drafts.trouble.refusal.code is Code.CONNECTION_LOST
    told = stream.drafts.as_dict()
    assert (told["connections"], told["ended"]) == (2, 2)
