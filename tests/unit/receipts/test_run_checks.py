"""Sums, baselines, places: the kinds without gates."""

import json

import pytest

from pp4.errors import Code
from pp4.receipts.build import seal
from pp4.receipts.digests import tree_digest
from pp4.receipts.verify import verify_bytes
from tests.unit.receipts import samples


def failures(body):
    tree = {**json.loads(samples.sample(body["kind"])), **body}
    report = verify_bytes([("r", seal(tree))])
    assert report.files[0].receipt is not None, report.failures
    return {check.name: check for check in report.failures}


@pytest.mark.parametrize(
    ("change", "check"),
    [
        (lambda b: b["parts"][0].update(projected_ns="333"), "budget-part warm-up"),
        (lambda b: b.update(projected_ns="2333"), "budget-sum"),
        (lambda b: b.update(verdict="over"), "budget-verdict"),
        (lambda b: b.update(bound_ns="2333"), "budget-verdict"),
        (lambda b: b["gpus"][0].update(uuid="gpu.9.uuid"), "gpu-names"),
    ],
)
def test_a_budget_adds_up(change, check):
    body = samples.budget()
    change(body)
    failed = failures(body)
    assert check in failed
    assert failed[check].code is Code.CROSS_CHECK


def test_a_budget_sum_says_both_numbers():
    check = failures({**samples.budget(), "projected_ns": "2333"})["budget-sum"]
    assert (check.expected, check.found) == ("2334", "2333")


def test_a_budget_over_its_bound_is_an_honest_receipt():
    assert failures({**samples.budget(), "bound_ns": "2333", "verdict": "over"}) == {}


def test_a_worker_that_went_wrong_need_not_have_come_that_far():
    body = {**samples.whole_worker(), "verdict": "wrong", "libraries": []}
    body["kernels"][0].update(ptx_sha256=None, cubin_sha256=None)
    assert failures(body) == {}
    physical = samples.whole_worker("physical")
    assert failures(physical) == {}


def grown(label, **changes):
    body = samples.measurement()
    snapshots = body["arms"][0]["snapshots"]
    index = [s["label"] for s in snapshots].index(label)
    snapshots[index] = samples.snapshot(label, **{"failed": 1, **changes})
    return body


@pytest.mark.parametrize("label", ["headline", "profiled", "final"])
def test_failed_rounds_over_the_baseline_in_any_later_snapshot_fail_the_arm(label):
    assert set(failures(grown(label, failed=2))) == {"growth A1"}
    assert failures(grown(label, failed=1)) == {}


def test_a_new_cause_of_failed_rounds_counts_as_growth():
    body = samples.measurement()
    body["arms"][0]["snapshots"][2]["failed_rounds"]["bad_logits"] = "1"
    assert set(failures(body)) == {"growth A1"}


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
    body = samples.measurement()
    arm = body["arms"][0]
    first = samples.snapshot("baseline", 1, baseline)
    arm["snapshots"] = [first, *(samples.snapshot(s, 1, later) for s in ("a", "b", "c"))]
    arm["baseline_sha256"] = tree_digest(first)
    assert set(failures(body)) == ({"growth A1"} if grew else set())


def test_a_memory_source_without_a_baseline_cannot_pass():
    body = samples.measurement()
    body["arms"][0]["snapshots"][1]["memory_bytes"]["other"] = "1"
    assert set(failures(body)) == {"growth A1"}


def test_growth_that_the_verdict_states_is_honest_and_never_complete():
    body = grown("final", failed=9)
    body["arms"][0]["verdict"] = "failed_rounds_grew"
    assert set(failures(body)) == {"complete"}
    body["complete"] = False
    assert failures(body) == {}


@pytest.mark.parametrize(
    ("change", "check"),
    [
        (
            lambda b: b["arms"][0]["snapshots"][0]["failed_rounds"].update(timeout="9"),
            "baseline A1",
        ),
        (lambda b: b["arms"].reverse(), "arms-in-order"),
        (lambda b: b["arms"].pop(), "arms-in-order"),
        (lambda b: b["arms"][0].update(switch="ON"), "arms-in-order"),
        (lambda b: b["arms"][0]["rounds"].reverse(), "rounds A1"),
        (lambda b: b["arms"][1]["rounds"][1].update(index=1), "rounds B1"),
        (lambda b: b["arms"][1].update(rounds=[]), "rounds B1"),
        (lambda b: b["arms"][1]["snapshots"].pop(), "growth B1"),
        (
            lambda b: b.update(first_half_closed=samples.measurement("B2A2")["first_half_closed"]),
            "first-half",
        ),
        (lambda b: b.update(summary=samples.measurement("B2A2")["summary"]), "summary"),
    ],
)
def test_a_measurement_agrees_with_itself(change, check):
    body = samples.measurement()
    change(body)
    assert check in failures(body)


def test_a_second_half_needs_the_first():
    assert failures(samples.measurement("B2A2")) == {}
    assert set(failures({**samples.measurement("B2A2"), "evidence": []})) == {"first-half"}


@pytest.mark.parametrize(
    ("kind", "change", "check"),
    [
        ("whole_worker", lambda b: b.update(outputs=b["outputs"] * 2), "outputs"),
        ("whole_worker", lambda b: b.update(mode="physical"), "gpus"),
        ("whole_worker", lambda b: b["outputs"][1].update(sha256="0" * 64), "output-digests"),
        ("whole_worker", lambda b: b["outputs"][1]["blocks"].pop(), "output-digests"),
        ("whole_worker", lambda b: b["outputs"][1]["blocks"].reverse(), "output-digests"),
        ("whole_worker", lambda b: b.update(n_out=5), "n-out"),
        ("whole_worker", lambda b: b["outputs"].pop(0), "n-out"),
        ("whole_worker", lambda b: b["outputs"][0].update(depth=4), "query-block"),
        ("whole_worker", lambda b: b.update(query_block=7), "query-block"),
        (
            "whole_worker",
            lambda b: b["kernels"][0].update(name="sampled_fused.solo"),
            "kernel sampled_fused.solo.worker",
        ),
        ("whole_worker", lambda b: b["kernels"][0].update(ptx_sha256=None), "kernel-digests"),
        ("whole_worker", lambda b: b["kernels"][1].update(cubin_sha256=None), "kernel-digests"),
        ("whole_worker", lambda b: b.update(libraries=[]), "libraries"),
        ("preparation", lambda b: b["outputs"].reverse(), "outputs-sorted"),
        ("preparation", lambda b: b.update(inputs=b["inputs"] * 2), "inputs-sorted"),
        ("preparation", lambda b: b["outputs"].pop(0), "places-in-outputs"),
        ("preparation", lambda b: b.update(inputs_sha256="a" * 64), "inputs-digest"),
        ("preparation", lambda b: b.update(outputs_sha256="a" * 64), "outputs-digest"),
        ("preparation", lambda b: b.update(reviewed_runner_sha256="a" * 64), "reviewed-runner"),
        ("preparation", lambda b: b["guards"].pop(), "guards"),
        ("preparation", lambda b: b.update(guards=b["guards"][:1] * 2), "guards"),
        ("refusal", lambda b: b.update(exit=42), "refusal-exit"),
        ("incident", lambda b: b.update(state="closed"), "incident-state"),
        ("incident", lambda b: b.update(tombstone_sha256="a" * 64), "incident-state"),
        ("incident", lambda b: b["journal"].reverse(), "journal-chain"),
        ("solo", lambda b: b["source"].update(digest="a" * 64), "source-list"),
        ("solo", lambda b: b["source"]["files"][0].update(path="x.py"), "source-list"),
    ],
)
def test_other_kinds_agree_with_themselves(kind, change, check):
    body = samples.body(kind)
    change(body)
    assert check in failures(body)


def test_source_files_are_sorted():
    body = samples.solo()
    rows = [["b.py", "b" * 64], ["a.py", "a" * 64]]
    body["source"] = {
        "files": [{"path": path, "sha256": digest} for path, digest in rows],
        "digest": tree_digest(rows),
    }
    assert failures(body)["source-list"].found == "unsorted"


@pytest.mark.parametrize(
    ("role", "kind"),
    [
        ("identity_reference", "rehearsal"),
        ("qualification", "solo"),
        ("qualification", "rehearsal"),
        ("budget", "solo"),
        ("first_half", "qualification"),
        ("rehearsal", "qualification"),
    ],
)
def test_a_kind_in_a_role_that_does_not_take_it_is_found(role, kind):
    body = samples.solo()
    body["evidence"] = [{"role": role, "kind": kind, "sha256": "a" * 64}]
    check = failures(body)["evidence-roles"]
    assert check.code is Code.WRONG_ROLE
    assert f"{kind} as {role}" in check.found


def test_a_source_file_is_listed_once():
    body = samples.solo()
    rows = [["a.py", "a" * 64], ["a.py", "b" * 64]]
    body["source"] = {
        "files": [{"path": path, "sha256": digest} for path, digest in rows],
        "digest": tree_digest(rows),
    }
    assert failures(body)["source-list"].found == "twice: a.py"
