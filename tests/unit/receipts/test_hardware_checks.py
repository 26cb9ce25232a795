"""What a receipt of a physical run shows beyond a rehearsal; each thing it lacks has a check."""

import json

import pytest

from pp4.errors import Code
from pp4.receipts.build import seal
from pp4.receipts.private import open_leaf, redact
from pp4.receipts.verify import verify_bytes
from tests.unit.receipts import samples

PHYSICAL = ("qualification", "solo")


def failures(body, shape=dict):
    tree = {**json.loads(samples.sample(body["kind"])), **body}
    report = verify_bytes([("r", seal(shape(tree)))])
    assert report.files[0].receipt is not None, report.failures
    return {check.name: check for check in report.failures}


def failed(kind):
    """A run that came out wrong and says so."""
    body = samples.body(kind)
    body["gates"][2]["arms"][0]["found"] = "failed(OUTPUT_MISMATCH)"
    body["verdict"] = "wrong"
    return samples.with_journal(body)


def drop(rows, **what):
    rows[:] = [row for row in rows if any(row[key] != value for key, value in what.items())]


@pytest.mark.parametrize("kind", PHYSICAL)
@pytest.mark.parametrize(
    ("change", "check"),
    [
        (lambda b: b["gpus"].pop(), "gpus"),
        (lambda b: b["gpus"].append({**b["gpus"][0], "rank": 1}), "gpus"),
        (lambda b: b["gpus"][0].update(uuid="gpu.9.uuid"), "gpu-names"),
        (lambda b: b["gpus"][0].update(pci_id="gpu.9.pci_id"), "gpu-names"),
        (lambda b: b["gpus"][0].update(pci_id="gpu.0.uuid"), "gpus-differ"),
    ],
)
def test_gpus_are_those_of_the_ranks_and_named_in_private(kind, change, check):
    for body in (samples.body(kind), failed(kind)):
        change(body)
        assert check in failures(body)


@pytest.mark.parametrize("kind", PHYSICAL)
@pytest.mark.parametrize(
    ("change", "check"),
    [
        (lambda b: b["gpus"][0].update(pci_id=None), "gpu-places"),
        (lambda b: b["hold"].update(boot_id=None), "boot"),
        (lambda b: b["kernels"][0].update(cubin_sha256=None), "kernel-digests"),
        (lambda b: b["kernels"][0].update(ptx_sha256=None), "kernel-digests"),
        (lambda b: drop(b["kernels"], name="sampled_fused.solo"), "kernel-ranks"),
        (lambda b: b["libraries"].pop(0), "cuda-libraries"),
        (lambda b: b["libraries"].pop(1), "cuda-libraries"),
        (lambda b: b["libraries"][1].update(name="libcudart.a"), "cuda-libraries"),
        (lambda b: b["libraries"][0].update(name="libcudadebugger.so"), "cuda-libraries"),
        (lambda b: b.update(libraries=[]), "libraries"),
    ],
)
def test_a_good_verdict_names_its_hardware(kind, change, check):
    body = samples.body(kind)
    change(body)
    assert check in failures(body)
    body = failed(kind)
    change(body)
    assert check not in failures(body)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda b: drop(b["kernels"], name="sampled_fused.pair"), "pair on []"),
        (lambda b: drop(b["kernels"], name="sampled_fused.pair", rank=1), "pair on [0]"),
        (lambda b: drop(b["kernels"], name="sampled_fused.solo", rank=0), "solo on [1]"),
        (lambda b: b["kernels"].append({**b["kernels"][0], "name": "other"}), "other on [0]"),
    ],
)
def test_a_pair_ran_both_kernels_on_both_ranks(change, words):
    body = samples.qualification()
    change(body)
    found = failures(body)
    assert set(found) == {"kernel-ranks"}
    assert words in found["kernel-ranks"].found


def test_one_gpu_ran_on_one_rank():
    body = samples.solo()
    body["kernels"].append({**body["kernels"][0], "rank": 1})
    assert set(failures(body)) == {"kernel-ranks"}


@pytest.mark.parametrize("name", ["sampled_fused.pair", "sampled_fused.solo"])
@pytest.mark.parametrize("member", ["ptx_sha256", "cubin_sha256", "target"])
def test_each_kernel_is_the_same_on_both_ranks(name, member):
    body = samples.qualification()
    row = next(row for row in body["kernels"] if row["name"] == name)
    row[member] = "sm_100" if member == "target" else samples.digest("0")
    found = failures(body)
    assert set(found) == {"kernels-alike"}
    assert name in found["kernels-alike"].found


def test_a_pair_names_the_links_between_its_gpus():
    body = samples.qualification()
    body["topology"] = {}
    assert set(failures(body)) == {"topology"}
    assert failures({**samples.solo(), "topology": {}}) == {}


def test_a_host_has_one_driver():
    body = samples.qualification()
    body["gpus"][1]["driver"] = "570.2"
    assert set(failures(body)) == {"driver"}
    assert "570.1, 570.2" in failures(body)["driver"].found


@pytest.mark.parametrize(
    ("leaf", "value", "check"),
    [
        ("gpu.1.uuid", samples.UUIDS[0], "gpu-values-differ"),
        ("gpu.1.pci_id", samples.PLACES[0], "gpu-places-differ"),
    ],
)
def test_one_gpu_under_two_names_is_found_while_its_leaves_are_open(leaf, value, check):
    body = samples.qualification()
    body["private"][leaf] = open_leaf(value, salt="1" * 64)
    found = failures(body)
    assert set(found) == {check}
    assert found[check].code is Code.DEVICE_MISMATCH
    assert failures(body, redact) == {}


def test_the_boot_may_be_named_in_private():
    body = samples.qualification()
    body["hold"]["boot_id"] = None
    body["private"]["host.boot_id"] = open_leaf("boot-1", salt="1" * 64)
    assert failures(body) == {}


@pytest.mark.parametrize("name", ["libcudart-d0da41ae.so.11.0", "libcudart.so.13"])
def test_the_runtime_is_known_by_any_of_its_names(name):
    body = samples.solo()
    body["libraries"][1]["name"] = name
    assert failures(body) == {}


def test_a_place_is_no_text_of_its_own():
    """A PCI id names a leaf, so that it can be blacked out."""
    tree = json.loads(samples.sample("solo"))
    tree["gpus"][0]["pci_id"] = samples.PLACES[0]
    report = verify_bytes([("r", seal(tree))])
    assert {check.code for check in report.failures} == {Code.SCHEMA}


@pytest.mark.parametrize("ranks", [{0}, {1}, {0, 1}])
def test_scope_full_has_the_kernel_of_its_worker_on_both_ranks(ranks):
    body = samples.qualification("full")
    assert failures(body) == {}
    body["kernels"] = [
        one
        for one in body["kernels"]
        if one["name"] != "sampled_fused.pair.worker" or one["rank"] not in ranks
    ]
    found = failures(body)
    assert found["kernel-ranks"].code is Code.CROSS_CHECK
    # nothing of a worker runs in scope kernels
    assert failures(samples.qualification("kernels")) == {}
