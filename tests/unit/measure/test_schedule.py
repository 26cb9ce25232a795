"""Rounds of a schedule: as many as it says, evenly interleaved, the same every time."""

from collections import Counter
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pp4.config.holds import Model
from pp4.errors import Code, RefusedError
from pp4.measure import schedule as plans
from pp4.measure.schedule import REHEARSED, STANDARD, Cell, cells, from_model, rounds
from pp4.receipts import canonical
from pp4.receipts.canonical import dump
from pp4.wire.frames import MAX_FRAME
from pp4.wire.measuring import Schedule
from tests.unit.receipts import samples

COUNTS = st.integers(1, 30)
BATCHES = st.lists(st.integers(1, 32), min_size=1, max_size=4, unique=True).map(tuple)
TEMPERATURES = st.lists(
    st.sampled_from(["0", "0.3", "0.7", "1", "2"]), min_size=1, max_size=4, unique=True
).map(tuple)
SCHEDULES = st.builds(
    Schedule,
    batches=BATCHES,
    temperatures=TEMPERATURES,
    depth=st.just(5),
    new_tokens=COUNTS,
    seed=COUNTS,
    warm_up=COUNTS,
    greedy=COUNTS,
    headline=COUNTS,
    primary=COUNTS,
    profiled=COUNTS,
)
PHASES = st.sampled_from(["warm-up", "greedy", "headline", "profiled"])
PRIMARY = Cell(8, "0.7")


def expected_count(schedule, phase, cell):
    if phase == "headline" and (cell.batch, cell.temperature) == (8, "0.7"):
        return schedule.primary
    return getattr(schedule, phase.replace("-", "_"))


@given(SCHEDULES, PHASES)
def test_every_cell_has_its_number_of_rounds_and_indices_count_over_all(schedule, phase):
    found = rounds(schedule, phase)
    assert [one.index for one in found] == list(range(len(found)))
    assert {one.phase for one in found} == {phase}
    temperatures = ("0",) if phase == "greedy" else schedule.temperatures
    counted = Counter(one.cell for one in found)
    wanted = {Cell(batch, t) for batch in schedule.batches for t in temperatures}
    assert counted == {cell: expected_count(schedule, phase, cell) for cell in wanted}


@given(st.lists(st.integers(0, 40), min_size=1, max_size=9).filter(any))
def test_every_beginning_of_the_order_has_its_share_of_each_kind(sizes):
    order = plans.interleaved(sizes)
    total, kinds = len(order), sum(size > 0 for size in sizes)
    assert Counter(order) == {kind: size for kind, size in enumerate(sizes) if size}
    seen = Counter()
    for place, kind in enumerate(order, 1):
        seen[kind] += 1
        for one, size in enumerate(sizes):
            off = abs(seen[one] - Fraction(place * size, total))
            assert off <= Fraction(1, 2) + Fraction(kinds * size, 2 * total)


@given(SCHEDULES, PHASES)
def test_equal_schedules_have_equal_rounds(schedule, phase):
    again = Schedule.model_validate_json(schedule.model_dump_json())
    assert rounds(again, phase) == rounds(schedule, phase)


def test_the_primary_cell_is_spread_over_the_whole_phase():
    """In each tenth of the phase about a tenth of its rounds: a drift touches it like the rest."""
    found = rounds(STANDARD, "headline")
    places = [place for place, one in enumerate(found) if one.cell == PRIMARY]
    assert len(places) == STANDARD.primary
    share = STANDARD.primary / len(found)
    gaps = [after - before for before, after in pairwise(places)]
    assert places[0] < 2 / share
    assert places[-1] > len(found) - 1 - 2 / share
    # the eight other cells have equal numbers, and come together
    assert max(gaps) <= 1 / share + len(cells(STANDARD))


def test_the_order_of_a_small_phase_by_hand():
    small = STANDARD.model_copy(
        update={"batches": (1, 8), "temperatures": ("0.7",), "headline": 1, "primary": 3}
    )
    assert [one.cell.batch for one in rounds(small, "headline")] == [8, 1, 8, 8]


def test_settings_say_every_number_and_shapes_all_but_the_seed():
    told = plans.settings(STANDARD)
    assert set(told) == set(Schedule.model_fields)
    assert told["batches"] == (1, 8, 32)
    assert told["temperatures"] == ("0", "0.7", "1")
    assert (told["depth"], told["headline"], told["primary"]) == (5, 24, 128)
    assert set(told) - set(plans.shapes(STANDARD)) == {"seed"}


def test_a_rehearsal_has_the_primary_cell_and_greedy_rounds():
    assert PRIMARY in cells(REHEARSED)
    assert any(cell.temperature == "0" for cell in cells(REHEARSED))


MODEL = Model(
    drafter=None,
    target=None,
    prompts=None,
    depth=5,
    batch_sizes=(8, 4),
    temperatures=(Decimal("0.7"), Decimal(2), Decimal("0.25")),
)


def test_batch_sizes_and_temperatures_come_from_the_hold_file():
    found = from_model(MODEL)
    assert (found.batches, found.temperatures) == ((8, 4), ("0.7", "2", "0.25"))
    assert found.primary == STANDARD.primary
    assert from_model(None) == STANDARD


@pytest.mark.parametrize(
    ("change", "key", "said"),
    [
        ({"depth": 4}, "depth", "4"),
        ({"batch_sizes": (1, 32)}, "batch_sizes", "1, 32"),
        ({"temperatures": (Decimal(0), Decimal(1))}, "temperatures", "0, 1"),
        (
            {"batch_sizes": tuple(range(1, 33)), "temperatures": (Decimal("0.7"),)},
            "batch_sizes and temperatures",
            "32 cells",
        ),
    ],
)
def test_what_cannot_be_compared_is_refused_with_its_key(change, key, said):
    with pytest.raises(RefusedError) as caught:
        from_model(replace(MODEL, **change))
    refusal = caught.value.refusal
    assert refusal.code is Code.BAD_HOLD_FILE
    assert refusal.where.endswith(key)
    assert said in refusal.found


def longest_round(one, steps):
    """A round that decodes a token a step, as no drafter of any use does, on two busy GPUs."""
    parts = [99_999_999] * steps
    profiled = parts if one.phase == "profiled" else []
    gpu = {"sm_mhz": 1980, "memory_mhz": 2619, "power_mw": 700_000, "temperature_c": 60}
    gpu["slowed_by"] = ["sw_power_cap", "sw_thermal_slowdown"]
    sources = ("torch.allocated", "torch.reserved", "rss.engine", "rss.worker", "rss.rank0")
    return {
        **samples.measured_round(one.phase, 100, one.cell.batch, one.cell.temperature),
        "draft_ns": parts,
        "target_ns": profiled,
        "verify_ns": profiled,
        "memory_bytes": dict.fromkeys((*sources, "rss.rank1", "nvml.gpu.0", "nvml.gpu.1"), 10**11),
        "facts": {f"gpu.{rank}.{name}": fact for rank in (0, 1) for name, fact in gpu.items()},
    }


def count_of(tree):
    below = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    return 1 + sum(map(count_of, below))


def test_the_longest_half_fits_a_receipt_and_as_evidence_into_one_frame():
    longest = from_model(
        replace(MODEL, batch_sizes=tuple(range(1, 32)), temperatures=(Decimal("0.7"),))
    )
    planned = [one for phase in plans.TIMED for one in rounds(longest, phase)]
    assert len(planned) == 972
    kinds = {one.phase: longest_round(one, longest.new_tokens) for one in planned}
    many = Counter(one.phase for one in planned)
    values = 2 * sum(many[phase] * count_of(one) for phase, one in kinds.items())
    size = 2 * sum(many[phase] * (len(dump(one)) + 1) for phase, one in kinds.items())
    # what else there is: the source, both journals, snapshots, the other receipts of the evidence
    assert values + 20_000 <= canonical.VALUES
    assert (size + 500_000) * 4 // 3 + 500_000 <= MAX_FRAME
