"""A measured half: everything in which its receipt could contradict itself."""

import json

import pytest

from pp4.errors import Code
from pp4.receipts.cells import NAMES, Planned, planned
from pp4.receipts.digests import tree_digest
from pp4.wire.measuring import Schedule
from tests.unit.receipts import samples
from tests.unit.receipts.failing import failures


def half(name="A1B1"):
    return samples.measurement(name)


def arm(body, index=0):
    return body["arms"][index]


def cut(body, index, verdict="partial"):
    """End an arm after its headline rounds, and with it the half."""
    body["complete"] = False
    body["arms"] = body["arms"][: index + 1]
    last = arm(body, index)
    last["verdict"] = verdict
    last["snapshots"] = last["snapshots"][:2]
    last["rounds"] = [one for one in last["rounds"] if one["phase"] == "headline"]
    return samples.ended(body)


def test_samples_are_sound():
    assert failures(half()) == {}
    assert failures(half("B2A2")) == {}
    for index in (0, 1):
        assert failures(cut(half(), index)) == {}


@pytest.mark.parametrize("label", ["headline", "profiled", "final"])
def test_failed_rounds_over_the_baseline_in_any_later_snapshot_fail_the_arm(label):
    body = half()
    looks = arm(body)["snapshots"]
    for later in looks[[s["label"] for s in looks].index(label) :]:
        later["failed_rounds"] = {"timeout": "2"}
    assert set(failures(body)) == {"growth A1"}
    assert f"timeout in {label}" in failures(body)["growth A1"].found


def test_a_new_cause_of_failed_rounds_counts_as_growth():
    body = half()
    arm(body)["snapshots"][3]["failed_rounds"]["bad_logits"] = "1"
    assert set(failures(body)) == {"growth A1"}


def test_failed_rounds_never_count_less_later_on():
    body = half()
    arm(body)["snapshots"][2]["failed_rounds"] = {"timeout": "0"}
    assert failures(body)["failed-rounds A1"].found == "['timeout in profiled']"
    arm(body)["snapshots"][2]["failed_rounds"] = {}
    assert set(failures(body)) == {"failed-rounds A1"}


@pytest.mark.parametrize(
    ("baseline", "later", "grew"),
    [
        (10**9, 10**9 + 16 * 2**20, False),
        (10**9, 10**9 + 16 * 2**20 + 1, True),
        (10**11, 10**11 + 10**9, False),
        (10**11, 10**11 + 10**9 + 1, True),
    ],
)
def test_memory_may_grow_by_the_larger_allowance(baseline, later, grew):
    body = half()
    looks = arm(body)["snapshots"]
    looks[0] = samples.snapshot("baseline", 1, baseline)
    looks[1:] = [samples.snapshot(one["label"], 1, later) for one in looks[1:]]
    arm(body)["baseline_sha256"] = tree_digest(looks[0])
    assert set(failures(body)) == ({"growth A1"} if grew else set())


def test_a_memory_source_without_a_baseline_cannot_pass():
    body = half()
    arm(body)["snapshots"][1]["memory_bytes"]["other"] = "1"
    assert "other in headline" in failures(body)["growth A1"].found
    body = half()
    arm(body)["rounds"][2]["memory_bytes"] = {}
    assert "gpu.nvml by round" in failures(body)["growth A1"].found


def many_rounds(rate):
    """A half of arms with 76 rounds each, the memory of the first rising from each to the next."""
    body = half()
    body["settings"].update(headline=1, primary=69)
    for index, one in enumerate(body["arms"]):
        order = [samples.CELLS[3]] * 68 + list(samples.CELLS)
        one["rounds"] = [
            samples.measured_round(phase, number, *cell)
            for phase, cells in (("headline", order), ("profiled", samples.CELLS))
            for number, cell in enumerate(cells)
        ]
        for number, row in enumerate(one["rounds"]):
            size = 10**9 + (number * rate if index == 0 else 0)
            row["memory_bytes"] = {"gpu.nvml": str(size)}
    return body


def test_memory_that_slopes_fails_the_arm_below_its_allowance():
    assert failures(many_rounds(0)) == {}
    body = many_rounds(2**17)
    assert failures(body)["growth A1"].found == "complete; grew: gpu.nvml by round"
    arm(body)["verdict"] = "memory_grew"
    body["complete"] = False
    body["arms"].pop()
    assert failures(samples.ended(body)) == {}
    # an arm that was cut before its rounds were over has no last quarter
    body = cut(body, 0)
    assert failures(body) == {}
    arm(body)["verdict"] = "memory_grew"
    assert set(failures(samples.ended(body))) == {"growth A1"}


def test_growth_that_the_verdict_states_is_honest_and_never_complete():
    body = half()
    arm(body, 1)["snapshots"][3] = samples.snapshot("final", failed=9)
    arm(body, 1)["verdict"] = "failed_rounds_grew"
    assert set(failures(samples.ended(body))) == {"complete"}
    body["complete"] = False
    assert failures(samples.ended(body)) == {}
    arm(body, 1)["verdict"] = "memory_grew"
    assert set(failures(samples.ended(body))) == {"growth B1"}


def test_nothing_is_measured_after_an_arm_that_did_not_end():
    body = half()
    arm(body)["verdict"] = "partial"
    body["complete"] = False
    assert set(failures(samples.ended(body))) == {"ended-there"}


def journal(*lines):
    """A half that was cut, with these lines of its arms in its journal."""
    body = cut(half(), 0)
    chained = []
    for step, event, found, detail in lines:
        before = chained[-1] if chained else None
        chained.append(samples.next_line(before, step, event, found, detail))
    body["journal"] = chained
    body["hold"]["journal_head"] = samples.head(chained)
    return body


BASELINE = tree_digest(samples.snapshot("baseline", failed=1))


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ([], None),
        ([("arm-A1", "begin", None, {})], None),
        ([("arm-A1", "begin", None, {}), ("arm-A1", "end", "partial", {})], None),
        ([("arm-A1", "end", "complete", {})], "A1 is partial, ended complete"),
        ([("arm-A1", "end", "partial", {})] * 2, "A1 is partial, ended partial, partial"),
        ([("arm-B1", "begin", None, {})], "arms begun: B1; here: A1"),
        # an arm that never came as far as its baseline is not in the receipt
        ([("arm-A1", "begin", None, {}), ("arm-B1", "begin", None, {})], None),
        ([("arm-A1/baseline", "snapshot", None, {"sha256": BASELINE})], None),
        (
            [("arm-A1/baseline", "snapshot", None, {"sha256": "0" * 64})],
            "another snapshot than arm-A1/baseline",
        ),
        (
            [("arm-A1/final", "snapshot", None, {"sha256": BASELINE})],
            "another snapshot than arm-A1/final",
        ),
    ],
)
def test_the_journal_of_a_half_that_was_cut_agrees_as_far_as_it_goes(lines, found):
    failed = failures(journal(*lines))
    assert [check.found for check in failed.values()] == ([found] if found else [])


def test_a_complete_half_has_its_arms_in_the_journal():
    body = {**half(), **samples.written_in_hold()}
    assert set(failures(body)) == {"journal-arms"}
    swapped = samples.written_in_hold(("arm-B1", "complete"), ("arm-A1", "complete"))
    assert set(failures({**half(), **swapped})) == {"journal-arms"}


@pytest.mark.parametrize("place", range(4))
def test_a_complete_half_rests_on_all_that_has_to_come_before_it_once(place):
    body = half()
    gone = body["evidence"].pop(place)
    assert failures(body)["rests-on"].found == f"{gone['kind']} as {gone['role']}"
    assert failures(cut(body, 0)) == {}
    body["evidence"] += [gone, {**gone, "sha256": "0" * 64}]
    assert failures(body)["rests-on"].found == f"two {gone['kind']} as {gone['role']}"


@pytest.mark.parametrize("name", ["target_sha256", "prompts_sha256"])
def test_both_arms_have_loaded_the_same_target_and_prompts(name):
    loaded = {"target_sha256": "a" * 64, "prompts_sha256": "b" * 64}
    assert failures(samples.with_engines(half(), [loaded, loaded])) == {}
    other = {**loaded, name: "c" * 64}
    failed = failures(samples.with_engines(half(), [loaded, other]))
    assert {one: check.code for one, check in failed.items()} == {
        "same-models": Code.EVIDENCE_MISMATCH
    }
    assert name in failed["same-models"].found


def test_an_arm_that_was_cut_has_no_more_than_its_settings_say():
    body = cut(half(), 1)
    del arm(body, 1)["rounds"][3:]
    assert failures(body) == {}
    arm(body, 1)["rounds"] = [
        samples.measured_round("headline", index, 1, "0") for index in range(2)
    ]
    assert failures(body)["cells B1"].found == "headline b1.t0: 2 of 1"


ROUND = {
    "too few tokens": ({"tokens": 39}, "tokens other than 5 for each request"),
    "no tokens": ({"tokens": 0}, "no requests or no tokens"),
    "no time": ({"elapsed_ns": "0"}, "no time"),
    "no steps": ({"draft_ns": []}, "no steps"),
    "rises": ({"accepted_by_position": [3, 4, 2, 1, 0]}, "acceptance rises by position"),
    "more accepted": ({"accepted_by_position": [17, 4, 2, 1, 0]}, "more accepted than drafted"),
    "more drafted": ({"drafted": 17}, "more drafted than rows of steps"),
    "too few positions": (
        {"accepted_by_position": [4, 2, 1, 0]},
        "acceptance of other than 5 positions",
    ),
    "a profile": (
        {"target_ns": [1, 1], "verify_ns": [1, 1]},
        "target_ns and verify_ns of each step in profiled rounds, and in no others",
    ),
    "parts longer": ({"draft_ns": [123456, 3]}, "parts that are longer than the round"),
}


@pytest.mark.parametrize("name", ROUND)
def test_a_round_agrees_with_itself_and_with_the_settings(name):
    changes, what = ROUND[name]
    body = half()
    arm(body)["rounds"][0].update(changes)  # of batch 8
    assert failures(body)["numbers A1"].found == f"headline 0: {what}"


def test_a_profiled_round_has_every_part_of_every_step():
    for changes in ({"target_ns": [1]}, {"verify_ns": []}, {"draft_ns": [1, 2, 3]}):
        body = half()
        arm(body, 1)["rounds"][-1].update(changes)
        assert "profiled 3: target_ns" in failures(body)["numbers B1"].found


def set_of(path, value):
    """A change of one member, by its path."""

    def change(body):
        place = body
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = value

    return change


A1, B1 = ("arms", 0), ("arms", 1)


@pytest.mark.parametrize(
    ("change", "check"),
    [
        (set_of((*A1, "snapshots", 0, "failed_rounds", "timeout"), "0"), "baseline A1"),
        (set_of((*A1, "snapshots", 1, "label"), "profiled"), "snapshots A1"),
        (lambda b: b["arms"][1]["snapshots"].pop(), "snapshots B1"),
        (lambda b: b["arms"].reverse(), "arms-in-order"),
        (lambda b: b["arms"].pop(), "arms-in-order"),
        (set_of((*A1, "switch"), "ON"), "arms-in-order"),
        (lambda b: b["arms"][0]["rounds"].reverse(), "rounds A1"),
        (set_of((*B1, "rounds", 1, "index"), 3), "rounds B1"),
        (set_of((*B1, "rounds"), []), "rounds B1"),
        (set_of((*B1, "rounds"), []), "cells B1"),
        (lambda b: b["arms"][0]["rounds"].pop(), "cells A1"),
        (set_of((*A1, "rounds", 1, "temperature"), "1"), "cells A1"),
        (set_of((*A1, "rounds", 1, "temperature"), "0.7"), "same-rounds"),
        (set_of((*A1, "rounds", 1, "outputs_sha256"), "0" * 64), "same-greedy-outputs"),
        (set_of(("endpoint", "batch"), 1), "endpoint"),
        (set_of(("endpoint", "temperature"), "0"), "endpoint"),
        (set_of(("noise_threshold",), "0.02"), "noise-threshold"),
        (set_of(("settings", "depth"), 4), "depth"),
        (set_of(("settings", "batches"), [1, 7]), "endpoint-cell"),
        (set_of(("settings", "batches"), [8, 8]), "settings"),
        (set_of(("settings", "headline"), 0), "settings"),
        (set_of(("settings", "headline"), 2), "cells A1"),
        (set_of(("settings", "primary"), 1), "cells B1"),
        (set_of(("settings", "profiled"), 2), "cells B1"),
        (lambda b: b["settings"].pop("seed"), "settings"),
        (lambda b: b["gpus"].pop(), "gpus"),
        (set_of(("timeline", 0, "begin_ns"), "21"), "timeline"),
        (set_of(("heartbeats_ns",), ["5", "5"]), "heartbeats"),
        (set_of(("first_half_closed",), half("B2A2")["first_half_closed"]), "first-half"),
        (set_of(("summary",), half("B2A2")["summary"]), "summary"),
    ],
)
def test_a_half_agrees_with_itself(change, check):
    body = half()
    change(body)
    assert check in failures(body)


def test_the_same_temperature_in_another_spelling_is_the_same():
    body = half()
    body["endpoint"]["temperature"] = "0.70"
    body["noise_threshold"] = "0.010"
    for one in arm(body)["rounds"]:
        one["temperature"] = {"0": "0.0", "0.7": "0.70"}[one["temperature"]]
    assert failures(body) == {}


def test_sampled_outputs_may_differ_between_arms():
    body = half()
    arm(body)["rounds"][0]["outputs_sha256"] = "0" * 64  # at temperature 0.7
    assert failures(body) == {}


@pytest.mark.parametrize(
    ("change", "check", "code"),
    [
        (set_of(("evidence",), []), "first-half", Code.CROSS_CHECK),
        (set_of(("first_half_closed", "hold_id"), "hold-2"), "second-hold", Code.CROSS_CHECK),
        (set_of(("first_half_closed", "fence"), "8"), "second-hold", Code.CROSS_CHECK),
        (set_of(("first_half_closed", "restore"), "failed"), "first-restored", Code.NOT_RESTORED),
        (set_of(("first_half_closed", "restore"), "not_run"), "first-restored", Code.NOT_RESTORED),
        (set_of(("summary", "interval_low"), "0.001"), "summary-interval", Code.CROSS_CHECK),
        (set_of(("summary", "interval_high"), "-0.001"), "summary-interval", Code.CROSS_CHECK),
        (set_of(("summary", "verdict"), "SAME"), "summary-verdict", Code.CROSS_CHECK),
    ],
)
def test_a_second_half_rests_on_the_first_and_says_what_follows(change, check, code):
    body = half("B2A2")
    change(body)
    assert failures(body)[check].code is code


def test_settings_have_the_names_of_the_schedule():
    assert tuple(Schedule.model_fields) == NAMES
    schedule = Schedule.model_validate_json(json.dumps(samples.SETTINGS))
    facts = {k: tuple(v) if isinstance(v, list) else v for k, v in samples.SETTINGS.items()}
    read = planned(facts)
    assert isinstance(read, Planned)
    assert (read.batches, read.headline) == (schedule.batches, schedule.headline)
    assert planned({**facts, "warm_up": 0}) == "warm_up 0"
    many = {**facts, "batches": tuple(range(1, 130))}
    assert planned(many) == "258 cells, more than 256"
