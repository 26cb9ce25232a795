"""The definition of tickets against vectors, its formulas in fractions, and a true softmax."""

import hashlib
import json
import math
import struct
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pp4.errors import BadInputError
from pp4.kernels import dyadic24
from pp4.kernels.dyadic24 import TICKETS, allocate, draw

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "dyadic24.json").read_text("utf-8"))

near = st.floats(-40, 40, width=32)
anything = st.floats(width=32, allow_nan=False, allow_infinity=False)
falling = st.lists(near | anything, min_size=1, max_size=32).map(lambda v: sorted(v, reverse=True))
close = st.lists(near, min_size=1, max_size=32).map(lambda v: sorted(v, reverse=True))


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: str(vector["values"][:3]))
def test_the_vectors(vector):
    tickets = allocate(vector["values"])
    assert list(tickets) == vector["tickets"]
    packed = struct.pack(f"<{len(tickets)}i", *tickets)
    assert hashlib.sha256(packed).hexdigest() == vector["sha256"]
    assert remainder(vector["values"]) == vector["rest"]


def test_the_vectors_in_the_module_are_those_of_the_file():
    known = [(tuple(vector["values"]), vector["sha256"][:16]) for vector in VECTORS]
    assert list(dyadic24.VECTORS) == known


def test_the_definition_is_pinned():
    digest = "b7172dafa2b8815487f2cc699c19896ea71e2432d41ab4c0069c84cdbf23bed3"
    assert dyadic24.definition_digest() == digest


def weights(values):
    """Weights by the formulas in exact fractions, floor by floor."""
    result = []
    for value in values:
        gap = np.float32(values[0]) - np.float32(value)
        d = math.floor(min(Fraction(float(gap)) if gap < 32 else 32, 32) * 2**16)
        y = math.floor(Fraction(d * 2212974292, 2**16))
        k, f = divmod(y, 2**30)
        total = 234782
        for c in (-2739202, 20572593, -119165869, 515877823, -1488521945, 2147483645):
            total = math.floor(Fraction(total * f, 2**30)) + c
        result.append(2**38 if d == 0 else math.floor(Fraction(total * 2**7, 2 ** min(k, 62))))
    return result


def floors(values):
    w = weights(values)
    return [math.floor(Fraction(x * TICKETS, sum(w))) for x in w]


def remainder(values):
    return TICKETS - sum(floors(values))


@given(falling)
def test_it_equals_its_formulas_in_fractions(values):
    with np.errstate(over="ignore"):
        t = floors(values)
    expected = [t[0] + TICKETS - sum(t), *t[1:]]
    assert list(allocate(values)) == expected
    assert 0 <= TICKETS - sum(t) <= 31


@given(falling)
def test_tickets_sum_to_all_and_fall_with_the_values(values):
    tickets = allocate(values)
    assert len(tickets) == len(values)
    assert sum(tickets) == TICKETS
    assert min(tickets) >= 0
    assert all(left >= right for left, right in pairwise(tickets))


@given(close)
def test_equal_values_get_equal_tickets_but_for_the_first(values):
    tickets = allocate(values)
    for place in range(1, len(values) - 1):
        if values[place] == values[place + 1]:
            assert tickets[place] == tickets[place + 1]


def distance_to_softmax(values):
    """Total variation between the tickets and exp(v / 0.7), to 50 digits."""
    with localcontext() as context:
        context.prec = 50
        parts = [((Decimal(v) - Decimal(values[0])) / Decimal("0.7")).exp() for v in values]
        total = sum(parts)
        ideal = [part / total for part in parts]
        given = [Decimal(t) / TICKETS for t in allocate(values)]
        return sum(abs(a - b) for a, b in zip(ideal, given, strict=True)) / 2


@given(st.lists(st.integers(-(2**21), 2**21), min_size=1, max_size=32))
def test_it_is_close_to_the_softmax_at_seven_tenths(steps):
    # differences that 16 fraction bits hold, as those of BF16 logits above 2**-9 do
    values = sorted((step * 2.0**-16 for step in steps), reverse=True)
    assert distance_to_softmax(values) < Decimal("2e-6")


@given(falling)
def test_the_softmax_is_never_further_than_the_cut_off_bits(values):
    # a difference loses less than 2**-16, which moves at most a quarter of that over 0.7
    assert distance_to_softmax(values) < Decimal(2) ** -18 / Decimal("0.7") + Decimal("2e-6")


@given(close)
def test_q_is_exact_in_fp32_and_sums_to_one_in_any_order(values):
    q = np.array([t / TICKETS for t in allocate(values)], np.float32)
    assert [int(x) for x in q.astype(np.float64) * TICKETS] == list(allocate(values))
    total = np.float32(0)
    for part in q[::-1]:
        total = np.float32(total + part)
    assert total == 1.0


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([], "0 values"),
        ([0.0] * 33, "33 values"),
        ([1.0, 2.0], "2.0 after 1.0"),
        ([float("nan")], "nan"),
        ([float("inf"), 0.0], "inf"),
        ([0.0, float("-inf")], "-inf"),
        ([0.1], "0.1"),
        ([1e39], "1e\\+39"),
    ],
)
def test_bad_values_refuse(values, found):
    with pytest.raises(BadInputError, match=found):
        allocate(values)


def test_draw_walks_every_border():
    tickets = (3, 0, TICKETS - 5, 2)
    at = {0: 0, 2: 0, 3: 2, TICKETS - 3: 2, TICKETS - 2: 3, TICKETS - 1: 3}
    assert {ticket: draw(tickets, ticket) for ticket in at} == at


@pytest.mark.parametrize("ticket", [-1, TICKETS])
def test_a_ticket_that_does_not_exist_refuses(ticket):
    with pytest.raises(BadInputError, match="one of them"):
        draw((TICKETS,), ticket)


def test_tickets_that_are_not_all_refuse():
    with pytest.raises(BadInputError, match=r"2\*\*24"):
        draw((TICKETS - 1,), 0)
