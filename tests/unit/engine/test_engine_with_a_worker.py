"""An engine with a real worker: greedy text is the target's own, sampled text has its distribution.

Keys are fixed, so the results are too: ``chances.ALPHA`` says how rarely a right engine would fail
had they been drawn.
"""

import dataclasses

import numpy as np
import pytest
import torch

from pp4.engine.decoding import Engine
from pp4.engine.requests import Request
from pp4.verifier import vectorised
from pp4.verifier.units import Mode
from pp4.worker.client import Ask
from tests.unit.engine.chains import REQUESTS, chance_of
from tests.unit.engine.doubles import TableTarget, greedy
from tests.unit.engine.served import CONTEXT, DEPTH, VOCAB, WIDTH, table
from tests.unit.processes import within
from tests.unit.verifier.chances import ALPHA

PROMPTS = [[3, 1, 4], [1, 5, 9, 2, 6, 5], [7], [0] * 20, [11, 3], [2, 2], [9, 8, 7, 6]]


SOON_S = 20.0


def modes(rows):
    return {row.mode for row in rows}


def test_greedy_text_is_the_targets_own(served):
    target = table(slots=3)
    with served.drafts(target) as drafts:
        engine = Engine(target, drafts)
        rows = []
        for number, prompt in enumerate(PROMPTS):
            engine.submit(Request(prompt, 8 + 2 * number))
        outputs = {}
        for step in engine.steps():
            rows += step.rows
            outputs |= {one.request: one.tokens for one in step.finished}
        told = engine.as_dict()
    for number, prompt in enumerate(PROMPTS):
        assert outputs[number] == greedy(target, prompt, 8 + 2 * number)
    # all of it was drafted, except where a block found no room, and some was right by chance
    assert modes(rows) == {Mode.GREEDY_T0}
    assert told["accepted"] > 0
    assert told["plain_rows"] == 0
    assert told["drafts_expected"] == told["drafts_asked"] == len(rows)
    assert told["drafts_opened"] == len(PROMPTS)
    assert told["drafts_late"] == told["drafts_duplicated"] == told["drafts_unknown"] == 0


def test_a_worker_forgets_what_has_ended(served):
    target = table(slots=2)
    with served.drafts(target) as drafts:
        Engine(target, drafts).run([Request(prompt, 5) for prompt in PROMPTS])
        drafts.draft([])

        def forgot():
            counters = served.worker.status().counters
            return counters["opened"] == counters["closed"]

        # also what others have left behind, some time
        assert within(forgot, SOON_S)


def test_a_worker_has_every_feature_once(served):
    target = table(slots=2)
    with served.drafts(target) as drafts:
        engine = Engine(target, drafts)
        (output,) = engine.run([Request(PROMPTS[1], 20)])
        told = engine.as_dict()
    # the last step's are not sent any more
    kept = len(PROMPTS[1]) - 1 + len(output.tokens)
    assert kept - 6 <= told["drafts_features"] < kept


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_beyond_the_workers_context_it_goes_on_plainly(served, temperature):
    target = table(context=80)
    with served.drafts(target) as drafts:
        engine = Engine(target, drafts)
        (output,) = engine.run([Request([1, 2, 3], 76, temperature, key=2)])
    assert len(output.tokens) == 76
    if not temperature:
        assert output.tokens == greedy(target, [1, 2, 3], 76)
    told = engine.as_dict()
    assert told["plain_no_room"] == told["plain_rows"] > 76 - 64
    assert told["drafts_ended"] == 0


# -- distributions -----------------------------------------------------------------------------


class Near(TableTarget):
    """A target that remembers one token, and is near to what a worker drafts after it."""

    def __init__(self, served):
        super().__init__(VOCAB, WIDTH, slots=REQUESTS, context=CONTEXT, memory=1)
        with served.worker.client(DEPTH) as client:
            for token in range(VOCAB):
                client.open(token, key=token)
            asks = [Ask(token, 0, anchor=token, temperature=1.0) for token in range(VOCAB)]
            drafted = client.draft_many(asks)
        p = np.full((VOCAB, VOCAB), 0.3 / VOCAB)
        for token, one in enumerate(drafted):
            p[token, one.ids[0][one.ids[0] >= 0]] += 0.7 * one.q[0][one.ids[0] >= 0]
        self.table = np.log(p).astype(np.float32)

    def after(self, tokens):
        return self.table[tokens[-1]]


@pytest.fixture(scope="module")
def near(served):
    return Near(served)


@pytest.mark.parametrize(
    ("sampled", "temperature", "mode"), [(True, 1.0, Mode.SAMPLED), (False, 0.7, Mode.DELTA)]
)
def test_sampled_text_has_the_targets_distribution(served, near, sampled, temperature, mode):
    with served.drafts(near, sampled=sampled) as drafts:
        found, seen, told = chance_of(near, drafts, temperature)
    assert found > ALPHA
    assert seen == {mode}
    assert 0 < told["accepted"] < told["proposed"]


def test_so_has_what_is_decoded_plainly(near):
    found, seen, _ = chance_of(near, None, 1.0)
    assert found > ALPHA
    assert seen == {Mode.INACTIVE}


def test_a_verifier_that_accepts_everything_is_caught(served, near, monkeypatch):
    right = vectorised.verify

    def all_of_it(target, batch):
        found = right(target, batch)
        count, depth = batch.tokens.shape
        tokens = torch.cat((batch.tokens, batch.tokens[:, :1]), dim=1)
        return dataclasses.replace(found, accepted=torch.full((count,), depth), tokens=tokens)

    monkeypatch.setattr(vectorised, "verify", all_of_it)
    with served.drafts(near, sampled=True) as drafts:
        found, _, told = chance_of(near, drafts, 1.0)
    assert told["accepted"] == told["proposed"]
    assert found < ALPHA
