"""Places, outputs, roles: what the kinds without gates agree with themselves in."""

import pytest

from pp4.errors import Code
from pp4.receipts.digests import tree_digest
from tests.unit.receipts import samples
from tests.unit.receipts.failing import failures


def test_a_worker_that_went_wrong_need_not_have_come_that_far():
    body = {**samples.whole_worker(), "verdict": "wrong", "libraries": []}
    body["kernels"][0].update(ptx_sha256=None, cubin_sha256=None)
    assert failures(body) == {}
    physical = samples.whole_worker("physical")
    assert failures(physical) == {}


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
