"""Figures of every cell: what was put in comes out."""

import pytest

from pp4.measure.describing import describe, nearest_rank
from pp4.measure.statistics import interval
from pp4.receipts.build import build
from pp4.receipts.figures import Figures, percent
from tests.unit.measure import made
from tests.unit.receipts import samples

CELLS = [(1, "0"), (1, "0.7"), (8, "0"), (8, "0.7")]


def both(**more):
    first, second, _ = made.halves(**more)
    return [first, second]


def test_every_cell_is_there_and_one_is_primary():
    figures = describe(both(), interval)
    assert figures.halves == ("A1B1", "B2A2")
    assert [(cell.batch, cell.temperature) for cell in figures.cells] == CELLS
    assert [cell.primary for cell in figures.cells] == [False, False, False, True]


def test_speed_is_all_tokens_over_all_time():
    # 24 rounds of 40 tokens in each of two arms; OFF takes 1.25 s a round in one half
    cell = describe(both(slowed=lambda arm, _: made.BASE_NS // 4 if arm == "A2" else 0)).cells[3]
    assert (cell.on.rounds, cell.on.tokens, cell.on.tokens_per_second) == (48, 1920, "40.0")
    assert (cell.off.rounds, cell.off.elapsed_ns) == (48, 24 * 2_250_000_000)
    assert cell.off.tokens_per_second == "35.6"  # 1920 / 54
    # ln 1.25 = 0.223144 in one half, nothing in the other
    assert (cell.log_ratio, cell.drift) == ("0.111572", "-0.223144")


def test_acceptance_is_a_share_of_drafted_rows():
    cell = describe(both()).cells[3]
    # 16 of 16, 8, 8, 1 and 0 rows
    assert cell.on.accepted == ("1.0000", "0.5000", "0.5000", "0.0625", "0.0000")
    assert cell.on.accepted_length == "2.0625"
    assert cell.on.drafted == 48 * 16


def test_percentiles_are_values_that_were_measured():
    cell = describe(both()).cells[0]
    # two halves, one round each, 600 and 700 ns
    draft = cell.off.draft
    assert (draft.count, draft.p50_ns, draft.p90_ns, draft.p99_ns, draft.max_ns) == (
        4, 600, 700, 700, 700,
    )  # fmt: skip
    hundred = list(range(1, 101))
    assert [nearest_rank(hundred, p) for p in (1, 50, 90, 99, 100)] == [1, 50, 90, 99, 100]
    assert [nearest_rank([5], p) for p in (1, 50, 99)] == [5, 5, 5]


def test_intervals_are_those_of_the_summary_where_there_are_rounds_enough():
    figures = describe(both(), interval)
    assert [cell.interval is None for cell in figures.cells] == [True, True, True, False]
    assert figures.cells[3].interval.low == figures.cells[3].interval.high == "0.000000"
    assert all(cell.interval is None for cell in describe(both()).cells)


def test_one_half_has_figures_and_no_drift():
    first = made.halves()[0]
    cell = describe([first], interval).cells[3]
    assert (cell.on.rounds, cell.drift) == (24, None)
    assert cell.log_ratio == "0.000000"
    assert cell.interval is not None
    assert [series.half for series in cell.series] == ["A1B1"]
    assert len(cell.series[0].rounds) == 24


def test_a_half_that_was_cut_is_described_as_far_as_it_came():
    def cut(body):
        body["complete"] = False
        body["arms"][1].update(verdict="partial", rounds=body["arms"][1]["rounds"][:3])
        body["arms"][1]["snapshots"] = body["arms"][1]["snapshots"][:1]

    body = made.half("A1B1")
    cut(body)
    cells = describe([made.model(build(samples.ended(body)))], interval).cells
    assert cells[0].on is None
    assert cells[0].log_ratio is None
    assert cells[0].off.rounds == 1
    assert (cells[3].on.rounds, cells[3].off.rounds) == (3, 24)
    assert len(cells[3].series[0].rounds) == 3
    body["arms"].pop()
    body["arms"][0]["verdict"] = "partial"
    cells = describe([made.model(build(samples.ended(body)))], interval).cells
    assert all(cell.on is None and cell.log_ratio is None for cell in cells)


def test_series_have_the_index_of_the_round():
    cell = describe(both(slowed=lambda arm, n: n * 10**6 if arm == "A1" else 0)).cells[3]
    first, second = cell.series
    assert [one.index for one in first.rounds] == [*range(23), 26]
    # ln(1 + n / 1000)
    assert [one.log_ratio for one in first.rounds[:3]] == ["0.000000", "0.001000", "0.001998"]
    assert {one.log_ratio for one in second.rounds} == {"0.000000"}


def test_nothing_drafted_has_no_acceptance():
    def idle(body):
        for arm in body["arms"]:
            for one in arm["rounds"]:
                one.update(drafted=0, accepted_by_position=[0] * 5)

    cell = describe(both(change=idle, change_first=idle)).cells[3]
    assert (cell.on.accepted, cell.on.accepted_length) == (None, None)


def test_figures_are_plain_json():
    figures = describe(both(), interval)
    assert Figures.model_validate_json(figures.model_dump_json()) == figures


@pytest.mark.parametrize(("log_ratio", "more"), [("0", 0.0), ("0.693147", 100.0), ("-0.1", -9.516)])
def test_a_log_ratio_in_percent(log_ratio, more):
    assert percent(log_ratio) == pytest.approx(more, abs=1e-3)
