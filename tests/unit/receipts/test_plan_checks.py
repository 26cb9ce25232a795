"""The arms that a receipt cannot lack, and the few that need not gate."""

import json

import pytest

from pp4.errors import Code, Exit
from pp4.qualify.gates import KERNELS
from pp4.receipts import seal, verify_bytes
from pp4.receipts.plan_checks import PLAN, RECORDED
from tests.unit.receipts import samples

PLANNED = ("rehearsal", "qualification")


def failures(body):
    tree = {**json.loads(samples.sample(body["kind"])), **samples.with_journal(body)}
    report = verify_bytes([("r", seal(tree))])
    assert report.files[0].receipt is not None, report.failures
    assert (report.exit is Exit.DONE) is (not report.failures)
    return {check.name: check for check in report.failures}


def test_the_table_is_that_of_the_gates():
    gates = {
        gate.number: (gate.name, {arm.step.arm: arm.step.expected for arm in gate.arms})
        for gate in KERNELS
    }
    assert {number: (gate.name, dict(gate.arms)) for number, gate in PLAN.items()} == gates
    loose = {arm.step.arm for gate in KERNELS for arm in gate.arms if not arm.step.gating}
    assert loose == RECORDED


@pytest.mark.parametrize("kind", PLANNED)
@pytest.mark.parametrize(
    ("number", "name"), [(number, name) for number, gate in PLAN.items() for name in gate.arms]
)
def test_no_arm_of_the_plan_may_be_absent(kind, number, name):
    body = samples.body(kind)
    gate = next(gate for gate in body["gates"] if gate["gate"] == number)
    gate["arms"] = [arm for arm in gate["arms"] if arm["arm"] != name]
    check = failures(body)["arms-required"]
    assert check.code is Code.GATE_NOT_RUN
    assert f"gate-{number}/{name} " in check.found


def test_an_arm_of_the_plan_keeps_what_it_has_to_find():
    body = samples.rehearsal()
    arm = next(arm for arm in body["gates"][2]["arms"] if arm["arm"] == "swapped-bounds")
    arm["expected"] = arm["found"] = "caught(LEAK)"
    assert "arms-required" in failures(body)


def test_a_gate_keeps_its_name():
    body = samples.rehearsal()
    body["gates"][0]["name"] = "a look"
    assert "called a look, not preflight" in failures(body)["arms-required"].found


@pytest.mark.parametrize("found", ["failed(OUTPUT_MISMATCH)", "pass"])
@pytest.mark.parametrize("kind", [*PLANNED, "solo"])
def test_an_arm_that_must_pass_gates(kind, found):
    body = samples.body(kind)
    arm = body["gates"][2]["arms"][0]
    assert arm["expected"] == "pass"
    arm.update(found=found, gating=False)
    check = failures(body)["arms-gate"]
    assert check.code is Code.CROSS_CHECK
    assert "gate-2/sound expected pass" in check.found


@pytest.mark.parametrize("name", ["sound", *sorted(RECORDED)])
def test_a_recorded_name_gives_no_leave_to_an_arm_that_must_pass(name):
    body = samples.solo()
    body["gates"][2]["arms"].append(samples.arm(f"{name}", "pass", gating=False))
    assert "arms-gate" in failures(body)


def test_only_the_named_controls_may_be_recorded():
    body = samples.rehearsal()
    body["gates"][2]["arms"].append(samples.arm("racy", "caught(RANKS_DIFFER)", gating=False))
    assert set(failures(body)) == {"arms-gate"}
