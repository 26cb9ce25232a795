"""What a replay reports: against values by hand, and against every path of the exact verifier."""

import math
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pp4.engine.replay import figures, truncation
from pp4.engine.replay.interval import mean_difference
from pp4.engine.replay.replaying import replay
from pp4.engine.replay.weights import WORDS, accepting_words, target_weights
from pp4.kernels import dyadic24, philox
from pp4.kernels import reference as exact_row
from pp4.kernels.head import values_of
from pp4.kernels.purposes import ACCEPT
from pp4.kernels.reference_block import ReferenceBlock
from pp4.verifier import reference
from pp4.verifier.proposal import validated
from pp4.verifier.units import TOTAL, Mode
from tests.unit.engine.replay.cases import by_hand
from tests.unit.verifier.cases import any_fields, proposal

CPU = torch.device("cpu")
HALF, QUARTER, EIGHTH = 0.5, 0.25, 0.125
P = [HALF, QUARTER, EIGHTH, EIGHTH]
FLAT = [QUARTER] * 4
MEANS = ("decided", "expected")


def key_that_draws(*tokens):
    """A key by which equal shares of four tokens give these, from position 2 in round 0."""
    for key in range(1 << 63, (1 << 63) + 10_000):
        tickets = [
            philox.draft_ticket(key=key, position=2 + place, round=0)
            for place in range(len(tokens))
        ]
        if [ticket // (dyadic24.TICKETS // 4) for ticket in tickets] == list(tokens):
            return key
    raise AssertionError("no such key")


def word(key, position):
    high, low, *_ = philox.stream(key=key, position=position, round=0, purpose=ACCEPT)
    return Fraction((high << 32) + low, 1 << 64)


def accepted_by_hand(key, chances):
    """How many of a chain's tokens the words accept."""
    accepted = 0
    for place, chance in enumerate(chances):
        if word(key, 2 + place) >= Fraction(chance):
            break
        accepted += 1
    return accepted


@pytest.fixture(scope="module")
def two_blocks():
    """Four equal logits, so q is a quarter each; p is P at T = 0.7 and flat at T = 1.0."""
    keys = [key_that_draws(2, 3), key_that_draws(0, 2)]
    held = by_hand(np.zeros((2, 2, 4)), keys, [[P] * 3, [FLAT] * 3], argmax=[[0, 1, 2], [0, 0, 2]])
    assert held.sampled.tokens.tolist() == [[2, 3], [0, 2]]
    assert held.greedy.tokens.tolist() == [[0, 0], [0, 0]]
    return keys, replay(held, part=2, rows=2, device=CPU, make_block=ReferenceBlock)


def arm(found, temperature, switch):
    (one,) = (
        one for one in found["arms"] if (one["temperature"], one["switch"]) == (temperature, switch)
    )
    return one


def column(one, name):
    return [position[name] for position in one["positions"]]


def test_figures_by_hand_with_the_words_averaged_out(two_blocks):
    _, found = two_blocks
    on = arm(found, "0.7", "on")
    # the chains' chances: min(1, p / q) = 1/2 and 1/2; 1 and 1/2
    assert column(on, "expected") == [(HALF + 1) / 2, (QUARTER + HALF) / 2]
    assert column(on, "expected_rate") == [0.75, 0.5]
    assert on["expected_length"] == (HALF + QUARTER + 1 + HALF) / 2
    assert column(on, "shared") == [0.75, 0.75]
    off = arm(found, "0.7", "off")
    assert column(off, "expected") == [HALF, QUARTER]
    assert column(off, "expected_rate") == [HALF, HALF]
    assert column(off, "shared") == [HALF, HALF]
    assert off["expected_length"] == 0.75
    # where p is q all is accepted
    flat = arm(found, "1.0", "on")
    assert (flat["accepted_length"], flat["expected_length"]) == (2, 2)
    assert flat["histogram"] == [0, 0, 2]
    assert column(flat, "shared") == [1, 1]
    assert column(arm(found, "1.0", "off"), "expected") == [QUARTER, QUARTER**2]
    (low, high) = found["differences"]
    assert (low["expected"]["mean"], high["expected"]["mean"]) == (0.375, 2 - 0.3125)


def test_figures_by_hand_as_the_words_decide(two_blocks):
    keys, found = two_blocks
    decided = {}
    for temperature, switch, chances in (
        ("0.7", "on", [(HALF, HALF), (1, HALF)]),
        ("0.7", "off", [(HALF, HALF)] * 2),
        ("1.0", "off", [(QUARTER, QUARTER)] * 2),
    ):
        lengths = [accepted_by_hand(*one) for one in zip(keys, chances, strict=True)]
        one = arm(found, temperature, switch)
        decided[temperature, switch] = sum(lengths) / 2
        assert one["accepted_length"] == sum(lengths) / 2
        assert one["tokens_per_step"] == sum(lengths) / 2 + 1
        assert one["histogram"] == [lengths.count(length) for length in range(3)]
        assert column(one, "accepted") == [sum(n > place for n in lengths) for place in range(2)]
        assert column(one, "reached") == [sum(n >= place for n in lengths) for place in range(2)]
    (low, high) = (one["decided"]["mean"] for one in found["differences"])
    assert low == decided["0.7", "on"] - decided["0.7", "off"]
    assert high == 2 - decided["1.0", "off"]
    # not 0, or the sign of a difference could not be seen
    assert high > 0


def test_at_zero_the_argmax_decides(two_blocks):
    _, found = two_blocks
    zero = arm(found, "0", "either")
    # argmax 0, 1 and 0, 0 against the chain 0, 0
    assert zero["histogram"] == [0, 1, 1]
    assert zero["expected_length"] == zero["accepted_length"] == 1.5
    assert column(zero, "expected_rate") == [1, 0.5]


def test_nobody_reaches_what_comes_after_a_token_without_a_chance():
    held = by_hand(np.zeros((1, 3, 4)), [5], [[P] * 4] * 2, argmax=[[1, 0, 0, 0]])
    found = replay(held, part=1, rows=1, device=CPU, make_block=ReferenceBlock)
    assert column(arm(found, "0", "either"), "expected_rate") == [0, None, None]
    assert column(arm(found, "0", "either"), "reached") == [1, 0, 0]


def test_truncation_by_hand():
    # 40 equal logits: q has 32 of them
    whole, behind = [1 / 40] * 40, [0.0] * 32 + [1 / 8] * 8
    # what stands after the last token is another one, and nothing of it counts
    held = by_hand(np.zeros((1, 1, 40)), [5], [[whole, behind], [behind, whole]])
    found = replay(held, part=1, rows=1, device=CPU, make_block=ReferenceBlock)
    (lost,) = found["truncation"]
    assert lost["mean"] == lost["largest"] == pytest.approx(8 / 40, abs=1e-12)
    # FP32 has no 1/40; without truncation min(p, s) is all of p, or 8 of 40
    assert lost["shared"]["0.7"] == pytest.approx(1, abs=1e-6)
    assert lost["shared"]["1.0"] == pytest.approx(8 / 40, abs=1e-12)
    assert column(arm(found, "0.7", "on"), "shared") == [pytest.approx(32 / 40, abs=1e-6)]
    assert column(arm(found, "1.0", "on"), "shared") == [0]


def test_the_softmax_is_that_of_tau():
    base = [[[2.0, 1.0, 0.0, -1.0]]]
    held = by_hand(base, [5], [[P] * 2] * 2)
    powers = [math.exp(one / 0.7) for one in base[0][0]]
    wanted = [one / sum(powers) for one in powers]
    assert truncation.untruncated(held, 0, 1)[0, 0].tolist() == pytest.approx(wanted, abs=1e-14)
    found = replay(held, part=1, rows=1, device=CPU, make_block=ReferenceBlock)
    # all four are candidates: what is left is the rounding to tickets
    assert 0 < found["truncation"][0]["mean"] < 2e-6


def test_the_softmax_is_of_logits_along_the_sampled_chain(held):
    assert held.sampled.previous.tolist() != held.greedy.previous.tolist()
    w1, w2, base = (
        values_of(one.view(torch.int16)) for one in (held.w1, held.w2, held.base[1:4].contiguous())
    )
    found = truncation.untruncated(held, 1, 4)
    for block, index in product(range(3), range(5)):
        bias = exact_row.markov_bias(w1[held.sampled.previous[1 + block, index]], w2)
        logits = np.asarray(exact_row.conditioned(base[block, index], bias), np.float64)
        powers = np.exp(logits / 0.7)
        np.testing.assert_allclose(found[block, index], powers / powers.sum(), rtol=1e-12)


@given(st.integers(0, TOTAL), st.integers(1, dyadic24.TICKETS))
def test_accepting_words_are_counted(weight, tickets):
    count = accepting_words(weight, tickets)
    assert 0 <= count <= WORDS
    if count:
        assert reference.accepts(count - 1, weight=weight, tickets=tickets)
    if count < WORDS:
        assert not reference.accepts(count, weight=weight, tickets=tickets)


@given(st.integers(1, 40), st.integers(0, 2**32), st.sampled_from([0.0, 1e-5, -1e-5]))
def test_weights_are_the_verifiers(vocab, seed, off):
    p = np.random.default_rng(seed).dirichlet([0.3] * vocab).astype(np.float32)
    p[0] = max(p[0] + np.float32(off), 0)
    p = np.minimum(p, np.float32(1))
    found = target_weights(p[None])
    assert found.sound.tolist() == [True]
    assert tuple(found.rows[0].tolist()) == reference.quantised(p).weights


def test_what_the_verifier_refuses_is_not_sound():
    rows = np.array([[0.5, 0.5], [0.5, 0.49], [1.0, 0.01], [0.0, 0.0]], np.float32)
    assert target_weights(rows).sound.tolist() == [True, False, False, False]


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.sampled_from([Mode.SAMPLED, Mode.DELTA]), st.integers(1, 4))
def test_the_expected_length_is_that_of_every_path_of_the_verifier(seed, mode, depth):
    random, vocab = np.random.default_rng(seed), 5
    p = random.dirichlet([0.5] * vocab, size=depth + 1).astype(np.float32)
    one = validated(**any_fields(random, vocab, depth, mode))
    targets = [reference.quantised(row) for row in p]
    edges = [edge(one, targets, place) for place in range(depth)]
    mean = Fraction(0)
    for takes in product((True, False), repeat=depth):
        chance = math.prod(
            Fraction(count if take else WORDS - count, WORDS)
            for take, count in zip(takes, edges, strict=True)
        )
        if chance:

            def words(position, purpose, takes=takes):
                place = position - one.position
                if purpose is not ACCEPT:
                    return 0
                return edges[place] - 1 if takes[place] else edges[place]

            mean += chance * reference.verify(one, targets, words).accepted
    assert figures.measured(one, p, accepted=0).expected_length == mean


def edge(one, targets, place):
    """How many words accept the token of a position, by halving, with the verifier's own eye."""
    only = slice(place, place + 1)
    alone = replace(one, ids=one.ids[only], tickets=one.tickets[only], tokens=one.tokens[only])
    low, high = 0, WORDS
    while low < high:
        middle = (low + high) // 2

        def words(_, purpose, middle=middle):
            return middle if purpose is ACCEPT else 0

        if reference.verify(alone, targets[place : place + 2], words).accepted:
            low = middle + 1
        else:
            high = middle
    return low


def test_shared_is_the_chance_with_the_token_averaged_out():
    random, vocab = np.random.default_rng(7), 6
    p = random.dirichlet([0.5] * vocab, size=2).astype(np.float32)
    tickets = random.multinomial(dyadic24.TICKETS, random.dirichlet([0.5] * vocab)).tolist()
    mean = Fraction(0)
    for token, count in enumerate(tickets):
        if count:
            one = proposal(Mode.SAMPLED, [dict(enumerate(tickets))], [token], vocab)
            found = figures.measured(one, p, accepted=0)
            mean += Fraction(count, dyadic24.TICKETS) * found.expected_length
    # a chance is a whole number of words, rounded up
    assert 0 <= mean - Fraction(found.shared[0], TOTAL) < Fraction(1, WORDS)


def test_an_interval_needs_documents():
    differences = [Fraction(one % 3) for one in range(58)]
    few = mean_difference([one // 2 for one in range(58)], differences)
    assert few == {"mean": pytest.approx(sum(one % 3 for one in range(58)) / 58), "interval": None}
    assert mean_difference(list(range(58)), differences)["interval"] is not None


@pytest.mark.parametrize("count", [29, 30])
def test_a_replay_counts_documents_and_not_blocks(count):
    documents = [block // 2 for block in range(2 * count)]
    held = by_hand(np.zeros((2 * count, 1, 4)), documents, [[P] * 2] * 2, documents=documents)
    found = replay(held, part=2 * count, rows=64, device=CPU, make_block=ReferenceBlock)
    assert found["part"]["documents"] == count
    intervals = [one[name]["interval"] for one in found["differences"] for name in MEANS]
    assert [one is not None for one in intervals] == [count == 30] * 4


def test_an_interval_of_equal_differences_is_a_point():
    found = mean_difference(list(range(30)), [Fraction(1, 4)] * 30)
    assert found == {"mean": 0.25, "interval": [0.25, 0.25]}


def test_an_interval_is_as_wide_as_documents_differ():
    random = np.random.default_rng(3)
    values = random.normal(size=400)
    exact = [Fraction(one) for one in values.tolist()]
    found = mean_difference(list(range(400)), exact)
    half = 1.96 * values.std() / 20
    low, high = found["interval"]
    # of 10,000 resamples a percentile is off by some hundredths of the width
    assert [low, high] == pytest.approx(
        [values.mean() - half, values.mean() + half], abs=0.1 * half
    )
    # the same blocks again tell nothing new of a document
    twice = mean_difference([one // 2 for one in range(800)], [one for one in exact for _ in "ab"])
    assert twice["interval"] == pytest.approx([low, high], abs=1e-12)
    # nor does a document of many blocks count as many documents
    lengths = [Fraction(1)] * 971 + [Fraction(0)] * 29
    one_large = mean_difference(sorted([*range(30), *[0] * 970]), lengths)
    low, high = one_large["interval"]
    assert low < 0.7 < one_large["mean"] < high
