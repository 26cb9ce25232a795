"""Log ratios, effect, drift and verdict, in whole numbers."""

import math
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pp4.receipts.ratios import (
    drift_of,
    effect_of,
    log_ratio,
    paired,
    spelled,
    verdict_of,
)
from pp4.receipts.runs import MeasuredArm, Round
from tests.unit.receipts import samples

counts = st.integers(1, 2**53 - 1)
times = st.integers(1, 2**64 - 1)


def timed(tokens, elapsed, index=0, **changes):
    made = samples.measured_round("headline", index, 8, "0.7")
    fields = {**made, "tokens": tokens, "elapsed_ns": str(elapsed), **changes}
    for name in ("accepted_by_position", "draft_ns", "target_ns", "verify_ns"):
        fields[name] = tuple(fields[name])
    return Round.model_validate(fields)


def test_twice_as_many_tokens_per_second_is_the_logarithm_of_two():
    # ln 2 = 0.693147180559945...
    assert log_ratio((timed(100, 2000), timed(100, 1000))) == 693_147_181
    assert log_ratio((timed(100, 1000), timed(100, 2000))) == -693_147_181
    assert log_ratio((timed(100, 1000), timed(200, 1000))) == 693_147_181
    assert log_ratio((timed(7, 11), timed(7, 11))) == 0


@given(counts, times, counts, times)
def test_a_log_ratio_is_that_of_floating_point_and_changes_its_sign_with_the_arms(a, s, b, t):
    off, on = timed(a, s), timed(b, t)
    found = log_ratio((off, on))
    plain = math.log(b) + math.log(s) - math.log(a) - math.log(t)
    assert abs(found / 10**9 - plain) < 1e-8
    assert log_ratio((on, off)) == -found


@pytest.mark.parametrize(("tokens", "elapsed"), [(0, 5), (5, 0)])
def test_what_has_no_speed_has_no_ratio(tokens, elapsed):
    with pytest.raises(ValueError, match="no tokens or no time"):
        log_ratio((timed(5, 5), timed(tokens, elapsed)))


def arms(off, on):
    made = []
    for name, switch, rounds in (("A1", "OFF", off), ("B1", "ON", on)):
        arm = samples.measured_arm(name, switch)
        arm["rounds"], arm["snapshots"] = (), tuple(arm["snapshots"])
        made.append(MeasuredArm.model_validate(arm).model_copy(update={"rounds": tuple(rounds)}))
    return made


def test_rounds_are_paired_by_their_index_in_the_cell():
    off = [timed(1, 1, 0), timed(1, 1, 3), timed(1, 1, 4, batch=1), timed(1, 1, 5)]
    on = [timed(2, 1, 5, temperature="0.70"), timed(2, 1, 0), timed(2, 1, 3, phase="profiled")]
    pairs = paired(arms(off, on), 8, "0.7")
    assert [(a.index, b.index, a.tokens, b.tokens) for a, b in pairs] == [
        (0, 0, 1, 2),
        (5, 5, 1, 2),
    ]


def test_a_drift_through_both_holds_is_gone_from_the_effect_and_twice_in_the_drift():
    effect, drift = 7, 5
    halves = [[effect + drift] * 3, [effect - drift] * 4]
    assert effect_of(halves) == effect
    assert drift_of(halves) == 2 * drift


@pytest.mark.parametrize(
    ("billionths", "text"),
    [
        (0, "0.000000"),
        (-400, "0.000000"),
        (1500, "0.000002"),
        (2500, "0.000002"),
        (-1_234_567, "-0.001235"),
        (Fraction(1_234_500_001, 1000), "0.001235"),
        (3 * 10**9, "3.000000"),
        (86_000_000_000, "86.000000"),
    ],
)
def test_a_log_ratio_has_six_digits(billionths, text):
    assert spelled(billionths) == text


@pytest.mark.parametrize(
    ("effect", "low", "high", "drift", "verdict"),
    [
        # |drift| >= max(|effect|, noise) comes first, whatever the interval says
        ("0.03", "0.02", "0.04", "0.03", "UNDECIDED"),
        ("0.03", "0.02", "0.04", "-0.03", "UNDECIDED"),
        ("0.03", "0.02", "0.04", "0.029999", "FASTER"),
        ("0", "-0.001", "0.001", "0.01", "UNDECIDED"),
        ("0", "-0.001", "0.001", "-0.009999", "SAME"),
        # inside the noise, its edges included
        ("0", "-0.01", "0.01", "0", "SAME"),
        ("0", "-0.010001", "0.01", "0", "UNDECIDED"),
        ("0", "-0.01", "0.010001", "0", "UNDECIDED"),
        # outside
        ("0.02", "0.010001", "0.03", "0", "FASTER"),
        ("0.02", "0.01", "0.03", "0", "UNDECIDED"),
        ("-0.02", "-0.03", "-0.010001", "0", "SLOWER"),
        ("-0.02", "-0.03", "-0.01", "0", "UNDECIDED"),
    ],
)
def test_the_verdict_is_the_first_that_holds(effect, low, high, drift, verdict):
    numbers = [Decimal(text) for text in (effect, low, high, drift)]
    assert verdict_of(*numbers, Decimal("0.01")) == verdict
