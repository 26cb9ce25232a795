"""The step itself: what it judges before anything is started, and what it holds a worker to."""

import json
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from pp4.errors import Code, RefusedError, WrongError
from pp4.measure import far
from pp4.measure.judging import SameLoaded, require_bound
from pp4.measure.members import kernels_of
from pp4.measure.schedule import STANDARD, settings, shapes
from pp4.receipts.digests import installed_source
from pp4.receipts.gates import JournalLine, Kernel
from pp4.receipts.models import read_model
from pp4.wire.holds import Given, Granted, Plan
from pp4.wire.measuring import ARMS, Measure
from tests.unit.measure.stage import PAIR, PREPARED, Stage
from tests.unit.qualify.gpus import UUIDS, gpu, report
from tests.unit.qualify.test_whole_worker import GRANTED
from tests.unit.qualify.whole_runs import LIBRARIES, served
from tests.unit.receipts import samples

PLAN = Plan(
    model_sha256="6" * 64,
    shapes=shapes(STANDARD),
    settings=settings(STANDARD),
)


def measure(work="A1B1", **changes):
    given = {
        "work": work,
        "command": f"pp4 measure {work} --hold local",
        "pair": PAIR,
        "schedule": STANDARD,
        "plan": PLAN,
    }
    return Measure(**{**given, **changes})


@pytest.fixture
def begun(monkeypatch):
    """A host with two GPUs, and what was begun on it."""
    begun = []
    monkeypatch.setattr(far, "look_at_gpus", lambda: report(gpu(0), gpu(1)))
    monkeypatch.setattr(far, "require_packages", lambda command: None)
    open_hold = nullcontext(SimpleNamespace(gpus=(), directory=Path("/nowhere")))
    monkeypatch.setattr(far, "InnerHold", lambda *given: begun.append(given) or open_hold)
    return begun


def refused(granted, asked):
    with pytest.raises(RefusedError) as caught:
        far.run(granted, asked, None)
    return caught.value.refusal


def test_nothing_is_begun_without_the_evidence_of_the_work(begun):
    for work in ARMS:
        found = refused(GRANTED, measure(work))
        assert (found.code, found.where) == (Code.EVIDENCE_MISSING, f"measure {work}")
    assert begun == []


def test_nothing_is_begun_without_what_was_fixed_beforehand(begun):
    found = refused(GRANTED, measure(plan=None))
    assert (found.code, found.found) == (Code.BAD_INPUT, "nothing")
    assert begun == []


def test_evidence_that_is_none_is_refused_on_the_host_too(begun):
    given = Given.of("budget", samples.sample("qualification"))
    found = refused(GRANTED, measure(evidence=(given,)))
    assert found.code in (Code.WRONG_KIND, Code.HISTORICAL)
    assert begun == []


def test_what_the_evidence_is_held_against_is_this_host_and_the_plan():
    seen = report(gpu(0), gpu(1))
    found = far._subject(GRANTED, measure("B2A2"), seen, "a" * 64)
    assert found.gpu_models == {"H200"}
    assert found.gpu_uuids == set(UUIDS)
    assert found.drivers == {"570.1"}
    assert (found.model_sha256, found.first_closed) == ("6" * 64, None)
    assert (dict(found.shapes), dict(found.settings)) == (shapes(STANDARD), settings(STANDARD))
    assert found.now is not None
    closed = {"hold": "0123456789abcdef", "fence": 4, "restored": True}
    second = PLAN.model_validate({**PLAN.model_dump(), "first_closed": closed})
    first = far._subject(GRANTED, measure("B2A2", plan=second), seen, "a" * 64).first_closed
    assert (first.hold_id, first.fence, first.restored) == ("0123456789abcdef", 4, True)


def test_a_rehearsal_looks_at_no_gpu_and_needs_no_evidence(begun, monkeypatch):
    monkeypatch.setattr(far, "look_at_gpus", lambda: pytest.fail("looked"))
    monkeypatch.setattr(far, "measure", lambda *given: {"report": given[3]})
    granted = Granted(**{**GRANTED.model_dump(), "rehearsal": True})
    assert far.run(granted, measure(plan=None), None) == {"report": None}
    ((admitted, *_),) = begun
    assert str(admitted.command) == "pair-qualify --dry-run"
    assert admitted.source_digest == installed_source().digest


def test_a_run_without_what_its_programs_need_is_refused_first(monkeypatch):
    from pp4.run import receipt

    monkeypatch.setattr(receipt, "find_spec", lambda name: None)
    monkeypatch.setattr(far, "look_at_gpus", lambda: pytest.fail("looked"))
    found = refused(GRANTED, measure())
    assert (found.code, found.where) == (Code.MISSING_PACKAGE, "pp4 measure A1B1 --hold local")


# -- what a worker is held to -------------------------------------------------------------------


def loaded(worker):
    return [Kernel.model_validate(row) for row in kernels_of(worker)]


def evidence(**changes):
    """A budget that a worker like this one has made."""
    body = samples.budget()
    body["kernels"] = json.loads(json.dumps(kernels_of(served())))
    body["libraries"] = [one.model_dump() for one in LIBRARIES[:1]]
    body.update(changes)
    receipt = read_model(samples.build(body), "budget")
    return SimpleNamespace(receipts={"budget as budget": receipt})


def test_a_worker_like_that_of_the_evidence_is_measured():
    libraries = {one.name: one.sha256 for one in LIBRARIES}
    require_bound(evidence(), loaded(served()), libraries)
    # the arm that is off has no kernels to be compared
    require_bound(evidence(), [], libraries)


@pytest.mark.parametrize(
    ("name", "kernels", "digest"), [("kernels", "other", None), ("libraries", "pair", "0" * 64)]
)
def test_another_kernel_or_library_than_the_evidence_names_is_not_measured(name, kernels, digest):
    libraries = {one.name: digest or one.sha256 for one in LIBRARIES}
    with pytest.raises(WrongError) as caught:
        require_bound(evidence(), loaded(served(kernels)), libraries)
    found = caught.value.refusal
    assert (found.code, found.where) == (Code.EVIDENCE_MISMATCH, f"budget as budget, {name}")


def test_a_worker_that_has_none_of_the_libraries_of_the_evidence_is_not_measured():
    with pytest.raises(WrongError) as caught:
        require_bound(evidence(), loaded(served()), {"libodd.so": "0" * 64})
    assert caught.value.refusal.found == "nothing in common to compare"


def test_the_drafter_is_the_one_that_was_qualified():
    reference = read_model(samples.sample("whole_worker"), "reference")
    loaded = SameLoaded([reference])
    loaded.require("A1", "engine", {"drafter_sha256": reference.checkpoint_sha256})
    with pytest.raises(WrongError) as caught:
        SameLoaded([reference]).require("A1", "engine", {"drafter_sha256": "0" * 64})
    found = caught.value.refusal
    assert (found.code, found.where) == (Code.EVIDENCE_MISMATCH, "A1, engine, drafter_sha256")
    assert found.expected == f"{reference.checkpoint_sha256}, as in whole_worker"


def test_a_second_half_has_the_pair_of_the_first(stage):
    """The first one's journal names what its arms had loaded, and no other member does."""
    journal = stage.measure().members["journal"]
    lines = tuple(JournalLine.model_validate_json(json.dumps(line)) for line in journal)
    first = read_model(samples.sample("measurement"), "first").model_copy(update={"journal": lines})
    facts = {name: PREPARED[name] for name in ("target_sha256", "drafter_sha256", "prompts_sha256")}
    SameLoaded([first]).require("B2", "engine", facts)
    for name in facts:
        with pytest.raises(WrongError) as caught:
            SameLoaded([first]).require("B2", "engine", {**facts, name: "0" * 64})
        assert caught.value.refusal.where == f"B2, engine, {name}"
        assert caught.value.refusal.expected.endswith(", as in A1")


@pytest.fixture
def stage(tmp_path):
    made = Stage(tmp_path)
    yield made
    made.journal.close()


def test_an_arm_is_not_begun_with_a_worker_that_the_evidence_is_not_about(stage):
    other = [{**LIBRARIES[0].model_dump(), "sha256": "0" * 64}]
    stage.admission.receipts = evidence(libraries=other).receipts
    found = stage.measure()
    assert (found.refusal["code"], found.arms) == (Code.EVIDENCE_MISMATCH, ())
    assert found.refusal["where"] == "budget as budget, libraries"
    assert "A1 engine connect" not in stage.transcript


def test_an_engine_is_sent_to_no_other_worker_than_that_of_its_arm(stage):
    stage.plots["A1 worker serve"] = stage.served("A1", socket="/another/a1.s")
    found = stage.measure()
    assert (found.refusal["code"], found.refusal["found"]) == (
        Code.SUBJECT_MISMATCH,
        "/another/a1.s",
    )
    assert "A1 engine connect" not in stage.transcript
