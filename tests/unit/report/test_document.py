"""What a report says in numbers: computed here once more, from the stored rounds."""

import json
from decimal import Decimal

import pytest

from pp4.console.reports import told
from pp4.measure.describing import describe
from pp4.receipts.digests import tree_digest
from pp4.receipts.models import read_model
from pp4.report.arms import arm_figures
from pp4.report.document import document
from pp4.report.given import read
from pp4.report.latency import distributions
from pp4.report.page import page
from tests.unit.report.documents import of_bytes, of_files
from tests.unit.report.measured import ACCEPTED, MIB, SOURCES, changed, made


@pytest.fixture(scope="module")
def halves():
    return [read_model(made().files[name], name) for name in ("A1B1", "B2A2")]


def test_halves_qualifications_and_budget_find_each_other(whole):
    (comparison,) = whole.comparisons
    assert [half.half.receipt.half for half in comparison.halves] == ["A1B1", "B2A2"]
    assert [half.title for half in comparison.halves] == [
        "First HOLD: A1 OFF, B1 ON",
        "Second HOLD: B2 ON, A2 OFF",
    ]
    assert [one.receipt.kind for one in whole.gates] == ["qualification"] * 2 + ["solo"]
    assert [one.receipt.verdict for one in whole.budgets] == ["fits"]
    assert [one.given.receipt.kind for one in whole.plain] == ["whole_worker"]


def test_the_order_of_the_files_changes_nothing(chain, whole):
    turned = of_files(list(reversed(chain.values())))
    assert [half.title for half in turned.comparisons[0].halves] == [
        half.title for half in whole.comparisons[0].halves
    ]
    assert turned.comparisons[0].verdict == whole.comparisons[0].verdict


def test_acceptance_is_over_all_batch_sizes_and_both_halves(whole, halves):
    for row in whole.comparisons[0].acceptance:
        for switch in ("OFF", "ON"):
            rounds = [
                one
                for half in halves
                for arm in half.arms
                for one in arm.rounds
                if arm.switch == switch
                and one.phase == "headline"
                and Decimal(one.temperature) == Decimal(row.temperature)
            ]
            drafted = sum(one.drafted for one in rounds)
            assert row.drafted[switch] == drafted
            expected = [
                sum(one.accepted_by_position[place] for one in rounds) / drafted
                for place in range(5)
            ]
            assert list(row.rates[switch]) == pytest.approx(expected)
            assert expected == pytest.approx(ACCEPTED[(switch, row.temperature)], abs=0.02)
            assert row.length(switch) == pytest.approx(sum(expected))


def test_latency_has_every_step_of_sampled_headline_rounds_and_no_other(halves):
    (small, primary, large) = distributions(halves)
    assert [one.batch for one in (small, primary, large)] == [1, 8, 32]
    steps = sorted(
        wait
        for half in halves
        for arm in half.arms
        for one in arm.rounds
        if arm.switch == "ON"
        and one.phase == "headline"
        and one.batch == 8
        and one.temperature != "0"
        for wait in one.draft_ns
    )
    assert list(primary.samples["ON"]) == steps
    assert primary.percentile("ON", 100) == steps[-1]
    below = sum(step <= primary.percentile("ON", 90) for step in steps)
    assert 0.9 * len(steps) <= below < 0.9 * len(steps) + 2


def test_memory_is_told_as_growth_over_the_sealed_baseline(halves):
    arm = halves[0].arms[1]
    figures = arm_figures(arm)
    assert {row.source: row.baseline for row in figures.memory} == SOURCES
    row = next(row for row in figures.memory if row.source == "nvml.gpu.0")
    sizes = [int(one.memory_bytes["nvml.gpu.0"]) for one in arm.rounds]
    assert list(row.growth) == [size - SOURCES["nvml.gpu.0"] for size in sizes]
    assert row.most == 2 * MIB
    assert row.allowance == SOURCES["nvml.gpu.0"] // 100
    assert figures.failures_grew == 0


def test_clocks_by_rank_and_why_a_gpu_was_slowed(halves):
    figures = arm_figures(halves[0].arms[0])
    power = next(one for one in figures.clocks if (one.rank, one.name) == (1, "power_mw"))
    assert len(power.values) == figures.headline + figures.profiled
    slowed = sum("sw_power_cap" in one.facts["gpu.0.slowed_by"] for one in halves[0].arms[0].rounds)
    assert slowed > 0
    assert figures.slowed == {"GPU 0: sw_power_cap": slowed}


def failed(body):
    body["complete"] = False
    del body["arms"][1]
    arm = body["arms"][0]
    arm["verdict"] = "failed_rounds_grew"
    arm["snapshots"] = arm["snapshots"][:2]
    arm["snapshots"][1]["failed_rounds"] = {"timeout": "3", "late": "1"}
    arm["rounds"] = [row for row in arm["rounds"] if row["phase"] == "headline"]


def cut(body):
    body["complete"] = False
    del body["arms"][1]
    arm = body["arms"][0]
    arm.update(verdict="partial", snapshots=arm["snapshots"][:1], rounds=[])
    arm["baseline_sha256"] = tree_digest(arm["snapshots"][0])


def test_failed_rounds_count_over_the_baseline(tmp_path):
    made_up = of_bytes(tmp_path, half=changed(made().files["A1B1"], failed))
    verdict = made_up.comparisons[0].verdict
    assert (verdict.word, verdict.because) == (
        "NO VERDICT",
        "arm A1: failed rounds grew over the baseline",
    )
    assert made_up.comparisons[0].arms[0].failures_grew == 3


def test_a_half_that_was_cut_is_drawn_as_far_as_it_went(tmp_path):
    made_up = of_bytes(tmp_path, half=changed(made().files["A1B1"], cut))
    assert b"NO VERDICT" in page(made_up)
    assert next(iter(told(made_up))).startswith("NO VERDICT")


def test_without_numpy_the_primary_cell_has_the_interval_that_the_summary_states(chain):
    made_up = document(read([chain["A1B1"], chain["B2A2"]]), describe)
    (comparison,) = made_up.comparisons
    known = {cell.primary: cell.interval for cell in comparison.figures.cells}
    summary = comparison.receipts[1].summary
    assert (known[True].low, known[True].high) == (summary.interval_low, summary.interval_high)
    assert known[False] is None


def test_the_document_is_json_and_has_every_figure(whole):
    tree = json.loads(json.dumps(whole.as_dict()))
    (comparison,) = tree["comparisons"]
    assert comparison["verdict"]["word"] == "FASTER"
    assert comparison["figures"]["cells"][0]["off"]["tokens_per_second"]
    assert len(comparison["halves"][0]["arms"][0]["memory"]) == len(SOURCES)
    assert [gate["holds"] for gate in tree["gates"][0]["gates"]] == [True] * 8
    assert tree["budgets"][0]["parts"][0]["name"] == "staging"
    assert tree["evidence"][0]["kind"] == "measurement"
