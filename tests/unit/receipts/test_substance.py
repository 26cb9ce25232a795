"""What a good verdict rests on: two GPUs, one code, references, and anything at all."""

import copy
import json

import pytest

from pp4.errors import Code
from pp4.receipts.build import seal
from pp4.receipts.verify import verify_bytes
from tests.unit.receipts import samples

GATED = ("rehearsal", "qualification", "solo")


def failures(body):
    tree = {**json.loads(samples.sample(body["kind"])), **body}
    report = verify_bytes([("r", seal(tree))])
    assert report.files[0].receipt is not None, report.failures
    return {check.name: check for check in report.failures}


@pytest.mark.parametrize("kind", GATED)
@pytest.mark.parametrize(("name", "empty"), [("kernels", []), ("libraries", []), ("settings", {})])
def test_a_good_verdict_rests_on_something(kind, name, empty):
    body = samples.body(kind)
    body[name] = empty
    assert failures(body)[name].code is Code.CROSS_CHECK


@pytest.mark.parametrize("name", ["kernels", "libraries", "settings"])
def test_a_run_that_failed_may_have_nothing_to_name(name):
    body = samples.rehearsal()
    body.update({name: {} if name == "settings" else [], "verdict": "wrong"})
    body["gates"][2]["arms"][0]["found"] = "failed(LEAK)"
    assert failures(samples.with_journal(body)) == {}


def two_kernels(ranks=(0, 1)):
    """A rehearsal whose kernel ran on two ranks."""
    body = samples.rehearsal()
    body["kernels"] = samples.kernels(len(ranks))
    return body


@pytest.mark.parametrize("make", [samples.qualification, two_kernels])
@pytest.mark.parametrize("member", ["ptx_sha256", "cubin_sha256", "target"])
def test_both_ranks_ran_the_same_code(make, member):
    body = make()
    assert failures(body) == {}
    body["kernels"][1][member] = "sm_100" if member == "target" else samples.digest("9")
    check = failures(body)["kernels-alike"]
    assert check.code is Code.KERNELS_DIFFER
    assert "sampled_fused" in check.found


def test_a_kernel_of_one_rank_alone_has_no_twin():
    body = two_kernels()
    body["kernels"].append({**body["kernels"][0], "name": "solo", "ptx_sha256": "9" * 64})
    assert failures(body) == {}


@pytest.mark.parametrize("kind", GATED)
def test_a_kernel_twice_is_found(kind):
    body = samples.body(kind)
    body["kernels"].append({**body["kernels"][0], "ptx_sha256": samples.digest("9")})
    assert "kernels-once" in failures(body)


def test_a_library_has_one_digest():
    body = samples.solo()
    body["libraries"].append(copy.deepcopy(body["libraries"][0]))
    assert failures(body) == {}
    body["libraries"][-1]["sha256"] = samples.digest("9")
    assert "libcuda.so.1" in failures(body)["libraries-once"].found


@pytest.mark.parametrize(
    ("change", "holds"),
    [({}, True), ({"mismatches": "1"}, False), ({"wait_histogram": [3, -1]}, False)],
)
def test_a_soak_under_a_good_verdict_is_sound(change, holds):
    body = samples.qualification()
    body["soak"] = {"positions": "9", "mismatches": "0", "wait_histogram": [3, 0], **change}
    assert set(failures(body)) == (set() if holds else {"soak"})


@pytest.mark.parametrize(
    ("change", "lacks"),
    [
        (lambda b: b["evidence"].pop(0), "solo as identity_reference"),
        (lambda b: b["evidence"].pop(1), "whole_worker as identity_reference"),
        (lambda b: b.update(checkpoint_sha256=None), "checkpoint_sha256"),
        (lambda b: b.update(input_set_sha256=None), "input_set_sha256"),
    ],
)
def test_the_full_scope_names_what_it_was_compared_with(change, lacks):
    body = samples.qualification()
    change(body)
    assert lacks in failures(body)["full-references"].found


@pytest.mark.parametrize("name", ["checkpoint_sha256", "input_set_sha256"])
def test_the_full_scope_is_about_what_its_worker_was_run_with(name):
    body = samples.qualification()
    samples.worker_arm(body)["facts"][name] = samples.digest("0")
    assert set(failures(body)) == {"worker-inputs"}
    del samples.worker_arm(body)["facts"][name]
    assert set(failures(body)) == {"worker-inputs"}


@pytest.mark.parametrize("change", [{"transport": "ssh"}, {"exclusion": "host"}])
def test_a_rehearsal_may_be_held_anywhere(change):
    body = samples.rehearsal()
    body["hold"].update(change)
    assert failures(body) == {}


@pytest.mark.parametrize(
    ("role", "kind"), [("qualification", "qualification"), ("identity_reference", "solo")]
)
def test_a_rehearsal_rests_on_no_hardware(role, kind):
    body = samples.rehearsal()
    body["evidence"] = [{"role": role, "kind": kind, "sha256": samples.digest("1")}]
    assert set(failures(body)) == {"rehearsal-evidence"}


@pytest.mark.parametrize("text", [" ", "\n", "-", "...", "\u200b", "1"])
@pytest.mark.parametrize("kind", samples.KINDS)
def test_limits_are_words(kind, text):
    body = samples.body(kind)
    body["limits"] = ["words", text]
    assert set(failures(body)) == {"limits"}


def test_a_rehearsal_shows_nothing_about_a_gpu_whatever_it_says_itself():
    body = {**samples.rehearsal(), "limits": ["it is as good as a run on a GPU"]}
    tree = {**json.loads(samples.sample("rehearsal")), **body}
    (shows,) = verify_bytes([("r", seal(tree))]).files[0].shows
    assert "nothing was executed on a GPU" in shows
