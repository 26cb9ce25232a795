"""Which evidence opens what: the table, and every way around it that must stay shut."""

import copy
import itertools
import json
import pickle
from datetime import UTC, datetime

import pytest

from pp4.errors import Code
from pp4.receipts import admission as admitting
from pp4.receipts.admission import NEEDS, Admission, Command, Refused, admit
from pp4.receipts.bindings import ClosedHold, kernel_facts
from pp4.receipts.build import build, seal
from pp4.receipts.models import read_model
from pp4.receipts.private import redact
from pp4.receipts.run_checks import ROLE_KINDS
from tests.unit.receipts import samples
from tests.unit.receipts.samples import subject


@pytest.fixture(autouse=True, scope="module")
def _verified_once():
    """Verify each receipt once: hundreds of combinations hold the same few."""
    known, verify = {}, admitting.verify_bytes

    def verified(named):
        key = tuple(named)
        if key not in known:
            known[key] = verify(named)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(admitting, "verify_bytes", verified)
        yield


def whole(**changes):
    return {**samples.whole_worker(), **changes}


EVIDENCE = {
    ("identity_reference", "solo"): samples.sample("solo"),
    ("identity_reference", "whole_worker"): build(whole()),
    ("budget", "budget"): samples.sample("budget"),
    ("first_half", "measurement"): samples.sample("measurement"),
    ("qualification", "qualification"): samples.sample("qualification"),
}


def needed(command, **replaced):
    """Return the evidence that the command asks for, some kinds replaced by other bytes."""
    return [
        (need.role, replaced.get(need.kind, EVIDENCE[need.role, need.kind]))
        for need in NEEDS[command]
    ]


def facts(command, **changes):
    if command is Command.WORKER_ON:
        model = read_model(samples.sample("qualification"), "q")
        changes = {"kernels": kernel_facts(model.kernels), **changes}
    return subject(**changes)


def refused(command, evidence, given=None):
    outcome = admit(command, evidence, given or facts(command))
    assert isinstance(outcome, Refused), outcome
    refusal = outcome.refusal
    assert refusal.expected
    assert refusal.found
    assert refusal.as_dict()["next"]
    return refusal


@pytest.mark.parametrize("command", Command)
def test_the_evidence_of_the_table_admits(command):
    evidence = needed(command)
    admission = admit(command, evidence, facts(command))
    assert isinstance(admission, Admission), admission
    assert admission.command is command
    assert admission.source_digest == samples.SOURCE["digest"]
    assert [(role, kind) for role, kind, _ in admission.evidence] == [
        (need.role, need.kind) for need in NEEDS[command]
    ]
    assert len(admission.receipts) == len(evidence)


@pytest.mark.parametrize("command", Command)
def test_the_order_of_evidence_does_not_matter(command):
    assert isinstance(admit(command, needed(command)[::-1], facts(command)), Admission)


@pytest.mark.parametrize("command", Command)
def test_each_missing_piece_is_named_with_the_command_that_makes_it(command):
    for need in NEEDS[command]:
        evidence = [(r, b) for r, b in needed(command) if b != EVIDENCE[need.role, need.kind]]
        if need.optional:
            assert isinstance(admit(command, evidence, facts(command)), Admission)
            continue
        refusal = refused(command, evidence)
        assert refusal.code is Code.EVIDENCE_MISSING
        assert refusal.expected == f"{need.kind} as {need.role}"
        assert refusal.next.startswith("pp4 ")


@pytest.mark.parametrize("command", Command)
@pytest.mark.parametrize("kind", samples.KINDS)
@pytest.mark.parametrize("role", sorted(ROLE_KINDS))
def test_no_kind_in_any_other_role_is_let_in(command, kind, role):
    # Once alone and once beside everything that would have admitted.
    wanted = {(need.role, need.kind) for need in NEEDS[command]}
    evidence = needed(command)
    if (role, kind) in wanted:
        refusal = refused(command, [*evidence, (role, EVIDENCE[role, kind])])
        assert refusal.code is Code.WRONG_ROLE
        assert refusal.found == "two"
        return
    for rest in ([], evidence):
        refusal = refused(command, [*rest, (role, samples.sample(kind))])
        assert refusal.code in (Code.WRONG_ROLE, Code.WRONG_KIND)
        assert f"{kind} as {role}" in refusal.found


@pytest.mark.parametrize("command", Command)
@pytest.mark.parametrize("role", [*sorted(ROLE_KINDS), "proof", "", "\ud800"])
def test_a_rehearsal_opens_nothing_in_any_role(command, role):
    refused(command, [(role, samples.sample("rehearsal"))])
    for index in range(len(NEEDS[command])):
        evidence = needed(command)
        evidence[index] = (evidence[index][0], samples.sample("rehearsal"))
        refused(command, evidence)


def test_no_entry_of_the_table_takes_a_rehearsal():
    kinds = {need.kind for need in itertools.chain(*NEEDS.values())}
    assert "rehearsal" not in kinds
    assert kinds.isdisjoint({"refusal", "incident", "preparation"})


@pytest.mark.parametrize("command", [c for c in Command if NEEDS[c]])
def test_tampered_evidence_is_refused_with_the_code_of_the_check(command):
    role, raw = needed(command)[0]
    rest = needed(command)[1:]
    assert refused(command, [(role, raw + b"\n"), *rest]).code is Code.NOT_CANONICAL
    assert refused(command, [(role, b"junk"), *rest]).code is Code.NOT_JSON
    changed = raw.replace(b"nothing but an example", b"nothing but an exampla")
    assert refused(command, [(role, changed), *rest]).code is Code.DIGEST_MISMATCH


@pytest.mark.parametrize("command", [c for c in Command if NEEDS[c]])
def test_historical_evidence_is_refused_with_both_digests(command):
    refusal = refused(command, needed(command), facts(command, source_digest="f" * 64))
    assert refusal.code is Code.HISTORICAL
    assert "f" * 64 in refusal.expected
    assert samples.SOURCE["digest"] in refusal.found


def failed_body(kind):
    body = samples.body(kind)
    body["gates"][2]["arms"][0]["found"] = "failed(OUTPUT_MISMATCH)"
    body["verdict"] = "wrong"
    return build(samples.with_journal(body))


@pytest.mark.parametrize(
    ("command", "kind", "raw", "code"),
    [
        (Command.PAIR_FULL, "solo", lambda: failed_body("solo"), Code.NOT_PROVEN),
        (Command.PAIR_KERNELS, "solo", lambda: failed_body("solo"), Code.NOT_PROVEN),
        (Command.WORKER_ON, "qualification", lambda: failed_body("qualification"),
         Code.NOT_PROVEN),
        (Command.WORKER_ON, "qualification", lambda: build(samples.qualification("kernels")),
         Code.NOT_PROVEN),
        (Command.PAIR_FULL, "whole_worker", lambda: build(samples.whole_worker("physical")),
         Code.NOT_PROVEN),
        (Command.PAIR_FULL, "whole_worker", lambda: build(whole(verdict="wrong")),
         Code.NOT_PROVEN),
        (Command.PAIR_FULL, "whole_worker", lambda: build(
            whole(n_out=5, outputs=[samples.output(1, 5, "5" * 64)])), Code.NOT_PROVEN),
        (Command.PAIR_FULL, "whole_worker", lambda: build(
            whole(query_block=4, outputs=[samples.output(1, 4, "5" * 64, depth=4)])),
         Code.NOT_PROVEN),
        (Command.A1B1, "budget",
         lambda: build({**samples.budget(), "bound_ns": "1", "verdict": "over"}),
         Code.OVER_BUDGET),
        (Command.B2A2, "measurement",
         lambda: build({**samples.measurement(), "complete": False}), Code.NOT_PROVEN),
        (Command.B2A2, "measurement", lambda: build(samples.measurement("B2A2")),
         Code.NOT_PROVEN),
    ],
)  # fmt: skip
def test_an_intact_receipt_that_proves_too_little_is_refused(command, kind, raw, code):
    assert refused(command, needed(command, **{kind: raw()})).code is code


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("whole_worker", lambda b: b["gpus"][0].update(name="A100")),
        ("whole_worker", lambda b: b["libraries"][0].update(sha256="0" * 64)),
        ("whole_worker", lambda b: [row.update(name="other.so") for row in b["libraries"]]),
        # kernels are compared by name: a worker's own are held against what is compiled in gate 6
        ("whole_worker", lambda b: b["kernels"].append(
            {**b["kernels"][0], "name": "sampled_fused.solo", "cubin_sha256": "0" * 64})),
    ],
)  # fmt: skip
def test_evidence_must_be_bound_to_the_same(kind, change):
    body = whole()
    change(body)
    evidence = needed(Command.PAIR_FULL, **{kind: build(body)})
    blank = subject(gpu_models=None, libraries=None)
    assert refused(Command.PAIR_FULL, evidence, blank).code is Code.EVIDENCE_MISMATCH


@pytest.mark.parametrize(
    ("command", "changes"),
    [
        (Command.PAIR_KERNELS, {"gpu_models": frozenset({"A100"})}),
        (Command.PAIR_KERNELS, {"libraries": {"libcuda.so.1": "0" * 64}}),
        (Command.PAIR_KERNELS, {"libraries": {"other.so": "0" * 64}}),
        (Command.PAIR_KERNELS, {"kernels": {"sampled_fused.solo/0/sm_90": "other"}}),
        (Command.PAIR_FULL, {"checkpoint_sha256": "0" * 64}),
        (Command.BUDGET, {"input_set_sha256": "0" * 64}),
        (Command.A1B1, {"model_sha256": "0" * 64}),
        (Command.A1B1, {"model_sha256": None}),
        (Command.A1B1, {"shapes": {"batches": [1]}}),
        (Command.A1B1, {"shapes": None}),
        (Command.A1B1, {"now": None}),
        (Command.B2A2, {"settings": {"depth": 4}}),
        (Command.B2A2, {"settings": None}),
        (Command.B2A2, {"gpu_uuids": frozenset(samples.UUIDS[:1])}),
        (Command.WORKER_ON, {"gpu_uuids": frozenset({"GPU-x", "GPU-y"})}),
        (Command.WORKER_ON, {"gpu_uuids": None}),
        (Command.WORKER_ON, {"drivers": frozenset({"999"})}),
        (Command.WORKER_ON, {"libraries": {"libcuda.so.1": "0" * 64}}),
        (Command.WORKER_ON, {"libraries": {}}),
        (Command.WORKER_ON, {"libraries": None}),
        (Command.WORKER_ON, {"kernels": {}}),
        (Command.WORKER_ON, {"kernels": None}),
    ],
)
def test_evidence_must_match_this_machine_and_plan(command, changes):
    refusal = refused(command, needed(command), facts(command, **changes))
    assert refusal.code is Code.SUBJECT_MISMATCH


def test_every_library_of_the_receipt_must_be_loaded_here():
    body = samples.qualification()
    body["libraries"].append({"name": "libnccl.so.2", "sha256": "9" * 64, "build_id": None})
    evidence = [("qualification", build(body))]
    refusal = refused(Command.WORKER_ON, evidence)
    assert refusal.code is Code.SUBJECT_MISMATCH
    assert "libnccl.so.2" in refusal.found
    here = {row["name"]: row["sha256"] for row in body["libraries"]} | {"more.so": "0" * 64}
    given = facts(Command.WORKER_ON, libraries=here)
    assert isinstance(admit(Command.WORKER_ON, evidence, given), Admission)


def test_every_kernel_of_the_pair_must_be_compiled_here():
    model = read_model(samples.sample("qualification"), "q")
    every = kernel_facts(model.kernels)
    for name in every:
        here = {key: value for key, value in every.items() if key != name}
        given = facts(Command.WORKER_ON, kernels=here)
        # the kernel of a worker has the shape of its checkpoint: the worker itself looks at that
        if name.startswith("sampled_fused.pair/"):
            refusal = refused(Command.WORKER_ON, needed(Command.WORKER_ON), given)
            assert refusal.code is Code.SUBJECT_MISMATCH
            assert refusal.found == f"not compiled here: {name}"
        else:
            assert isinstance(admit(Command.WORKER_ON, needed(Command.WORKER_ON), given), Admission)


def test_redacted_uuids_match_no_machine():
    raw = seal(redact(json.loads(samples.sample("qualification"))))
    refusal = refused(Command.WORKER_ON, [("qualification", raw)])
    assert refusal.code is Code.SUBJECT_MISMATCH
    assert "redacted" in refusal.found


def test_a_budget_expires():
    at = datetime(2026, 4, 1, tzinfo=UTC)
    before = at.replace(month=3)
    assert isinstance(admit(Command.A1B1, needed(Command.A1B1), subject(now=before)), Admission)
    assert refused(Command.A1B1, needed(Command.A1B1), subject(now=at)).code is Code.TOO_OLD


def test_a_budget_must_fit_the_bound_of_this_window():
    evidence = needed(Command.A1B1)
    assert isinstance(admit(Command.A1B1, evidence, subject(bound_ns=2334)), Admission)
    refusal = refused(Command.A1B1, evidence, subject(bound_ns=2333))
    assert refusal.code is Code.OVER_BUDGET
    assert refusal.found == "2334 ns"


@pytest.mark.parametrize(
    "closed",
    [
        None,
        ClosedHold("hold-1", 7, False),
        ClosedHold("hold-1", 8, True),
        ClosedHold("hold-9", 7, True),
    ],
)
def test_the_second_half_needs_the_first_window_closed_and_restored(closed):
    refusal = refused(Command.B2A2, needed(Command.B2A2), subject(first_closed=closed))
    assert refusal.code is Code.NOT_RESTORED


def test_an_admission_is_made_by_admit_alone():
    with pytest.raises(TypeError):
        Admission()
    with pytest.raises(TypeError):
        type("Mine", (Admission,), {})
    admission = admit(Command.SOLO, [], subject())
    with pytest.raises(AttributeError):
        admission.command = Command.WORKER_ON
    with pytest.raises(AttributeError):
        del admission.command
    for step in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError):
            step(admission)


def test_a_fault_while_judging_refuses():
    refusal = refused(Command.SOLO, [("budget", None)])
    assert refusal.code is Code.INTERNAL
