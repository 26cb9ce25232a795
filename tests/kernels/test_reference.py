"""The reference against tables, fractions and a second, naive writing of the same rules."""

import json
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pp4.errors import BadInputError
from pp4.kernels import dyadic24, reference
from pp4.kernels.faults import Fault
from pp4.kernels.philox import draft_ticket
from tests.kernels.cases import INF, bf16, from_patterns, normal
from tests.vectors.make_bf16 import rounded

TABLE = json.loads((Path(__file__).parents[1] / "vectors" / "bf16.json").read_text("utf-8"))
BITS = np.array([int(bits, 16) for bits, _ in TABLE], np.uint32)
ROUNDED = np.array([int(pattern, 16) for _, pattern in TABLE], np.uint32)


def patterns_of(values):
    return (np.asarray(values).view(np.uint32) >> 16).tolist()


def is_nan(patterns):
    return (np.asarray(patterns) & 0x7FFF) > 0x7F80


def test_rounding_table():
    assert patterns_of(reference.round_bf16(BITS.view(np.float32))) == ROUNDED.tolist()


@given(st.integers(0, 2**32 - 1))
def test_rounding_equals_exact_arithmetic(bits):
    found = reference.round_bf16(np.array([bits], np.uint32).view(np.float32))
    assert patterns_of(found) == [rounded(bits)]


def test_the_table_is_what_its_program_writes():
    assert [rounded(int(bits)) for bits in BITS] == ROUNDED.tolist()


def test_the_bias_is_summed_by_the_halving_tree():
    # 1 + 2**-24 rounds to 1, so the order decides whether the two small halves meet first
    tiny = 2.0**-24
    w1 = bf16([1, 1, 1, 1])
    w2 = bf16([[1, tiny, -1, tiny], [1, -1, tiny, tiny]])
    # (x0 + x2) + (x1 + x3): 0 + 2**-23, and (1 + tiny) + (-1 + tiny)
    one, other = reference.markov_bias(w1, w2).tolist()
    assert one == 2.0**-23
    assert other == float(np.float32(1) + np.float32(-1 + tiny))
    assert reference.markov_bias(w1, w2[:, [0, 2, 1, 3]])[0] != one


@given(st.integers(0, 2**31), st.sampled_from([1, 2, 8, 32]))
def test_the_bias_equals_the_tree_in_fractions(seed, width):
    w1, w2 = normal(seed, width), normal(seed + 1, 3, width, scale=2.0**-60)
    found = reference.markov_bias(w1, w2)
    for column in range(3):
        terms = [
            Fraction(float(a)) * Fraction(float(b)) for a, b in zip(w1, w2[column], strict=True)
        ]
        while len(terms) > 1:
            half = len(terms) // 2
            sums = [terms[i] + terms[half + i] for i in range(half)]
            terms = [Fraction(float(np.float32(float(total)))) for total in sums]
        assert patterns_of(found[column : column + 1]) == [
            rounded(int(np.float32(float(terms[0])).view(np.uint32)))
        ]


@pytest.mark.parametrize(
    ("base", "bias", "result"),
    [
        (0x3F80, 0x3B80, 0x3F80),  # 1 + 2**-8: a tie, to even, down
        (0x3F81, 0x3B80, 0x3F82),  # a tie, to even, up
        (0x3F80, 0x3B81, 0x3F81),  # just above the tie
        (0x7F7F, 0x7B00, 0x7F80),  # half a step above the largest: infinity
        (0xFF7F, 0xFB00, 0xFF80),  # and -infinity, which masks
        (0x7F7F, 0x7AFF, 0x7F7F),  # just below
        (0x8000, 0x8000, 0x8000),  # -0 stays until it is selected
        (0x8000, 0x0000, 0x0000),
        (0x0001, 0x0001, 0x0002),  # subnormals are not flushed
        (0x7F80, 0xFF80, None),
        (0xFF80, 0x7F80, None),
        (0x7FC1, 0x0000, None),
        (0xFF81, 0x3F80, None),
        (0x7F80, 0x3F80, 0x7F80),
        (0xFF80, 0x7F7F, 0xFF80),
    ],
)
def test_conditioned_logits(base, bias, result):
    (found,) = patterns_of(reference.conditioned(from_patterns([base]), from_patterns([bias])))
    if result is None:
        assert is_nan(found)
    else:
        assert found == result


def naive(row, key, position, round, greedy):
    """The rules once more, one column at a time."""
    values = [float(value) for value in row]
    if any(math.isnan(value) or value == INF for value in values):
        return (-1,) * 32, (0.0,) * 32, -1, Fault.BAD_LOGITS
    finite = [(-value, token) for token, value in enumerate(values) if value != -INF]
    if not finite:
        return (-1,) * 32, (0.0,) * 32, -1, Fault.EMPTY_ROW
    best = sorted(finite)[:32]
    ids = tuple(token for _, token in best) + (-1,) * (32 - len(best))
    if greedy:
        return ids, (0.0,) * 32, ids[0], Fault.NONE
    tickets = dyadic24.allocate([-value + 0.0 for value, _ in best])
    k, place = draft_ticket(key=key, position=position, round=round), 0
    while k >= tickets[place]:
        k -= tickets[place]
        place += 1
    q = tuple(count * 2.0**-24 for count in tickets) + (0.0,) * (32 - len(best))
    return ids, q, ids[place], Fault.NONE


palette = st.lists(
    st.integers(0, 0xFFFF)
    | st.sampled_from([0, 0x8000, 0x3F80, 0xFF80, 0xFF7F, 0x7F7F, 1, 0x8001]),
    min_size=1,
    max_size=6,
)


@given(palette, st.integers(1, 90), st.integers(0, 2**64 - 1), st.booleans())
def test_selection_equals_the_naive_writing(patterns, vocab, key, greedy):
    row = from_patterns(np.random.default_rng(key).choice(patterns, vocab))
    found = reference.select_row(row, key=key, position=3, round=4, greedy=greedy)
    assert (found.ids, found.q, found.token, found.error) == naive(row, key, 3, 4, greedy)
    assert found.continuation == (0 if found.error else found.token)
    assert sum(found.tickets) == (0 if greedy or found.error else dyadic24.TICKETS)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: reference.conditioned([1.0], [1.0]), "dtype"),
        (lambda: reference.conditioned(np.float32([0.1]), np.float32([0])), "BF16 holds"),
        (lambda: reference.conditioned(bf16([1, 2]), bf16([1])), "equal shapes"),
        (lambda: reference.markov_bias(bf16([1, 1, 1]), bf16([[1, 1, 1]])), "power of two"),
        (lambda: reference.markov_bias(bf16([1, 1]), bf16([[1, 1, 1, 1]])), "power of two"),
        (lambda: reference.select_row(bf16([[1]]), key=0, position=0, round=0), "one row"),
        (lambda: reference.select_row(bf16([]), key=0, position=0, round=0), "one row"),
        (lambda: reference.select_row(bf16([1]), key=1 << 64, position=0, round=0), "64 bits"),
        (lambda: reference.select_row(bf16([1]), key=0, position=-1, round=0), "32 bits"),
    ],
)
def test_bad_inputs_refuse(call, match):
    with pytest.raises(BadInputError, match=match):
        call()


def test_a_nan_whose_payload_bf16_would_lose_refuses():
    nan = np.array([0x7F800001], np.uint32).view(np.float32)
    with pytest.raises(BadInputError, match="BF16 holds"):
        reference.conditioned(nan, bf16([0]))
