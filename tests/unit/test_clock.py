"""Clocks, deadlines, spans."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pp4.clock import Deadline, ManualClock, SystemClock, parse_span
from pp4.errors import Code, TimedOutError, UsageError


def test_the_system_clocks_move_forward_and_the_wall_has_a_zone():
    clock = SystemClock()
    before = clock.monotonic_ns(), clock.boottime_ns()
    assert clock.monotonic_ns() >= before[0]
    assert clock.boottime_ns() >= before[1]
    assert clock.wall().utcoffset() == timedelta(0)


def test_awake_time_moves_all_three():
    clock = ManualClock(datetime(2026, 5, 1, tzinfo=UTC))
    clock.advance(1.5)
    assert (clock.monotonic_ns(), clock.boottime_ns()) == (1_500_000_000, 1_500_000_000)
    assert clock.wall() == datetime(2026, 5, 1, 0, 0, 1, 500_000, tzinfo=UTC)


def test_sleep_leaves_monotonic_time_alone():
    clock = ManualClock()
    clock.suspend(60)
    assert clock.monotonic_ns() == 0
    assert clock.boottime_ns() == 60_000_000_000
    assert clock.wall() == datetime(2026, 1, 1, 0, 1, tzinfo=UTC)


@pytest.mark.parametrize("seconds", [-1, -1e-9, float("nan")])
def test_time_does_not_run_backwards(seconds):
    clock = ManualClock()
    with pytest.raises(ValueError, match="forward"):
        clock.advance(seconds)
    with pytest.raises(ValueError, match="forward"):
        clock.suspend(seconds)
    assert clock.boottime_ns() == 0


def test_a_deadline_counts_sleep():
    clock = ManualClock()
    deadline = Deadline.after(clock, 90)
    clock.advance(30)
    assert (deadline.remaining_s(), deadline.expired()) == (60.0, False)
    clock.suspend(60)
    assert (deadline.remaining_s(), deadline.expired()) == (0.0, True)
    clock.advance(1)
    assert deadline.remaining_ns() == 0
    assert deadline.elapsed_ns() == 91_000_000_000


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf")])
def test_a_deadline_is_a_finite_span_ahead(seconds):
    with pytest.raises(ValueError, match="finite"):
        Deadline.after(ManualClock(), seconds)


def test_require_says_who_waited_for_how_long():
    clock = ManualClock()
    deadline = Deadline.after(clock, 2)
    deadline.require("gate-5/late")
    clock.advance(2.5)
    with pytest.raises(TimedOutError) as caught:
        deadline.require("gate-5/late", left="rank 1")
    refusal = caught.value.refusal
    assert (refusal.code, refusal.where, refusal.left) == (
        Code.STEP_TIMEOUT,
        "gate-5/late",
        "rank 1",
    )
    assert (refusal.expected, refusal.found) == ("an end within 2 s", "none after 2.5 s")


@given(outer=st.integers(0, 1000), inner=st.integers(0, 1000), passed=st.integers(0, 1500))
def test_a_nested_deadline_never_outlives_its_parent(outer, inner, passed):
    clock = ManualClock()
    parent = Deadline.after(clock, outer)
    clock.advance(passed)
    child = parent.within(inner)
    assert child.remaining_s() == min(inner, max(0, outer - passed))


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("45", timedelta(seconds=45)),
        ("45s", timedelta(seconds=45)),
        ("30m", timedelta(minutes=30)),
        ("12h", timedelta(hours=12)),
        ("90d", timedelta(days=90)),
        ("4w", timedelta(weeks=4)),
        ("0", timedelta(0)),
    ],
)
def test_spans(text, span):
    assert parse_span(text, "--max-age") == span


@pytest.mark.parametrize("text", ["", "d", "-1d", "1.5h", "1 d", "1y", "٣d", "1d\n", "9" * 40])
def test_what_is_no_span_is_a_usage_error(text):
    with pytest.raises(UsageError) as caught:
        parse_span(text, "--max-age")
    assert caught.value.refusal.where == "--max-age"
    assert caught.value.refusal.found == repr(text)


@pytest.mark.parametrize("text", ["999999999w", "142857143w"])
def test_a_span_beyond_all_dates_is_a_usage_error(text):
    with pytest.raises(UsageError) as caught:
        parse_span(text, "--max-age")
    refusal = caught.value.refusal
    assert (refusal.code, refusal.where, refusal.found) == (Code.USAGE, "--max-age", repr(text))
