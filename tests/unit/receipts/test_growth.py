"""What counts as growth: of failed rounds, of memory in total, of memory by its slope."""

import itertools
import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pp4.receipts.growth import (
    GROWTH_FLOOR,
    PARTS,
    allowance,
    arm_verdict,
    envelope,
    heavier,
    more_failures,
    slopes,
    sloping,
)
from pp4.receipts.runs import Round, Snapshot
from tests.unit.receipts import samples

MIB = 2**20
BASE = 10**9
SAME = GROWTH_FLOOR // 512
"""Bytes between two parts of a source of this size that count as none."""
LEAST = 4 * PARTS - 3
"""Rounds of the shortest arm that has eight parts."""

counts = st.integers(LEAST, 400)
bases = st.integers(0, 200 * 10**9)


def quarter(count):
    return -(-count // 4)


def noise(data, count, height):
    """So many numbers of a short list again and again: it costs less to draw."""
    drawn = data.draw(st.lists(st.integers(0, height), min_size=1, max_size=23))
    return list(itertools.islice(itertools.cycle(drawn), count))


@settings(max_examples=100)
@given(st.data(), counts, bases)
def test_a_slow_leak_slopes_long_before_its_allowance_is_used_up(data, count, base):
    part = quarter(count) // PARTS
    same = allowance(base) // 512
    jitter = data.draw(st.integers(0, same))
    least = -(-(same + jitter + 1) // part)
    rate = data.draw(st.integers(least, least + 1000))
    sizes = [base + rate * i + n for i, n in enumerate(noise(data, count, jitter))]
    assert slopes(sizes, base)


def test_a_leak_of_a_page_a_round_is_found_below_its_allowance():
    sizes = [BASE + 4096 * i for i in range(300)]
    assert sizes[-1] - BASE < GROWTH_FLOOR // 10
    assert slopes(sizes, BASE)


@settings(max_examples=100)
@given(st.data(), counts, bases)
def test_a_plateau_does_not_slope_whatever_stands_up_from_it(data, count, base):
    same = allowance(base) // 512
    sizes = [base + n for n in noise(data, count, same)]
    assert not slopes(sizes, base)
    assert not slopes(sorted(sizes), base)


@settings(max_examples=100)
@given(st.data(), counts, st.integers(0, 10**11))
def test_one_late_allocation_that_stays_does_not_slope_nor_do_two(data, count, height):
    steps = data.draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=2))
    wobble = noise(data, count, SAME)
    sizes = [BASE + n + sum(height for at in steps if i >= at) for i, n in enumerate(wobble)]
    assert not slopes(sizes, BASE)


def test_three_allocations_in_a_quarter_slope():
    sizes = [BASE + MIB * (i // 8) for i in range(128)]
    assert slopes(sizes, BASE)


@settings(max_examples=200)
@given(st.data(), counts, st.integers(0, BASE))
def test_an_allocator_that_frees_now_and_then_does_not_slope(data, count, foot):
    longest = quarter(count) // PARTS * 4
    tooth = st.tuples(st.integers(1, longest), st.integers(1, 10 * MIB))
    teeth = data.draw(st.lists(tooth, min_size=1, max_size=8))
    sizes: list[int] = []
    for length, rate in itertools.cycle(teeth):
        sizes += [foot + rate * i for i in range(length)]
        if len(sizes) >= count + longest:
            break
    phase = data.draw(st.integers(0, longest))
    assert not slopes(sizes[phase : phase + count], foot)


@pytest.mark.parametrize("count", [29, 40, 100, 164, 356])
def test_equal_teeth_do_not_slope_up_to_seven_eighths_of_the_quarter(count):
    part = -(-quarter(count) // PARTS)
    for tooth in range(1, quarter(count) - part + 1):
        for phase in range(tooth):
            sizes = [BASE + (i + phase) % tooth * MIB for i in range(count)]
            assert not slopes(sizes, BASE), (tooth, phase)
    # beyond that no look at a quarter can tell
    assert slopes([BASE + i % quarter(count) * MIB for i in range(4 * quarter(count))], BASE)


def test_a_leak_below_a_sawtooth_slopes():
    sizes = [BASE + 8192 * i + i % 7 * 10 * MIB for i in range(320)]
    assert slopes(sizes, BASE)


def test_only_the_last_quarter_counts():
    early = [BASE + MIB * i for i in range(240)]
    assert not slopes([*early, *[early[-1]] * 80], BASE)
    assert slopes([*[BASE] * 240, *(BASE + MIB * i for i in range(80))], BASE)


@settings(max_examples=100)
@given(st.lists(st.integers(0, 2**63), min_size=LEAST, max_size=200))
def test_the_envelope_is_below_the_last_quarter_and_touches_every_part(sizes):
    last = sizes[-quarter(len(sizes)) :]
    lows = envelope(sizes)
    assert len(lows) == PARTS
    assert min(lows) == min(last)
    assert set(lows) <= set(last)
    edges = [part * len(last) // PARTS for part in range(PARTS + 1)]
    assert [min(last[a:b]) for a, b in pairwise(edges)] == lows


def test_too_few_rounds_have_no_slope():
    steep = [BASE + MIB * i for i in range(LEAST)]
    assert slopes(steep, BASE)
    assert not slopes(steep[1:], BASE)
    assert envelope(steep[1:]) == []


def look(label="final", failed=None, **sizes):
    made = samples.snapshot(label)
    made["failed_rounds"] = failed or {}
    made["memory_bytes"] = {name: str(size) for name, size in (sizes or {"gpu": BASE}).items()}
    return Snapshot.model_validate(made)


def ended(index, **sizes):
    made = samples.measured_round("headline", index, 1, "0")
    made["memory_bytes"] = {name: str(size) for name, size in sizes.items()}
    return Round.model_validate_json(json.dumps(made))


def test_each_cause_of_failed_rounds_is_told_by_name():
    before = look(failed={"lost": "1", "timed_out": "2"})
    assert more_failures(before, look(failed={"lost": "1", "timed_out": "2"})) == ()
    after = look(failed={"lost": "2", "timed_out": "2", "refused": "1"})
    assert more_failures(before, after) == ("lost", "refused")


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        ({"a": 10**9}, {"a": 10**9 + 16 * MIB}, ()),
        ({"a": 10**9}, {"a": 10**9 + 16 * MIB + 1}, ("a",)),
        ({"a": 10**11}, {"a": 10**11 + 10**9}, ()),
        ({"a": 10**11}, {"a": 10**11 + 10**9 + 1}, ("a",)),
        ({"a": 10**9, "b": 5}, {"a": 0}, ("b",)),
        ({"a": 10**9}, {"a": 10**9, "b": 5}, ("b",)),
    ],
)
def test_memory_in_total_is_told_by_source(before, after, named):
    assert heavier(look("baseline", **before), look(**after)) == named


def test_a_source_that_some_rounds_lack_or_gain_is_told_by_name():
    baseline = look("baseline", a=BASE, b=BASE)
    assert sloping(baseline, [ended(i, a=BASE, b=BASE) for i in range(3)]) == ()
    assert sloping(baseline, [ended(0, a=BASE, b=BASE), ended(1, a=BASE)]) == ("b",)
    assert sloping(baseline, [ended(0, a=BASE, b=BASE, c=1)]) == ("c",)


def test_the_source_that_slopes_is_told_by_name():
    baseline = look("baseline", a=BASE, b=BASE)
    rounds = [ended(i, a=BASE, b=BASE + 8192 * i) for i in range(200)]
    assert sloping(baseline, rounds) == ("b",)
    assert arm_verdict([baseline, look(a=BASE, b=BASE)], rounds) == "memory_grew"
    assert arm_verdict([baseline, look(a=BASE, b=BASE)], ()) == "complete"


def test_failed_rounds_come_before_memory():
    baseline = look("baseline", a=BASE)
    assert arm_verdict([baseline], ()) == "complete"
    assert arm_verdict([baseline, look(a=2 * BASE)], ()) == "memory_grew"
    worse = look(failed={"lost": "1"}, a=2 * BASE)
    assert arm_verdict([baseline, worse], ()) == "failed_rounds_grew"
    # a later snapshot without the growth does not undo it
    assert arm_verdict([baseline, worse, look(a=BASE)], ()) == "failed_rounds_grew"
