"""Decoding with drafts that a test makes: every step is held against the exact verifier."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pp4.clock import ManualClock
from pp4.engine.decoding import Engine
from pp4.engine.drafting import Cause
from pp4.engine.requests import Ending, Output, Request
from pp4.errors import BadInputError, Code, WrongError
from pp4.kernels import philox
from pp4.kernels.purposes import BONUS, DRAFT
from pp4.verifier import reference
from pp4.verifier.units import Mode
from tests.unit.engine.doubles import FakeDrafts, TableTarget, greedy

PROMPTS = [[3, 1, 4], [1, 5, 9, 2, 6, 5], [7], [0, 0, 0], [11, 3]]


def probabilities(target, tokens, temperature):
    """The distribution after tokens, without the engine's own code."""
    logits = target.after(tokens).astype(np.float64)
    if not temperature:
        p = np.zeros(len(logits))
        p[int(np.flatnonzero(logits == logits.max())[0])] = 1
        return p
    p = np.exp((logits - logits.max()) / temperature)
    return p / p.sum()


def judged(target, drafts, request, number, row, said):
    """What the exact verifier makes of a row, and the words that it used."""
    proposal = drafts and drafts.given.get((number, row.round))
    if proposal is None:
        weights = reference.quantised(probabilities(target, said, request.temperature))
        if not request.temperature:
            return 0, (weights.first,), []
        block = philox.stream(
            key=request.key, position=row.position, round=row.round, purpose=BONUS
        )
        word = block[0] << 32 | block[1]
        return 0, (reference.drawn(weights.weights, word),), [(row.position, BONUS)]
    proposed = proposal.tokens.tolist()
    targets = [
        reference.quantised(probabilities(target, said + proposed[:end], request.temperature))
        for end in range(len(proposed) + 1)
    ]
    found = reference.verify(proposal, targets)
    used = list(found.used)
    if proposal.mode is Mode.SAMPLED:
        used += [(row.position + index, DRAFT) for index in range(len(proposed))]
    return found.accepted, found.tokens, used


def checked(target, drafts, requests):
    """Run requests, and hold every step against the exact verifier; -> outputs by number."""
    engine = Engine(target, drafts)
    asked = dict(zip(map(engine.submit, requests), requests, strict=True))
    said = {number: list(one.prompt) for number, one in asked.items()}
    words, rounds, outputs = set(), {}, {}
    for step in engine.steps():
        for row in step.rows:
            number, request = row.request, asked[row.request]
            assert row.round > rounds.get(number, -1)
            rounds[number] = row.round
            assert row.position == len(said[number])
            accepted, tokens, used = judged(target, drafts, request, number, row, said[number])
            assert (row.accepted, row.tokens) == (accepted, tokens[: len(row.tokens)])
            for position, purpose in used:
                word = (number, position, row.round, purpose)
                assert word not in words
                words.add(word)
            said[number] += row.tokens
        for output in step.finished:
            assert output.tokens == tuple(said[output.request][len(asked[output.request].prompt) :])
            outputs[output.request] = output
    assert sorted(outputs) == sorted(asked)
    return outputs, engine


# -- equality ----------------------------------------------------------------------------------


def test_greedy_text_is_the_targets_own_whatever_is_proposed():
    for right in range(6):
        target = TableTarget()
        drafts = FakeDrafts(target, [right])
        outputs, engine = checked(target, drafts, [Request(p, limit=17) for p in PROMPTS])
        for number, prompt in enumerate(PROMPTS):
            assert outputs[number].tokens == greedy(target, prompt, 17)
        assert engine.counters.plain_rows == 0
        assert engine.counters.accepted == right * engine.counters.drafted_rows


@settings(max_examples=15)
@given(
    plan=st.lists(
        st.one_of(st.integers(0, 5), st.sampled_from(list(Cause))), min_size=1, max_size=24
    ),
    temperatures=st.lists(st.sampled_from([0.0, 0.0, 0.3, 1.0]), min_size=5, max_size=5),
    limits=st.lists(st.integers(1, 20), min_size=5, max_size=5),
    slots=st.integers(1, 4),
    depth=st.sampled_from([1, 4, 5]),
    sampled=st.booleans(),
)
def test_every_schedule_of_faults_gives_what_the_exact_verifier_gives(
    plan, temperatures, limits, slots, depth, sampled
):
    target = TableTarget(slots=slots, context=26)
    drafts = FakeDrafts(target, plan, depth, sampled)
    requests = [
        Request(prompt, limit, temperature, key=(1 << 63) + number)
        for number, (prompt, limit, temperature) in enumerate(
            zip(PROMPTS, limits, temperatures, strict=True)
        )
    ]
    outputs, engine = checked(target, drafts, requests)
    for number, request in enumerate(requests):
        if not request.temperature:
            assert outputs[number].tokens == greedy(target, request.prompt, request.limit)
    rows = engine.counters.drafted_rows + engine.counters.plain_rows
    assert rows >= len(drafts.wants)
    assert not drafts.open_slots


def test_without_anybody_who_drafts_it_is_plain_decoding():
    target = TableTarget()
    requests = [
        Request(p, 9, t, key=5) for p, t in zip(PROMPTS, (0, 1.0, 0.7, 0, 2.0), strict=True)
    ]
    outputs, engine = checked(target, None, requests)
    assert outputs[0].tokens == greedy(target, PROMPTS[0], 9)
    assert engine.counters.plain == {Cause.NO_DRAFTS: 45}
    assert engine.as_dict()["plain_no_drafts"] == engine.counters.tokens == 45


def test_plain_and_drafted_rows_share_a_step():
    target = TableTarget()
    plan = [3, Cause.TIMED_OUT, Cause.MALFORMED]
    drafts = FakeDrafts(target, plan)
    engine = Engine(target, drafts)
    for prompt, temperature in zip(PROMPTS, (0.0, 0.0, 1.0, 1.0, 0.0), strict=True):
        engine.submit(Request(prompt, 8, temperature, key=1))
    first = next(engine.steps())
    assert [row.mode for row in first.rows] == [Mode.GREEDY_T0, Mode.INACTIVE, Mode.INACTIVE]
    assert [row.cause for row in first.rows] == [None, Cause.TIMED_OUT, Cause.MALFORMED]
    assert [len(row.tokens) for row in first.rows] == [4, 1, 1]
    assert [row.proposed for row in first.rows] == [5, 0, 0]


# -- ends and slots ----------------------------------------------------------------------------


def test_a_free_slot_goes_to_the_next_request():
    target = TableTarget(slots=2)
    drafts = FakeDrafts(target, [0])
    engine = Engine(target, drafts)
    for limit in (1, 3, 2):
        engine.submit(Request([1, 2], limit))
    seen = [[(row.request, row.slot) for row in step.rows] for step in engine.steps()]
    assert seen == [[(0, 0), (1, 1)], [(2, 0), (1, 1)], [(2, 0), (1, 1)]]


def test_requests_may_come_while_others_are_decoded():
    target = TableTarget(slots=1)
    engine = Engine(target, FakeDrafts(target, [5]))
    engine.submit(Request([1, 2], 3))
    outputs = []
    for step in engine.steps():
        outputs += step.finished
        if engine.counters.steps == 1:
            engine.submit(Request([5], 2))
    assert [one.tokens for one in outputs] == [greedy(target, [1, 2], 3), greedy(target, [5], 2)]


def test_a_stop_token_ends_a_request_also_among_accepted_ones():
    target = TableTarget()
    whole = greedy(target, PROMPTS[0], 30)
    for stop in set(whole):
        wanted = whole[: whole.index(stop) + 1]
        for right in (0, 5):
            engine = Engine(target, FakeDrafts(target, [right]))
            (output,) = engine.run([Request(PROMPTS[0], 30, stop=stop)])
            assert output == Output(0, wanted, Ending.STOP)


def test_the_limit_ends_it_also_within_a_block():
    target = TableTarget()
    for limit in range(1, 9):
        (output,) = Engine(target, FakeDrafts(target, [5])).run([Request([1], limit)])
        assert output == Output(0, greedy(target, [1], limit), Ending.LIMIT)


def test_at_the_end_of_the_context_there_is_no_room_for_a_block():
    target = TableTarget(context=12)
    drafts = FakeDrafts(target, [0])
    engine = Engine(target, drafts)
    (output,) = engine.run([Request([4, 4, 4], 10)])
    assert output.tokens == greedy(target, [4, 4, 4], 10)
    assert max(want.position for want in drafts.wants) == 12 - 6 + 1
    assert engine.counters.plain == {Cause.NO_ROOM: 5}


# -- what is refused ---------------------------------------------------------------------------

SOUND = Request([1, 2], 4, 0.5, key=1, stop=3)


@pytest.mark.parametrize(
    ("change", "member"),
    [
        ({"prompt": []}, "prompt"),
        ({"prompt": [12]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": [True]}, "prompt"),
        ({"prompt": ["1"]}, "prompt"),
        ({"limit": 0}, "limit"),
        ({"limit": 96}, "limit"),
        ({"limit": 1.5}, "limit"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"temperature": float("inf")}, "temperature"),
        ({"temperature": "0"}, "temperature"),
        ({"temperature": 10**400}, "temperature"),
        ({"key": -1}, "key"),
        ({"key": 1 << 64}, "key"),
        ({"stop": 12}, "stop"),
    ],
)
def test_a_request_that_cannot_be_served_is_refused(change, member):
    engine = Engine(TableTarget())
    with pytest.raises(BadInputError) as caught:
        engine.submit(dataclasses.replace(SOUND, **change))
    assert caught.value.refusal.where == f"request, {member}"
    assert engine.submit(SOUND) == 0
    assert engine.submit(dataclasses.replace(SOUND, limit=95)) == 1


def test_of_requests_of_which_one_is_refused_none_is_run():
    engine = Engine(TableTarget())
    with pytest.raises(BadInputError):
        engine.run([SOUND, dataclasses.replace(SOUND, limit=0)])
    assert list(engine.steps()) == []


def test_a_prompt_is_that_which_was_submitted():
    target, prompt = TableTarget(), [3, 1, 4]
    engine = Engine(target)
    engine.submit(Request(prompt, 4))
    prompt[:] = [99]
    *_, last = engine.steps()
    assert [one.tokens for one in last.finished] == [greedy(target, [3, 1, 4], 4)]


def test_a_block_has_to_fit_the_window():
    target = TableTarget(window=5)
    with pytest.raises(BadInputError, match="window of at least 6"):
        Engine(target, FakeDrafts(target, [0]))
    Engine(target, FakeDrafts(target, [0], depth=4))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("planned", [5, Cause.LOST])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_logits_that_give_no_distribution_are_refused(temperature, planned, bad):
    class Broken(TableTarget):
        def after(self, tokens):
            return np.full(self.vocab, bad, np.float32)

    target = TableTarget()
    drafts = FakeDrafts(target, [planned])
    broken = Broken()
    broken.kept = target.kept
    engine = Engine(broken, drafts)
    engine.submit(Request([1, 2], 4, temperature))
    with pytest.raises(WrongError) as caught:
        list(engine.steps())
    assert caught.value.refusal.code is Code.BAD_LOGITS


def test_a_logit_of_minus_infinity_is_a_token_that_never_comes():
    class Masked(TableTarget):
        def after(self, tokens):
            logits = super().after(tokens).copy()
            logits[2:] = -np.inf
            return logits

    for temperature in (0.0, 1.0, 1e-300):
        target = Masked()
        outputs, _ = checked(target, None, [Request([1], 40, temperature, key=3)])
        assert set(outputs[0].tokens) <= {0, 1}


# -- facts -------------------------------------------------------------------------------------


def test_seconds_are_those_of_the_clock_and_of_the_right_part():
    clock, target = ManualClock(), TableTarget()
    drafts = FakeDrafts(target, [2])
    slow = {"prefill": 1.0, "step": 4.0}
    for name, seconds in slow.items():
        _delay(target, name, clock, seconds)
    _delay(drafts, "draft", clock, 2.0)
    engine = Engine(target, drafts, clock=clock)
    engine.submit(Request([1, 2], 4))
    engine.submit(Request([1, 3], 4))
    first, *_ = engine.steps()
    assert (first.begin_s, first.draft_s, first.target_s, first.verify_s) == (2.0, 2.0, 4.0, 0.0)
    assert first.index == 0


def _delay(thing, name, clock, seconds):
    call = getattr(thing, name)

    def slowly(*given):
        clock.advance(seconds)
        return call(*given)

    setattr(thing, name, slowly)


def test_counters_add_up():
    target = TableTarget()
    plan = [2, Cause.LOST, 5, Cause.REFUSED, 0]
    engine = Engine(target, FakeDrafts(target, plan))
    rows, finished = [], 0
    for prompt in PROMPTS:
        engine.submit(Request(prompt, 11))
    for step in engine.steps():
        rows += step.rows
        finished += len(step.finished)
    told = engine.as_dict()
    assert told["requests"] == told["finished"] == finished == 5
    assert told["tokens"] == sum(len(row.tokens) for row in rows) == 55
    assert told["proposed"] == 5 * told["drafted_rows"]
    assert told["drafted_rows"] + told["plain_rows"] == len(rows)
    assert told["accepted"] == sum(row.accepted for row in rows)
    assert told["plain_lost"] == told["plain_refused"] == 1
    assert told["plain_rows"] == sum(told[f"plain_{cause}"] for cause in Cause)
    assert told["drafts_asked"] == len(rows)
