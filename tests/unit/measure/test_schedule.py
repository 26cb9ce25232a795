"""Rounds of a schedule: as many as it says, evenly interleaved, the same every time."""

import base64
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
from pp4.receipts.canonical import dump, parse
from pp4.receipts.runs import Round
from pp4.wire import MAX_FRAME
from pp4.wire.measuring import Schedule

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
            {
                "batch_sizes": (1, 2, 4, 8),
                "temperatures": (Decimal(0), Decimal("0.7"), Decimal(1)),
            },
            "batch_sizes and temperatures",
            "12 cells",
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


def round_on_gpus(one):
    """A round as large as it can be: no draft was of any use, and both GPUs are slowed."""
    parts = ["9999999999"] * STANDARD.new_tokens
    facts = ("sm_mhz", "memory_mhz", "power_mw", "temperature_c")
    slowed = {f"gpu.{rank}.slowed_by": ["power", "thermal", "other"] for rank in (0, 1)}
    memory = [
        *(f"torch.{name}" for name in ("allocated", "reserved")),
        *(f"rss.{name}" for name in ("engine", "worker", "rank0", "rank1")),
        *(f"nvml.gpu.{rank}" for rank in (0, 1)),
    ]
    whole = dict.fromkeys(Round.model_fields, "9" * 12)
    return {
        **whole,
        "accepted_by_position": [0] * 5,
        "draft_ns": parts,
        "target_ns": parts if one.phase == "profiled" else [],
        "verify_ns": parts if one.phase == "profiled" else [],
        "memory_bytes": dict.fromkeys(memory, "9" * 12),
        "facts": {f"gpu.{rank}.{name}": 9999 for rank in (0, 1) for name in facts} | slowed,
    }


def test_both_arms_of_the_largest_half_fit_into_a_receipt_and_into_a_frame():
    largest = replace(MODEL, batch_sizes=(1, 2, 4, 8, 32), temperatures=MODEL.temperatures[:2])
    schedule = from_model(largest)
    assert plans.most_values(schedule) > plans.most_values(STANDARD)
    arm = [
        round_on_gpus(one) for phase in ("headline", "profiled") for one in rounds(schedule, phase)
    ]
    raw = dump({"arms": [arm, arm], "rest": [0] * 38_000})
    parse(raw, "a half")
    # as evidence of the second half it travels in base64
    assert len(base64.b64encode(raw)) < MAX_FRAME * 3 // 4
