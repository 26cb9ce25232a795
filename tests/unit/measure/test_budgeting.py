"""From samples to the projected window: each part as often as a half has it, and the margin."""

import json
import math
from datetime import UTC, datetime
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pp4.errors import Code, RefusedError
from pp4.measure import budgeting
from pp4.measure.schedule import REHEARSED, STANDARD, cells, rounds, shapes
from pp4.receipts.build import build
from pp4.wire.measuring import Sampled
from tests.unit.receipts import samples as receipts

SECOND = 10**9


def sampled(schedule=STANDARD, worst_ns=SECOND, **others):
    """One sample of each part, most of them alike."""
    given = {name: others.get(name, worst_ns) for name in budgeting.times(schedule)}
    return [Sampled(name=name, worst_ns=worst, samples=3) for name, worst in given.items()]


def test_a_small_half_by_hand():
    """Two arms; B 1 and 8, T 0 and 0.7; one round of each cell but two of the primary one."""
    found = budgeting.project(sampled(REHEARSED, closing=100), REHEARSED, 10**15)
    times = {part["name"]: part["times"] for part in found.parts}
    assert times == {
        "staging": 1,
        "qualification": 1,
        "engine-start": 2,
        "worker-start": 2,
        "warm-up": 2,
        "greedy": 2,
        "arm-rest": 2,
        "headline.b1.t0": 2,
        "headline.b1.t0.7": 2,
        "headline.b8.t0": 2,
        "headline.b8.t0.7": 4,
        "profiled.b1.t0": 2,
        "profiled.b1.t0.7": 2,
        "profiled.b8.t0": 2,
        "profiled.b8.t0.7": 2,
        "closing": 1,
    }
    margins = {part["name"]: part["margin_percent"] for part in found.parts}
    assert margins.pop("closing") == 0
    assert set(margins.values()) == {25}
    # 30 seconds of parts, a quarter on top, and the limits of the end as they are
    assert sum(times.values()) - 1 == 30
    assert found.projected_ns == 30 * SECOND * 125 // 100 + 100


def test_rounds_of_a_half_are_all_in_its_parts():
    times = budgeting.times(STANDARD)
    for phase in ("headline", "profiled"):
        of_phase = sum(many for name, many in times.items() if name.startswith(f"{phase}."))
        assert of_phase == 2 * len(rounds(STANDARD, phase))


@settings(max_examples=20)
@given(st.integers(1, 10**15), st.integers(1, 10**12))
def test_parts_are_rounded_up_as_the_receipt_is_held_to(worst_ns, bound_ns):
    projection = budgeting.project(sampled(REHEARSED, worst_ns), REHEARSED, bound_ns)
    shapes = {"shapes": plain(REHEARSED)}
    receipt = json.loads(build({**receipts.budget(), **projection.members(), **shapes}))
    exact = Fraction(worst_ns * 125, 100)
    assert int(receipt["parts"][0]["projected_ns"]) == math.ceil(exact)


def plain(schedule):
    """Shapes as JSON has them."""
    return json.loads(json.dumps(shapes(schedule)))


@pytest.mark.parametrize(("spare", "verdict"), [(0, "fits"), (1, "fits"), (-1, "over")])
def test_a_half_fits_up_to_the_bound_itself(spare, verdict):
    total = budgeting.project(sampled(), STANDARD, 1).projected_ns
    assert budgeting.project(sampled(), STANDARD, total + spare).verdict == verdict


def refused(samples):
    with pytest.raises(RefusedError) as caught:
        budgeting.project(samples, STANDARD, SECOND)
    assert caught.value.refusal.code is Code.NOT_PROVEN
    return caught.value.refusal.found


def test_nothing_is_projected_from_parts_that_nobody_has_measured():
    """A window must not be opened because a part of it counted as nothing."""
    for name in budgeting.times(STANDARD):
        some = [one for one in sampled() if one.name != name]
        assert refused(some).endswith(f"none of {name}")
        twice = [*sampled(), Sampled(name=name, worst_ns=1, samples=1)]
        assert refused(twice).endswith(f"a second one of {name}")
    other = Sampled(name="headline.b9.t0", worst_ns=1, samples=1)
    assert refused([*sampled(), other]) == "one of headline.b9.t0"


def test_a_sampled_arm_has_every_cell_as_often_as_asked():
    few = budgeting.sampled_schedule(STANDARD, 3)
    for phase in ("headline", "profiled"):
        assert len(rounds(few, phase)) == 3 * len(cells(STANDARD))
    assert rounds(few, "warm-up") == rounds(STANDARD, "warm-up")


def test_the_end_of_a_window_is_taken_by_its_limits():
    assert budgeting.closing([60.0, 0.5], 60.0).worst_ns == 120_500_000_000
    assert budgeting.closing([], 0.0).worst_ns == 1


def test_a_budget_lasts_a_week():
    now = datetime(2026, 2, 26, 12, 30, 5, 999_999, UTC)
    assert budgeting.expires_at(now) == "2026-03-05T12:30:05Z"
