"""The arms that a receipt cannot lack, and the few that need not gate."""

import json

import pytest

from pp4.errors import Code, Exit
from pp4.qualify import gates
from pp4.qualify.gates import KERNELS, PHYSICAL
from pp4.receipts.build import seal
from pp4.receipts.gate_checks import REQUIRED_GATES
from pp4.receipts.plan_checks import (
    FLOORS,
    HARDWARE,
    PLAN,
    RECORDED,
    SOLO_PLAN,
    floors_of,
    plan_of,
)
from pp4.receipts.verify import verify_bytes
from tests.unit.receipts import samples, write_plan

PLANNED = ("rehearsal", "qualification")
TABLES = {
    "rehearsal": plan_of("rehearsal", "kernels"),
    "qualification": plan_of("qualification", "full"),
    "solo": plan_of("solo", "solo"),
}
AGAIN = "python -m tests.unit.receipts.write_plan"


def failures(body):
    tree = {**json.loads(samples.sample(body["kind"])), **samples.with_journal(body)}
    report = verify_bytes([("r", seal(tree))])
    assert report.files[0].receipt is not None, report.failures
    assert (report.exit is Exit.DONE) is (not report.failures)
    return {check.name: check for check in report.failures}


def test_the_table_is_that_of_the_gates():
    assert write_plan.table(KERNELS) == PLAN == plan_of("rehearsal", "kernels"), AGAIN
    assert write_plan.table(PHYSICAL) == plan_of("qualification", "kernels"), AGAIN
    assert write_plan.loose(PHYSICAL) == RECORDED, AGAIN


def test_what_only_a_gpu_can_be_asked_is_asked_of_a_pair_alone():
    assert HARDWARE
    for number, gate in HARDWARE.items():
        for scope in ("kernels", "full"):
            assert gate.arms.items() <= plan_of("qualification", scope)[number].arms.items()
            assert not gate.arms.keys() & plan_of("rehearsal", scope)[number].arms.keys()


@pytest.mark.skipif(not hasattr(gates, "SOLO"), reason="the gates of one GPU are not built yet")
def test_the_table_of_one_gpu_is_that_of_its_gates():
    assert write_plan.table(gates.SOLO) == SOLO_PLAN, AGAIN
    assert write_plan.loose(gates.SOLO) == set()


def test_the_file_is_what_the_writer_writes():
    assert write_plan.PATH.read_text("utf-8") == write_plan.text(), AGAIN


@pytest.mark.parametrize(
    ("kind", "scope"),
    [
        *((kind, scope) for kind in PLANNED for scope in ("kernels", "full")),
        ("solo", "solo"),
    ],
)
def test_each_gate_of_a_scope_has_its_arms_on_both_sides(kind, scope):
    table = plan_of(kind, scope)
    assert set(table) == set(REQUIRED_GATES[scope])
    for gate in table.values():
        expected = {word.split("(")[0] for word in gate.arms.values()}
        assert expected == {"pass", "caught"}


def test_a_code_that_a_control_expects_is_one():
    for gate in (gate for table in TABLES.values() for gate in table.values()):
        for expected in gate.arms.values():
            if expected != "pass":
                assert Code(expected.removeprefix("caught(").removesuffix(")"))


@pytest.mark.parametrize(
    ("kind", "number", "name"),
    [
        (kind, number, name)
        for kind, table in TABLES.items()
        for number, gate in table.items()
        for name in gate.arms
    ],
)
def test_no_arm_of_the_plan_may_be_absent(kind, number, name):
    body = samples.body(kind)
    gate = next(gate for gate in body["gates"] if gate["gate"] == number)
    gate["arms"] = [arm for arm in gate["arms"] if arm["arm"] != name]
    check = failures(body)["arms-required"]
    assert check.code is Code.GATE_NOT_RUN
    assert f"gate-{number}/{name} " in check.found


def counted(body, name, repetitions):
    for gate in body["gates"]:
        for arm in gate["arms"]:
            if f"gate-{gate['gate']}/{arm['arm']}" == name:
                arm["repetitions"] = repetitions


@pytest.mark.parametrize(
    ("kind", "name", "least"),
    [
        (kind, name, least)
        for kind, scope in (("qualification", "full"), ("solo", "solo"))
        for name, least in floors_of(kind, scope).items()
    ],
)
def test_a_physical_run_repeats_often_enough(kind, name, least):
    body = samples.body(kind)
    counted(body, name, least)
    assert failures(body) == {}
    counted(body, name, least - 1)
    found = failures(body)
    assert set(found) == {"repetitions"}
    assert found["repetitions"].code is Code.GATE_NOT_RUN
    assert found["repetitions"].found == f"{name} {least - 1} of {least}"


@pytest.mark.parametrize("kind", FLOORS)
def test_an_arm_that_counts_may_not_be_absent(kind):
    body = samples.body(kind)
    for gate in body["gates"]:
        gate["arms"] = [arm for arm in gate["arms"] if arm["arm"] != "many-rows"]
    assert "gate-2/many-rows none of 100000" in failures(body)["repetitions"].found


def test_the_floors_are_those_of_the_specification():
    # Written out once more, because the samples are made from the same table.
    alone = {"gate-2/many-rows": 100_000, "gate-3/replay-equals-eager": 1_000}
    assert FLOORS["solo"] == alone
    assert FLOORS["qualification"] == {"gate-0/data-pattern": 200_000, **alone}
    assert set(FLOORS) == {"qualification", "solo"}
    worker = {"gate-6/worker-equals-archive": 54}
    assert floors_of("qualification", "full") == {**FLOORS["qualification"], **worker}
    assert floors_of("qualification", "kernels") == FLOORS["qualification"]
    assert floors_of("rehearsal", "full") == {}


def test_a_run_that_failed_may_have_stopped_short():
    body = samples.solo()
    counted(body, "gate-2/many-rows", 7)
    body["gates"][2]["arms"][0]["found"] = "failed(OUTPUT_MISMATCH)"
    body["verdict"] = "wrong"
    assert failures(body) == {}


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
