"""What only a GPU shows of recorded runs: CUDA graphs give the bits of plain launches."""

import json
import random
from pathlib import Path

import pytest
import torch

from pp4.engine.decoding import Engine
from pp4.engine.interface import Row
from pp4.engine.requests import Request
from pp4.engine.target.causal import CausalTarget
from pp4.engine.target.load import load
from pp4.engine.target.recording import Graphs, Plain
from tests.unit.engine.target.checkpoints import target_of
from tests.unit.engine.target.stepping import tokens_of
from tests.unit.engine.target.test_bits import WIDE
from tests.unit.engine.test_engine_with_a_target import Knowing

pytestmark = pytest.mark.gpu

MINI = Path(__file__).parents[4] / "examples" / "mini"
TAPS, WINDOW, NEW_TOKENS = (0, 1, 3), 6, 48


def device():
    return torch.device("cuda", torch.cuda.current_device())


def both(**sizes):
    """The same target twice: recorded, and launched operator by operator."""
    given = {"taps": (0, 1), "context": 512, "device": device(), **sizes}
    return target_of(WIDE, **given), target_of(WIDE, **given, recorder=Plain(device()))


@pytest.mark.parametrize("slots", [1, 3, 8, 32])
def test_steps_and_prompts_have_the_bits_of_plain_launches(slots):
    chance = random.Random(slots)
    recorded, plain = both(slots=slots)
    for slot in range(slots):
        prompt = tokens_of(chance.choice((0, 1, 63, 64, 65, 150)), WIDE.vocab, slot)
        assert torch.equal(recorded.prefill(slot, prompt), plain.prefill(slot, prompt))
    for number in range(30):
        chosen = chance.sample(range(slots), chance.randint(1, slots))
        counts = [chance.randint(1, WINDOW) for _ in chosen]
        rows = [
            Row(slot, tokens_of(count, WIDE.vocab, 100 * number + slot))
            for slot, count in zip(chosen, counts, strict=True)
        ]
        found, expected = recorded.step(rows), plain.step(rows)
        assert found.logits.shape == expected.logits.shape
        for place, (slot, count) in enumerate(zip(chosen, counts, strict=True)):
            assert torch.equal(found.logits[place, :count], expected.logits[place, :count])
            assert torch.equal(found.features[place, :count], expected.features[place, :count])
            kept = chance.randint(0, count)
            recorded.keep(slot, kept)
            plain.keep(slot, kept)
        if number % 10 == 9:
            again = tokens_of(80 + number, WIDE.vocab, number)
            assert torch.equal(recorded.prefill(0, again), plain.prefill(0, again))


def test_steps_that_nobody_waits_for_read_their_own_tokens():
    recorded, plain = both(slots=4)
    tokens = tokens_of(240, WIDE.vocab)
    for first in range(0, 240, 6):
        rows = [Row(slot, tokens[first : first + 6]) for slot in range(4)]
        found = recorded.step(rows)
        expected = plain.step(rows)
        torch.cuda.synchronize()
        for slot in range(4):
            plain.keep(slot, 6)
            recorded.keep(slot, 6)
    assert torch.equal(found.logits, expected.logits)
    for slot in range(4):
        recorded.prefill(slot, [])
    # from here on without anybody who waits between
    for first in range(0, 240, 6):
        found = recorded.step([Row(slot, tokens[first : first + 6]) for slot in range(4)])
        for slot in range(4):
            recorded.keep(slot, 6)
    assert torch.equal(found.logits, expected.logits)


def test_a_prompt_leaves_the_last_step_as_it_is():
    recorded, _ = both(slots=8)
    for seed in range(3):
        found = recorded.step(
            [Row(slot, tokens_of(6, WIDE.vocab, seed + slot)) for slot in range(8)]
        )
        kept = found.logits.clone(), found.features.clone()
        prompt = recorded.prefill(7, tokens_of(200, WIDE.vocab, seed))
        features = prompt.clone()
        assert torch.equal(found.logits, kept[0])
        assert torch.equal(found.features, kept[1])
        recorded.step([Row(7, [1, 2])])
        assert torch.equal(prompt, features)


def test_targets_that_come_and_go_leave_others_their_memory():
    """A graph holds addresses; torch frees what it thinks a graph that goes was alone to use."""
    recorded, plain = both(slots=2)
    rows = [Row(0, [1, 2, 3]), Row(1, [4])]
    expected = plain.step(rows).logits.clone()
    for seed in range(3):
        other = target_of(WIDE, seed, taps=(0, 1), slots=3, context=512, device=device())
        other.step([Row(2, [5, 6])])
        assert torch.equal(recorded.step(rows).logits[0, :3], expected[0, :3])
        del other
        torch.cuda.empty_cache()
        torch.full((1 << 26,), float("nan"), device=device())
        assert torch.equal(recorded.step(rows).logits[0, :3], expected[0, :3])


@pytest.fixture(scope="module")
def prompts():
    lines = (MINI / "prompts.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines[:12]]


@pytest.fixture(scope="module")
def targets():
    """The mini target, by how it is launched."""
    weights = load(MINI / "target", device())
    given = {"taps": TAPS, "slots": 8, "window": WINDOW, "context": 256}
    return [
        CausalTarget(weights, **given, recorder=recorder)
        for recorder in (Graphs(device()), Plain(device()))
    ]


def texts(target, prompts, temperature, drafts=None):
    engine = Engine(target, drafts)
    asked = [Request(one, NEW_TOKENS, temperature, key) for key, one in enumerate(prompts)]
    return [one.tokens for one in engine.run(asked)]


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_whole_texts_are_the_same(targets, prompts, temperature):
    recorded, plain = (texts(one, prompts, temperature) for one in targets)
    assert recorded == plain
    assert len(set(recorded)) == len(prompts)


@pytest.mark.parametrize("plan", [[5], [0, 3, 5, 1]])
def test_greedy_text_with_drafts_is_that_without(targets, prompts, plan):
    expected = texts(targets[1], prompts, 0.0)
    for target in targets:
        drafts = Knowing(target, expected, plan, prompts)
        assert texts(target, prompts, 0.0, drafts) == expected
