"""Several receipts at once: evidence is resolved among the given files."""

import json

import pytest

from pp4.errors import Code, Exit
from pp4.receipts.build import build, seal
from pp4.receipts.digests import file_digest
from pp4.receipts.private import redact
from pp4.receipts.verify import Policy, verify_bytes
from tests.unit.receipts import samples


def resting_on(*references):
    body = samples.qualification("kernels")
    body["evidence"] = [
        {"role": role, "kind": kind, "sha256": digest} for role, kind, digest in references
    ]
    return build(body)


SOLO = samples.sample("solo")
WHOLE = samples.sample("whole_worker")
PAIR = resting_on(
    ("identity_reference", "solo", file_digest(SOLO)),
    ("identity_reference", "whole_worker", file_digest(WHOLE)),
)


def overall(named, **policy):
    report = verify_bytes(named, Policy(**policy))
    return report, [(c.name, str(c.status), c.code) for c in report.overall]


def test_evidence_that_is_given_is_resolved_in_any_order():
    report, told = overall([("s", SOLO), ("q", PAIR), ("w", WHOLE)], require_evidence=True)
    assert report.exit is Exit.DONE
    assert told == [("evidence identity_reference", "pass", Code.EVIDENCE_MISMATCH)] * 2


def test_evidence_that_is_not_given_is_said_to_be_unchecked():
    report, told = overall([("q", PAIR), ("s", SOLO)])
    assert report.exit is Exit.DONE
    assert ("evidence identity_reference", "skipped", Code.EVIDENCE_MISSING) in told


def test_evidence_that_is_not_given_refuses_where_it_is_required():
    report, told = overall([("q", PAIR), ("s", SOLO)], require_evidence=True)
    assert ("evidence identity_reference", "fail", Code.EVIDENCE_MISSING) in told
    assert report.exit is Exit.REFUSED
    assert file_digest(WHOLE) in report.failures[0].expected


def test_a_swapped_evidence_file_is_found():
    other = build({**samples.solo(), "limits": ["another run"]})
    report, told = overall([("q", PAIR), ("s", other), ("w", WHOLE)])
    assert ("evidence identity_reference", "fail", Code.EVIDENCE_MISMATCH) in told
    assert report.exit is Exit.WRONG
    assert file_digest(SOLO) in report.failures[0].expected
    assert file_digest(other) in report.failures[0].found
    assert report.failures[0].file == "q"


def test_a_redacted_evidence_file_is_said_to_be_unchecked():
    copy = seal(redact(json.loads(SOLO)))
    report, told = overall([("q", PAIR), ("s", copy), ("w", WHOLE)])
    assert report.exit is Exit.DONE
    assert ("evidence identity_reference", "skipped", Code.EVIDENCE_MISSING) in told


@pytest.mark.parametrize("name", ["checkpoint_sha256", "input_set_sha256"])
def test_a_pair_s_worker_had_the_same_to_do_as_the_one_it_was_held_to(name):
    body = samples.qualification()
    report, _ = overall([("q", build(body)), ("s", SOLO), ("w", WHOLE)], require_evidence=True)
    assert report.exit is Exit.DONE
    body[name] = samples.worker_arm(body)["facts"][name] = samples.digest("0")
    report, told = overall([("q", build(body)), ("s", SOLO), ("w", WHOLE)])
    assert report.exit is Exit.WRONG
    assert ("same-worker", "fail", Code.EVIDENCE_MISMATCH) in told


def test_a_reference_with_another_kind_than_its_file_is_found():
    pair = resting_on(("identity_reference", "whole_worker", file_digest(SOLO)))
    report, _ = overall([("q", pair), ("s", SOLO)])
    assert [c.code for c in report.failures] == [Code.EVIDENCE_MISMATCH]


def test_evidence_that_is_broken_itself_does_not_count():
    broken = SOLO + b" "
    pair = resting_on(("identity_reference", "solo", file_digest(broken)))
    report, _ = overall([("q", pair), ("s", broken)])
    assert {c.code for c in report.failures} == {Code.NOT_CANONICAL, Code.EVIDENCE_MISMATCH}


def test_the_kind_asked_for_is_that_of_the_files_that_are_no_evidence():
    report, _ = overall([("s", SOLO), ("q", PAIR), ("w", WHOLE)], kind="qualification")
    assert report.exit is Exit.DONE
    loose = ("r", samples.sample("rehearsal"))
    report, _ = overall([("s", SOLO), ("q", PAIR), ("w", WHOLE), loose], kind="qualification")
    assert [c.code for c in report.failures] == [Code.WRONG_KIND]


@pytest.mark.parametrize(
    ("fence", "first", "exit_code"), [("8", "7", Exit.DONE), ("7", "6", Exit.WRONG)]
)
def test_the_second_half_has_the_higher_fence(fence, first, exit_code):
    body = samples.measurement("B2A2")
    body["first_half_closed"]["fence"] = first
    body["hold"]["fence"] = fence
    report, told = overall([("a", samples.sample("measurement")), ("b", build(body))])
    assert report.exit is exit_code
    assert "fence-order" in [name for name, _, _ in told]


@pytest.mark.parametrize(("fence", "exit_code"), [("7", Exit.DONE), ("8", Exit.WRONG)])
def test_a_qualification_belongs_to_the_window_that_rests_on_it(fence, exit_code):
    body = samples.measurement()
    body["hold"]["fence"] = fence
    pair = samples.sample("qualification")
    report, _ = overall([("m", build(body)), ("q", pair)])
    assert report.exit is exit_code
