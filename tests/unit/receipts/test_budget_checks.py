"""A budget adds up, and leaves out no part of a window."""

import pytest

from pp4.errors import Code
from tests.unit.receipts import samples
from tests.unit.receipts.failing import failures

PARTS = [part["name"] for part in samples.budget()["parts"]]


@pytest.mark.parametrize(
    ("change", "check"),
    [
        (lambda b: b["parts"][0].update(projected_ns="222"), "budget-part warm-up"),
        (lambda b: b.update(projected_ns="2333"), "budget-sum"),
        (lambda b: b.update(verdict="over"), "budget-verdict"),
        (lambda b: b.update(bound_ns="2333"), "budget-verdict"),
        (lambda b: b["gpus"][0].update(uuid="gpu.9.uuid"), "gpu-names"),
        (lambda b: b["journal"].reverse(), "journal-chain"),
        (lambda b: b["shapes"].pop("primary"), "shapes"),
        (lambda b: b["shapes"].update(batches=[]), "shapes"),
        (lambda b: b["shapes"].update(batches=[8, 8]), "shapes"),
        (lambda b: b["shapes"].update(temperatures=["0", "hot"]), "shapes"),
        (lambda b: b["shapes"].update(temperatures=["0", "0.0"]), "shapes"),
        (lambda b: b["shapes"].update(depth=True), "shapes"),
        (lambda b: b["parts"].append(b["parts"][0]), "budget-parts"),
    ],
)
def test_a_budget_agrees_with_itself(change, check):
    body = samples.budget()
    change(body)
    assert failures(body)[check].code in (Code.CROSS_CHECK, Code.JOURNAL_CHAIN)


@pytest.mark.parametrize("name", PARTS)
def test_every_part_of_a_window_is_named_as_often_as_it_comes(name):
    body = samples.budget()
    body["parts"] = [part for part in body["parts"] if part["name"] != name]
    assert failures(body)["budget-parts"].found == f"{name}: 0 of {_times(name)}"
    body = samples.budget()
    part = next(part for part in body["parts"] if part["name"] == name)
    part["times"] -= 1
    assert failures(body)["budget-parts"].found == f"{name}: {_times(name) - 1} of {_times(name)}"


def _times(name):
    # Two arms; the primary cell has two headline rounds in each, everything else one.
    if name in ("staging", "qualification", "closing"):
        return 1
    return 4 if name == "headline.b8.t0.7" else 2


def test_other_parts_may_stand_beside_them():
    body = samples.budget()
    body["parts"].append(samples.part("arm-rest", 1, 2, 0))
    assert set(failures(body)) == {"budget-sum"}
    body["projected_ns"] = str(int(body["projected_ns"]) + 2)
    assert failures(body) == {}


def test_a_budget_sum_says_both_numbers():
    body = samples.budget()
    total = body["projected_ns"]
    check = failures({**body, "projected_ns": "2333"})["budget-sum"]
    assert (check.expected, check.found) == (total, "2333")


def test_a_budget_over_its_bound_is_an_honest_receipt():
    assert failures({**samples.budget(), "bound_ns": "2333", "verdict": "over"}) == {}
