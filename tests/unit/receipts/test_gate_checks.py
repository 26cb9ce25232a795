"""Do verdict, arms and journal of a receipt tell one story?  Each lie has its own check."""

import json

import pytest

from pp4.errors import Code, Exit
from pp4.receipts.build import build, seal
from pp4.receipts.gate_checks import REQUIRED_GATES
from pp4.receipts.verify import verify_bytes
from tests.unit.receipts import samples

GATED = ("rehearsal", "qualification", "solo")
GOOD = {"rehearsal": "rehearsed", "qualification": "qualified", "solo": "qualified"}


def failures(body):
    """Return name to check for a body that is sealed without being judged."""
    tree = {**json.loads(samples.sample(body["kind"])), **body}
    report = verify_bytes([("r", seal(tree))])
    assert report.files[0].receipt is not None, report.failures
    return {check.name: check for check in report.failures}


def arm_of(body, gate=2, arm=0):
    return next(g for g in body["gates"] if g["gate"] == gate)["arms"][arm]


@pytest.mark.parametrize("kind", GATED)
def test_a_sample_has_no_failures(kind):
    assert failures(samples.body(kind)) == {}


@pytest.mark.parametrize("kind", GATED)
def test_a_missing_gate_is_found(kind):
    body = samples.body(kind)
    del body["gates"][3]
    check = failures(samples.with_journal(body))["gates-present"]
    assert check.code is Code.GATE_NOT_RUN
    assert "3" in check.expected
    assert "3" not in check.found.replace("GATE", "")


def test_the_gates_of_each_scope():
    # Written out once more, because the samples are made from the same table.
    assert REQUIRED_GATES == {
        "kernels": (0, 1, 2, 3, 4, 5, 7),
        "full": (0, 1, 2, 3, 4, 5, 6, 7),
        "solo": (0, 1, 2, 3, 4, 7),
    }


def test_a_kernels_scope_must_not_hold_gate_6_and_a_full_one_must():
    body = samples.qualification("kernels")
    assert failures(body) == {}
    body["scope"] = "full"
    assert "gates-present" in failures(body)
    body = samples.qualification("full")
    body["scope"] = "kernels"
    assert set(failures(body)) == {"gates-present"}


def test_gates_in_another_order_are_found():
    body = samples.rehearsal()
    body["gates"][1], body["gates"][2] = body["gates"][2], body["gates"][1]
    assert set(failures(samples.with_journal(body))) == {"gates-present"}


@pytest.mark.parametrize(("index", "words"), [(0, "no arm that must pass"), (1, "must be caught")])
def test_a_gate_needs_both_sides(index, words):
    body = samples.rehearsal()
    del body["gates"][2]["arms"][index]
    sides = body["gates"][2]["arms"]
    lost = "caught" if index else "pass"
    body["gates"][2]["arms"] = [arm for arm in sides if not arm["expected"].startswith(lost)]
    check = failures(samples.with_journal(body))["arms-present"]
    assert check.code is Code.GATE_NOT_RUN
    assert words in check.found


def test_a_control_that_does_not_gate_is_no_control():
    body = samples.solo()
    body["gates"][2]["arms"] = body["gates"][2]["arms"][:2]
    arm_of(body, arm=1)["gating"] = False
    assert "arms-present" in failures(samples.with_journal(body))


def test_a_recorded_mutant_beside_the_gate_may_survive():
    body = samples.rehearsal()
    (racy,) = [a for a in body["gates"][2]["arms"] if a["arm"] == "relaxed-signal-ran"]
    racy["found"] = "pass"
    assert not racy["gating"]
    assert failures(samples.with_journal(body)) == {}


def test_an_arm_with_the_same_name_twice_is_found():
    body = samples.rehearsal()
    body["gates"][2]["arms"].append(samples.arm("sound", "pass"))
    assert "arm-names" in failures(samples.with_journal(body))


@pytest.mark.parametrize("found", ["pass", "caught(LEAK)", "failed(LEAK)", "not_run(RANK_DIED)"])
@pytest.mark.parametrize("kind", GATED)
def test_a_missed_control_voids_a_good_verdict(kind, found):
    body = samples.body(kind)
    arm_of(body, arm=1)["found"] = found
    failed = failures(samples.with_journal(body))
    assert failed["controls-caught"].code is Code.CONTROL_NOT_CAUGHT
    assert f"gate-2/mutant expected caught(OUTPUT_MISMATCH), found {found}" in (
        failed["controls-caught"].found
    )
    assert "verdict" in failed


@pytest.mark.parametrize("kind", GATED)
@pytest.mark.parametrize("gate", [0, 1, 2, 3, 4, 7])
@pytest.mark.parametrize("found", ["failed(RANKS_DIFFER)", "not_run(RANK_DIED)", "caught(LEAK)"])
def test_no_gate_can_be_otherwise_under_a_good_verdict(kind, gate, found):
    body = samples.body(kind)
    arm_of(body, gate)["found"] = found
    assert set(failures(samples.with_journal(body))) == {"verdict"}


@pytest.mark.parametrize(
    ("found", "verdict", "holds"),
    [
        ("failed(OUTPUT_MISMATCH)", "wrong", True),
        ("failed(STEP_TIMEOUT)", "timeout", True),
        ("failed(NOT_TORN_DOWN)", "unclean", True),
        ("failed(OUTPUT_MISMATCH)", "inconclusive", False),
        ("failed(OUTPUT_MISMATCH)", "refused", False),
        ("not_run(RANK_DIED)", "inconclusive", True),
        ("not_run(STEP_TIMEOUT)", "timeout", True),
        ("not_run(DEVICE_MISMATCH)", "refused", True),
        ("not_run(RANK_DIED)", "wrong", False),
        ("pass", "wrong", False),
        ("pass", "timeout", False),
        ("pass", "inconclusive", False),
        ("pass", "unclean", True),
    ],
)
def test_a_verdict_needs_arms_that_carry_it(found, verdict, holds):
    body = samples.rehearsal()
    arm_of(body)["found"] = found
    body["verdict"] = verdict
    failed = failures(samples.with_journal(body))
    assert set(failed) == (set() if holds else {"verdict"})


def test_a_run_that_says_it_missed_a_control_is_an_honest_receipt():
    body = samples.rehearsal()
    arm_of(body, arm=1)["found"] = "pass"
    body["verdict"] = "wrong"
    report = verify_bytes([("r", build(samples.with_journal(body)))])
    assert report.exit is Exit.DONE
    assert report.files[0].verdict == "wrong"


@pytest.mark.parametrize(
    "change",
    [{"repetitions": 0}, {"elapsed_ns": "2001"}],
)
def test_findings_rest_on_numbers(change):
    body = samples.rehearsal()
    arm_of(body).update(change)
    assert set(failures(body)) == {"arm-numbers"}


def relinked(body, order):
    """Chain the same lines anew in another order, so that only the plan is wrong."""
    old = body["journal"]
    lines = []
    for index in order:
        line = old[index]
        lines.append(
            samples.next_line(
                lines[-1] if lines else None, line["step"], line["event"], line["found"]
            )
        )
    body["journal"] = lines
    body["hold"]["journal_head"] = samples.head(lines)
    return body


def test_a_journal_in_another_order_than_the_gates_is_found():
    body = samples.rehearsal()
    order = list(range(len(body["journal"])))
    order[1:3], order[3:5] = order[3:5], order[1:3]
    check = failures(relinked(body, order))["journal-plan"]
    assert check.code is Code.PLAN_MISMATCH
    assert (check.expected, check.found) == ("begin gate-0/sound", "begin gate-0/mutant")


@pytest.mark.parametrize("index", range(1, 29))
def test_a_step_that_is_missing_in_the_journal_is_found(index):
    body = samples.rehearsal()
    order = [i for i in range(len(body["journal"])) if i != index]
    assert set(failures(relinked(body, order))) == {"journal-plan"}


def test_a_step_that_no_gate_has_is_found():
    body = samples.rehearsal()
    line = samples.next_line(body["journal"][-1], "gate-7/extra", "begin")
    body["journal"].append(line)
    body["hold"]["journal_head"] = samples.head(body["journal"])
    assert failures(body)["journal-plan"].found == "begin gate-7/extra"


def test_a_finding_that_the_journal_tells_otherwise_is_found():
    body = samples.rehearsal()
    arm_of(body)["found"] = "failed(LEAK)"
    body["verdict"] = "wrong"
    failed = failures(body)
    assert set(failed) == {"journal-plan"}
    assert failed["journal-plan"].found == "end gate-2/sound pass"


def test_steps_outside_the_gates_are_free():
    body = samples.rehearsal()
    line = samples.next_line(body["journal"][-1], "restore", "begin", detail={"n": [1, "a"]})
    body["journal"].append(line)
    body["hold"]["journal_head"] = samples.head(body["journal"])
    assert failures(body) == {}


def test_a_reordered_journal_breaks_the_chain():
    body = samples.rehearsal()
    body["journal"][4], body["journal"][5] = body["journal"][5], body["journal"][4]
    check = failures(body)["journal-chain"]
    assert check.code is Code.JOURNAL_CHAIN
    assert check.expected == "line 4: sequence 4"
    assert check.found == "line 4: sequence 5"


def test_another_head_than_that_of_the_hold_is_found():
    body = samples.rehearsal()
    body["hold"]["journal_head"] = "f" * 64
    assert set(failures(body)) == {"journal-head"}
