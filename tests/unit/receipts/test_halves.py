"""Two halves held against each other, and a half against what it rests on."""

import pytest

from pp4.errors import Code, Exit
from pp4.receipts.build import build, seal
from pp4.receipts.digests import file_digest, source_list_digest
from pp4.receipts.private import redact
from pp4.receipts.verify import verify_bytes
from tests.unit.measure.made import tree
from tests.unit.receipts import samples

LOADED = {"target_sha256": "a" * 64, "prompts_sha256": "b" * 64}
FIRST = build(samples.with_engines(samples.measurement(), [LOADED] * 2))


def second(change=lambda body: None, first=FIRST):
    body = samples.measurement("B2A2")
    body["evidence"][0]["sha256"] = file_digest(first)
    change(body)
    return build(body)


def told(*named):
    report = verify_bytes(named)
    return report, {check.name: check for check in report.overall}


def test_halves_that_belong_together_pass_and_the_bootstrap_is_said_to_be_left_out():
    report, checks = told(("a", FIRST), ("b", second()))
    assert report.exit is Exit.DONE
    assert str(checks["summary-bootstrap"].status) == "skipped"
    assert "pp4 measure summary" in checks["summary-bootstrap"].found
    assert {"summary-effect", "summary-drift", "same-pair", "first-closed"} <= set(checks)


def in_rounds(**changes):
    def change(body):
        for arm in body["arms"]:
            arm["rounds"][1].update(changes)

    return change


def settings(body):
    body["settings"]["seed"] = 2


def swapped(body):
    body["gpus"][0]["uuid"], body["gpus"][1]["uuid"] = "gpu.1.uuid", "gpu.0.uuid"


def loaded(body, **facts):
    """Have the journal say what each arm's engine has loaded."""
    body.update(samples.with_engines(body, [{**LOADED, **facts}] * 2))


def another_source(body):
    body["source"]["files"][0]["sha256"] = "b" * 64
    body["source"]["digest"] = source_list_digest([("cli.py", "b" * 64)])


@pytest.mark.parametrize(
    ("change", "check", "code"),
    [
        (lambda b: b.update(model_sha256="0" * 64), "same-model-sha256", Code.EVIDENCE_MISMATCH),
        (settings, "same-settings", Code.EVIDENCE_MISMATCH),
        (swapped, "same-pair", Code.EVIDENCE_MISMATCH),
        (another_source, "same-source", Code.EVIDENCE_MISMATCH),
        (
            lambda b: [gpu.update(driver="571.0") for gpu in b["gpus"]],
            "same-drivers",
            Code.EVIDENCE_MISMATCH,
        ),
        (
            lambda b: b["kernels"][0].update(ptx_sha256="0" * 64),
            "same-kernels",
            Code.EVIDENCE_MISMATCH,
        ),
        (
            lambda b: b["libraries"][0].update(sha256="0" * 64),
            "same-libraries",
            Code.EVIDENCE_MISMATCH,
        ),
        (
            lambda b: b["first_half_closed"].update(hold_id="hold-0"),
            "first-closed",
            Code.NOT_RESTORED,
        ),
        (lambda b: b["first_half_closed"].update(fence="6"), "first-closed", Code.NOT_RESTORED),
        (lambda b: loaded(b, target_sha256="1" * 64), "same-models", Code.EVIDENCE_MISMATCH),
        (in_rounds(outputs_sha256="0" * 64), "same-greedy-outputs", Code.OUTPUT_MISMATCH),
        (lambda b: b["summary"].update(effect="0.000001"), "summary-effect", Code.CROSS_CHECK),
        (lambda b: b["summary"].update(drift="-0.000001"), "summary-drift", Code.CROSS_CHECK),
    ],
)
def test_what_two_halves_must_share(change, check, code):
    report, checks = told(("a", FIRST), ("b", second(change)))
    assert report.exit is Exit.WRONG
    assert str(checks[check].status) == "fail"
    assert checks[check].code is code
    assert checks[check].file == "b"
    assert [one.name for one in report.failures] == [check]


def test_a_first_half_that_was_cut_is_none():
    body = samples.measurement()
    body["complete"] = False
    first = build(body)
    report, checks = told(("a", first), ("b", second(first=first)))
    assert report.exit is not Exit.DONE
    assert checks["halves-complete"].code is Code.NOT_PROVEN


def test_a_second_half_is_no_first_one():
    one = second()
    body = samples.measurement("B2A2")
    body["evidence"][0]["sha256"] = file_digest(one)
    body["hold"] = {**body["hold"], "id": "hold-3", "fence": "9"}
    body["first_half_closed"].update(hold_id="hold-2", fence="8")
    _, checks = told(("a", one), ("b", build(body)))
    assert checks["halves"].code is Code.WRONG_ROLE
    assert str(checks["halves"].status) == "fail"


def test_redacted_gpus_are_not_compared():
    copy = seal(redact(tree(second())))
    report, checks = told(("a", FIRST), ("b", copy))
    assert report.exit is Exit.DONE
    assert str(checks["same-pair"].status) == "skipped"


def test_halves_of_which_one_is_not_sound_are_not_compared():
    broken = tree(second())
    broken["model_sha256"] = "0" * 64
    broken["arms"].reverse()
    report, checks = told(("a", FIRST), ("b", seal(broken)))
    assert "same-model-sha256" not in checks
    assert "arms-in-order" in [one.name for one in report.failures]


def resting_on(raw, role, kind, change=lambda body: None):
    body = samples.measurement()
    (reference,) = [one for one in body["evidence"] if (one["role"], one["kind"]) == (role, kind)]
    reference["sha256"] = file_digest(raw)
    change(body)
    return build(body)


@pytest.mark.parametrize(
    ("change", "check", "code"),
    [
        (lambda b: b.update(model_sha256="0" * 64), "same-model-sha256", Code.EVIDENCE_MISMATCH),
        (lambda b: [g.update(name="H100") for g in b["gpus"]], "same-gpu-models",
         Code.EVIDENCE_MISMATCH),
        (lambda b: b["shapes"].update(warm_up=7), "budgeted", Code.EVIDENCE_MISMATCH),
        (another_source, "same-source", Code.EVIDENCE_MISMATCH),
        (lambda b: b.update(bound_ns="1", verdict="over"), "budget-fits", Code.OVER_BUDGET),
    ],
)  # fmt: skip
def test_a_half_is_held_to_its_budget(change, check, code):
    sound = samples.sample("budget")
    report, _ = told(("m", resting_on(sound, "budget", "budget")), ("b", sound))
    assert report.exit is Exit.DONE
    body = samples.budget()
    change(body)
    other = build(body)
    report, checks = told(("m", resting_on(other, "budget", "budget")), ("b", other))
    assert [one.name for one in report.failures] == [check]
    assert checks[check].code is code


@pytest.mark.parametrize(
    ("change", "check"),
    [
        (lambda b: None, None),
        (swapped, "same-pair"),
        (another_source, "same-source"),
    ],
)
def test_a_half_is_held_to_the_qualification_of_its_window(change, check):
    raw = samples.sample("qualification")
    half = resting_on(raw, "qualification", "qualification", change)
    report, _ = told(("m", half), ("q", raw))
    assert [one.name for one in report.failures] == ([check] if check else [])


@pytest.mark.parametrize("kind", ["solo", "whole_worker"])
def test_a_half_is_of_the_source_of_its_references(kind):
    raw = samples.sample(kind)
    for change, failed in ((lambda b: None, []), (another_source, ["same-source"])):
        half = resting_on(raw, "identity_reference", kind, change)
        report, _ = told(("m", half), ("r", raw))
        assert [one.name for one in report.failures] == failed


def test_a_pair_that_was_qualified_for_its_kernels_alone_is_not_measured():
    raw = build(samples.qualification("kernels"))
    half = resting_on(raw, "qualification", "qualification")
    report, checks = told(("m", half), ("q", raw))
    assert [one.name for one in report.failures] == ["qualified"]
    assert checks["qualified"].code is Code.NOT_PROVEN
