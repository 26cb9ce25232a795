"""The vectorised verifier equals the exact one, and never asks the host."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pp4.errors import BadInputError
from pp4.kernels.purposes import ACCEPT, BONUS, RESIDUAL
from pp4.verifier import reference, vectorised, words
from pp4.verifier.batch import Batch, stacked
from pp4.verifier.flaws import Flaw
from pp4.verifier.proposal import validated
from pp4.verifier.reference import quantised
from pp4.verifier.units import TOTAL, Mode
from pp4.verifier.words import Word, Words, accepts, share
from tests.unit.verifier.cases import (
    MODES,
    WORD,
    Script,
    any_fields,
    any_probabilities,
    proposal,
)

seeds = st.integers(0, 2**32)
edges = st.sampled_from([0, 1, 2**32 - 1, 2**32, 2**63, WORD - 2**32, WORD - 1])
any_word = st.integers(0, WORD - 1) | edges
any_weight = st.integers(0, TOTAL) | st.sampled_from([0, 1, 2**24, 2**24 - 1, TOTAL - 1, TOTAL])


def halves(numbers):
    """Python integers of 64 bits -> a Word of their shape."""
    array = np.array(numbers, np.uint64)
    low = array & np.uint64(0xFFFFFFFF)
    parts = ((array >> np.uint64(32)).astype(np.int64), low.astype(np.int64))
    return Word(*(torch.from_numpy(part) for part in parts))


@given(st.lists(st.tuples(any_word, any_weight, st.integers(0, 2**24)), min_size=1))
def test_products_are_exact(rows):
    u, weight, tickets = zip(*rows, strict=True)
    found = accepts(halves(u), weight=torch.tensor(weight), tickets=torch.tensor(tickets))
    assert found.tolist() == [one * t < w << 40 for one, w, t in rows]
    assert share(halves(u), torch.tensor(weight)).tolist() == [one * w >> 64 for one, w, _ in rows]


@given(st.integers(0, TOTAL), st.integers(1, 2**24), st.integers(-2, 2))
def test_products_are_exact_at_the_bound(weight, tickets, near):
    u = min(max((weight << 40) // tickets + near, 0), WORD - 1)
    found = accepts(halves([u]), weight=torch.tensor([weight]), tickets=torch.tensor([tickets]))
    assert found.tolist() == [reference.accepts(u, weight=weight, tickets=tickets)]


@given(any_word, st.integers(0, 2**32 - 4), st.integers(0, 2**32 - 1))
def test_words_are_the_streams_own(key, position, round):
    one = proposal(Mode.DELTA, None, [0, 0, 0], 2, key=key, position=position, round=round)
    found = words.words_of(stacked([one], 3))
    wanted = [one.word(position + i, ACCEPT) for i in range(3)]
    assert whole(found.accept) == [wanted]
    wanted = [one.word(position + i, RESIDUAL) for i in range(3)]
    assert whole(found.last) == [[*wanted, one.word(position + 3, BONUS)]]


def whole(word):
    rows = zip(word.high.tolist(), word.low.tolist(), strict=True)
    return [[h << 32 | w for h, w in zip(*row, strict=True)] for row in rows]


@dataclasses.dataclass
class Case:
    """Proposals, their targets, and words that lie near what decides."""

    proposals: list
    p: np.ndarray
    accept: list
    last: list

    def words(self):
        return Words(halves(self.accept), halves(self.last))

    def script(self, row):
        one, depth = self.proposals[row], self.p.shape[1] - 1
        words = {(one.position + i, ACCEPT): self.accept[row][i] for i in range(depth)}
        words |= {(one.position + i, RESIDUAL): self.last[row][i] for i in range(depth)}
        return Script({**words, (one.position + depth, BONUS): self.last[row][depth]})


def near(random, target, one, index):
    """Words at the bounds of acceptance and of a draw from the residual, or any."""
    if random.integers(4) == 0:
        return [int(random.integers(WORD, dtype=np.uint64)) for _ in range(2)]
    token = int(one.tokens[index])
    tickets = one.tickets_of_token(index) if one.mode is Mode.SAMPLED else 1 << 24
    accept = (target.weights[token] << 40) // tickets + int(random.integers(-1, 2))
    left = reference.residual(target, one, index)
    running = sum(left[: int(random.integers(len(left) + 1))])
    last = (running * WORD) // max(sum(left), 1) + int(random.integers(-1, 2))
    return [min(max(word, 0), WORD - 1) for word in (accept, last)]


def any_case(seed, count, depth, vocabulary, dtype):
    random = np.random.default_rng(seed)
    proposals, accept, last = [], [], []
    p = np.stack([
        [any_probabilities(random, vocabulary, dtype) for _ in range(depth + 1)]
        for _ in range(count)
    ])  # fmt: skip
    for row in range(count):
        mode = MODES[random.integers(3)]
        one = validated(**any_fields(random, vocabulary, depth, mode))
        if mode is Mode.GREEDY_T0 and random.integers(2):
            tokens = p[row, :-1].argmax(axis=1).astype(np.int32)
            one = dataclasses.replace(one, tokens=tokens, ids=np.full_like(one.ids, -1))
        pairs = [near(random, quantised(p[row, i]), one, i) for i in range(depth)]
        proposals.append(one)
        accept.append([pair[0] for pair in pairs])
        last.append([pair[1] for pair in pairs] + [int(random.integers(WORD, dtype=np.uint64))])
    return Case(proposals, p, accept, last)


def check(verdicts, row, wanted):
    assert int(verdicts.error[row]) == Flaw.NONE
    assert int(verdicts.accepted[row]) == wanted.accepted
    padding = [-1] * (verdicts.tokens.shape[1] - len(wanted.tokens))
    assert verdicts.tokens[row].tolist() == [*wanted.tokens, *padding]


@given(seeds, st.integers(1, 5), st.integers(1, 40), st.sampled_from([np.float32, np.float64]))
@settings(max_examples=100)
def test_any_batch(seed, depth, vocabulary, dtype):
    case = any_case(seed, 6, depth, vocabulary, dtype)
    target, batch = torch.from_numpy(case.p), stacked(case.proposals, depth)
    for injected in (case.words(), None):
        found = vectorised.verify(target, batch, injected)
        for row, one in enumerate(case.proposals):
            targets = [quantised(one) for one in case.p[row]]
            script = case.script(row) if injected else None
            check(found, row, reference.verify(one, targets, script))


def test_a_batch_reaches_every_end():
    """What the cases above are made of: all modes, all numbers of accepted tokens."""
    seen = set()
    for seed in range(60):
        case = any_case(seed, 6, 2, 9, np.float64)
        found = vectorised.verify(
            torch.from_numpy(case.p), stacked(case.proposals, 2), case.words()
        )
        seen |= {
            (one.mode, n) for one, n in zip(case.proposals, found.accepted.tolist(), strict=True)
        }
    assert seen == {(mode, n) for mode in MODES for n in range(3)}


def sound_case():
    rows = [{7: 1 << 23, 2: 1 << 22, 9: 1 << 22}] * 2
    proposals = [proposal(Mode.SAMPLED, rows, [7, 2], 12, key=key) for key in range(3)]
    p = np.stack([any_probabilities(np.random.default_rng(3), 12) for _ in range(9)])
    return proposals, p.reshape(3, 3, 12)


def large(device="cpu"):
    """A step at the largest vocabulary, with every mode."""
    vocabulary, depth = 1 << 18, 2
    random = np.random.default_rng(5)
    proposals = [validated(**any_fields(random, vocabulary, depth, mode)) for mode in MODES]
    logits = torch.from_numpy(random.normal(size=(3, depth + 1, vocabulary)).astype(np.float32))
    for row, one in enumerate(proposals):
        for place, token in enumerate(one.tokens.tolist()):
            logits[row, place, token] = 12.5
    return proposals, logits.softmax(dim=2)


def test_the_largest_vocabulary():
    proposals, p = large()
    found = vectorised.verify(p, stacked(proposals, 2))
    for row, one in enumerate(proposals):
        check(found, row, reference.verify(one, [quantised(column) for column in p[row].numpy()]))


def test_no_value_is_read_back():
    """Tensors without storage have none to read."""
    batch = stacked([None] * 4, 3)
    members = (getattr(batch, one.name).to("meta") for one in dataclasses.fields(Batch))
    target = torch.empty(4, 4, 1000, device="meta")
    found = vectorised.verify(target, Batch(*members))
    assert found.tokens.is_meta
    assert found.tokens.shape == (4, 4)


@pytest.mark.gpu
def test_a_gpu_gives_the_same_without_waiting_for_the_host():
    """By the operators; tests/kernels has the kernels."""
    for proposals, p in (sound_case(), large()):
        p = torch.as_tensor(p)
        expected = vectorised.verify(p, stacked(proposals, 2))
        there, batch = p.cuda(), stacked(proposals, 2, "cuda")
        before = torch.cuda.get_sync_debug_mode()
        torch.cuda.set_sync_debug_mode("error")
        try:
            found = vectorised.by_operators(there, batch)
        finally:
            torch.cuda.set_sync_debug_mode(before)
        for one in dataclasses.fields(found):
            assert torch.equal(getattr(found, one.name).cpu(), getattr(expected, one.name))


@pytest.mark.parametrize(
    ("change", "shape", "match"),
    [
        ({}, (3, 2, 12), "target"),
        ({}, (3, 3), "target"),
        ({}, (3, 3, 0), "target"),
        ({}, (3, 3, (1 << 18) + 1), "target"),
        ({"mode": torch.zeros(3, dtype=torch.int64)}, (3, 3, 12), "mode"),
        ({"key": torch.zeros(2, dtype=torch.int64)}, (3, 3, 12), "key"),
        ({"ids": torch.zeros(3, 2, 31, dtype=torch.int32)}, (3, 3, 12), "ids"),
        ({"tickets": torch.zeros(3, 1, 32, dtype=torch.int32)}, (3, 3, 12), "tickets"),
        ({"tokens": torch.zeros(3, 0, dtype=torch.int32)}, (3, 3, 12), "position"),
    ],
)
def test_what_does_not_fit_is_refused(change, shape, match):
    batch = dataclasses.replace(stacked([None] * 3, 2), **change)
    with pytest.raises(BadInputError, match=match):
        vectorised.verify(torch.empty(shape, device="meta"), batch)


def test_integers_are_no_probabilities():
    with pytest.raises(BadInputError, match="float32 or float64"):
        vectorised.verify(torch.zeros(3, 3, 12, dtype=torch.int64), stacked([None] * 3, 2))


def test_depths_are_not_mixed():
    with pytest.raises(BadInputError, match="depth 1"):
        stacked([proposal(Mode.DELTA, None, [0, 0], 2)], 1)
