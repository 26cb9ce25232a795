"""The exact verifier: weights, words, acceptance, residual, and what each mode emits."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pp4.errors import BadInputError, Code, WrongError
from pp4.kernels import philox
from pp4.kernels.purposes import ACCEPT, BONUS, RESIDUAL
from pp4.verifier import reference
from pp4.verifier.reference import Target, accepts, drawn, quantised, verify
from pp4.verifier.units import MAX_VOCABULARY, TICKET_WEIGHT, TOTAL, Mode
from tests.unit.verifier.cases import WORD, Script, any_weights, proposal

HALF = TOTAL // 2
seeds = st.integers(0, 2**32)
words = st.integers(0, WORD - 1) | st.sampled_from([0, 1, WORD // 2, WORD - 1])


def test_weights_are_floors_and_the_rest_goes_to_the_largest():
    p = np.array([0.1, 0.7, 0.2])
    floors = [int(Fraction(float(one)) * TOTAL) for one in p]
    rest = TOTAL - sum(floors)
    assert rest > 0
    assert quantised(p) == Target((floors[0], floors[1] + rest, floors[2]), 1)


def test_of_equal_floors_the_lower_id_is_first():
    third = np.full(3, np.float32(1 / 3))
    floor = int(Fraction(float(third[0])) * TOTAL)
    # FP32 rounds a third up: the rest is negative, and the first is the first all the same
    assert TOTAL - 3 * floor < 0
    assert quantised(third) == Target((TOTAL - 2 * floor, floor, floor), 0)
    # the difference is below a unit, so the floors tie
    assert quantised(np.array([0.5, 0.5 + 2.0**-50])).first == 0


@given(seeds, st.integers(1, 60), st.sampled_from([np.float32, np.float64]))
def test_no_weight_but_the_first_is_a_unit_off(seed, vocabulary, dtype):
    p = np.random.default_rng(seed).dirichlet(np.full(vocabulary, 0.3)).astype(dtype)
    target = quantised(p)
    exact = [Fraction(float(one)) * TOTAL for one in p]
    assert sum(target.weights) == TOTAL
    for token, (weight, wanted) in enumerate(zip(target.weights, exact, strict=True)):
        slack = vocabulary + abs(sum(exact) - TOTAL) if token == target.first else 1
        assert abs(wanted - weight) < slack or wanted == weight


@pytest.mark.parametrize(
    ("p", "match"),
    [
        (np.array([0.5, np.nan]), r"target\[1\]"),
        (np.array([1.5, -0.5]), r"target\[0\]"),
        (np.array([-1e-9, 1.0]), r"target\[0\]"),
        (np.array([np.inf, 0.0]), r"target\[0\]"),
        (np.array([0.5, 0.4999]), "sum to 1"),
        (np.array([0.5, 0.5001]), "sum to 1"),
        (np.zeros(3), "sum to 1"),
        # 2**64 + 2**48 of weight, which int64 cannot tell from 2**48
        (np.ones((1 << 16) + 1, np.float32), "sum to 1"),
        (np.ones(0), "columns"),
        (np.zeros(MAX_VOCABULARY + 1), "columns"),
        (np.ones((1, 1)), r"\[V\]"),
        (np.array([1]), "float32"),
        (np.array([1], np.float16), "float32"),
    ],
)
def test_what_is_no_distribution_is_refused(p, match):
    with pytest.raises(BadInputError, match=match):
        quantised(p)


@pytest.mark.parametrize("weights", [[TOTAL - 1], [TOTAL + 1, -1], []])
def test_weights_that_are_none_are_refused(weights):
    with pytest.raises(BadInputError):
        Target.of(weights)


@given(words, st.integers(0, TOTAL), st.integers(1, 1 << 24))
def test_acceptance_is_the_exact_ratio(u, weight, tickets):
    ratio = Fraction(weight, tickets * TICKET_WEIGHT)
    assert accepts(u, weight=weight, tickets=tickets) == (Fraction(u, WORD) < ratio)
    # the number of words that accept is off by less than one: 2**-64 of probability
    count = min(-(-weight * 2**40 // tickets), WORD)
    assert abs(count - min(ratio, 1) * WORD) < 1
    assert count == 0 or accepts(count - 1, weight=weight, tickets=tickets)
    assert count == WORD or not accepts(count, weight=weight, tickets=tickets)


@given(seeds, st.integers(1, 8), words, st.integers(1, TOTAL))
def test_a_draw_owns_its_share_of_words(seed, vocabulary, u, total):
    random = np.random.default_rng(seed)
    shares = [int(one) for one in random.multinomial(total, np.full(vocabulary, 1 / vocabulary))]
    token, running = drawn(shares, u), 0
    for one, weight in enumerate(shares):
        owned = Fraction(running, total) <= Fraction(u, WORD) < Fraction(running + weight, total)
        assert (token == one) == owned
        running += weight


def test_a_residual_of_nothing_is_an_internal_error():
    with pytest.raises(WrongError) as caught:
        drawn([0, 0, 0], 5)
    assert caught.value.refusal.code is Code.INTERNAL


def test_words_are_those_of_the_registry():
    one = proposal(Mode.SAMPLED, [{0: 1 << 24}], [0], 2)
    for purpose in (ACCEPT, RESIDUAL, BONUS):
        block = philox.stream(key=one.key, position=12, round=one.round, purpose=purpose)
        assert one.word(12, purpose) == block[0] * 2**32 + block[1]


def sampled(tokens):
    return proposal(Mode.SAMPLED, [{0: 3 << 22, 2: 1 << 22}] * len(tokens), tokens, 4)


SPREAD = Target.of([HALF, HALF // 2, HALF // 4, HALF // 4])


def test_a_sampled_block_that_is_accepted_ends_in_a_bonus():
    one = sampled([2, 0])
    # P/Q is 1/2 for token 2 and 2/3 for token 0
    script = {(11, ACCEPT): WORD // 2 - 1, (12, ACCEPT): WORD * 2 // 3, (13, BONUS): WORD // 2}
    verdict = verify(one, [SPREAD] * 3, Script(script))
    assert verdict.tokens == (2, 0, 1)
    assert verdict.accepted == 2
    assert verdict.used == tuple(script)


def test_a_rejection_draws_from_the_full_vocabulary_and_stops():
    one = sampled([2, 0])
    # a quarter and an eighth are left: two thirds of the words are token 1's
    residual = reference.residual(SPREAD, one, 0)
    assert residual == [0, HALF // 2, 0, HALF // 4]
    for u, token in ((0, 1), (WORD * 2 // 3, 1), (WORD * 2 // 3 + 1, 3), (WORD - 1, 3)):
        script = {(11, ACCEPT): WORD // 2, (11, RESIDUAL): u}
        verdict = verify(one, [SPREAD] * 3, Script(script))
        assert (verdict.accepted, verdict.tokens) == (0, (token,))
        assert verdict.used == tuple(script)


def test_a_token_without_weight_is_never_accepted():
    nowhere = Target.of([0, TOTAL, 0, 0])
    for mode in (Mode.SAMPLED, Mode.DELTA):
        one = proposal(mode, [{0: 1 << 24}], [0], 4)
        verdict = verify(one, [nowhere, SPREAD], Script({(11, ACCEPT): 0, (11, RESIDUAL): 0}))
        assert verdict.tokens == (1,)


@pytest.mark.parametrize("u", [0, WORD - 1])
def test_all_weight_on_a_sure_token_is_always_accepted(u):
    sure = Target.of([0, 0, TOTAL, 0])
    for mode in (Mode.SAMPLED, Mode.DELTA):
        one = proposal(mode, [{2: 1 << 24}], [2], 4)
        verdict = verify(one, [sure, sure], Script({(11, ACCEPT): u, (12, BONUS): u}))
        assert verdict.tokens == (2, 2)


def test_a_delta_is_accepted_by_its_weight_and_left_out_of_the_residual():
    one = proposal(Mode.DELTA, None, [1], 4)
    quarter = WORD // 4
    assert verify(
        one, [SPREAD] * 2, Script({(11, ACCEPT): quarter - 1, (12, BONUS): 0})
    ).tokens == (1, 0)
    for u, token in ((0, 0), (WORD * 2 // 3, 0), (WORD * 2 // 3 + 1, 2), (WORD - 1, 3)):
        script = {(11, ACCEPT): quarter, (11, RESIDUAL): u}
        assert verify(one, [SPREAD] * 2, Script(script)).tokens == (token,)


def test_a_greedy_block_follows_the_argmax_and_uses_no_word():
    one = proposal(Mode.GREEDY_T0, None, [0, 1, 0], 4)
    tie = Target.of([0, HALF, HALF, 0])
    assert verify(one, [SPREAD, tie, tie, tie], Script({})) == reference.Verdict(2, (0, 1, 1), ())
    assert verify(one, [SPREAD, tie, SPREAD, tie], Script({})).tokens == (0, 1, 0, 1)
    assert verify(one, [tie] * 4, Script({})).tokens == (1,)


@given(seeds)
def test_the_argmax_is_that_of_the_floors(seed):
    random = np.random.default_rng(seed)
    target = any_weights(random, 5)
    assert target.weights[target.first] == max(target.weights)
    assert max(target.weights) not in target.weights[: target.first]


@pytest.mark.parametrize("targets", [[SPREAD], [SPREAD] * 3, [SPREAD, Target.of([TOTAL])]])
def test_targets_have_to_fit(targets):
    with pytest.raises(BadInputError, match="targets"):
        verify(sampled([0]), targets)
