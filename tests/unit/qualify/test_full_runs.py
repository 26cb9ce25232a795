"""Scope full from receipt to receipt: a solo run leaves two, a pair rests on both."""

import json
from dataclasses import replace

import pytest

from pp4.errors import Code, Exit, Refusal, RefusedError, TimedOutError, UncleanError, WrongError
from pp4.qualify import physical, whole_receipt
from pp4.qualify.context import Context
from pp4.qualify.gates import FULL
from pp4.qualify.pair_qualify import plan
from pp4.qualify.whole_settings import PHYSICAL
from pp4.receipts.admission import Admission, Command, Refused, Subject, admit
from pp4.receipts.bindings import kernel_facts
from pp4.receipts.digests import file_digest, installed_source
from pp4.receipts.gates import Qualification
from pp4.receipts.journal import first_break
from pp4.receipts.models import read_model
from pp4.receipts.verify import Policy, verify
from tests.unit.qualify.fakes import finds
from tests.unit.qualify.gpus import UUIDS, gpu, report
from tests.unit.qualify.physical_runs import LIBRARIES, lab
from tests.unit.qualify.whole_runs import digest, frozen, primed, torn_down, whole_run

LEAK = Code.LEAK
MADE_UP = "The worker's drafter was made up from a seed; no trained model took part."


@pytest.fixture
def runs(tmp_path, monkeypatch):
    return lab(tmp_path, monkeypatch)


def references(runs):
    """What a solo run leaves, as evidence."""
    outcome = runs.solo()
    paths = (outcome.receipt_path, *outcome.more)
    return [("identity_reference", path.read_bytes()) for path in paths]


def intact(path, kind):
    return verify([path], Policy(kind=kind, current=True)).exit


# -- one GPU ----------------------------------------------------------------------------------


def test_a_solo_run_leaves_the_worker_s_receipt_beside_its_own(runs):
    outcome = runs.solo(gpu="1")
    assert (outcome.verdict, outcome.exit) == ("qualified", Exit.DONE)
    (path,) = outcome.more
    hold = outcome.receipt["hold"]["id"]
    assert path == runs.out / f"whole_worker-{hold}.json"
    assert runs.files() == [f"solo-{hold}.closed", f"solo-{hold}.json", path.name]
    assert intact(path, "whole_worker") is Exit.DONE
    tree = json.loads(path.read_text())
    assert (tree["mode"], tree["verdict"], tree["query_block"], tree["n_out"]) == (
        "solo",
        "recorded",
        5,
        4,
    )
    assert (tree["hold"]["id"], tree["hold"]["fence"]) == (hold, outcome.receipt["hold"]["fence"])
    assert tree["limits"] == [*whole_receipt.LIMITS, MADE_UP]
    assert [one["name"] for one in tree["libraries"]] == list(LIBRARIES)
    assert [(one["name"], one["rank"], one["ptx_sha256"]) for one in tree["kernels"]] == [
        ("sampled_fused.solo.worker", 0, primed(0, "solo").ptx_sha256),
        ("bias_rows.worker", 0, primed(0, "bias").ptx_sha256),
    ]
    assert tree["checkpoint_sha256"] == digest("checkpoint")
    assert tree["input_set_sha256"] == digest("inputs")
    found = [(one["batch"], one["n_out"], tuple(one["blocks"])) for one in tree["outputs"]]
    assert found == [(one.batch, one.n_out, one.blocks) for one in frozen().outputs]
    assert {name: tree["settings"][name] for name in PHYSICAL.as_facts()} == PHYSICAL.as_facts()
    assert [one["name"] for one in tree["gpus"]] == ["H200"]
    assert tree["private"]["gpu.0.uuid"]["value"] == UUIDS[1]


def test_names_of_machines_stand_only_where_they_can_be_taken_out(runs):
    (path,) = runs.solo().more
    bare = json.dumps({**json.loads(path.read_text()), "private": {}})
    for name in (*UUIDS, str(runs.root)):
        assert name not in bare


def test_the_worker_runs_after_the_gates_and_its_steps_are_in_the_journal(runs):
    outcome = runs.solo()
    # the receipt of the gates was made before, and its journal is whole as it is
    assert first_break(outcome.receipt["journal"]) is None
    assert not any(line["step"] == "whole-worker" for line in outcome.receipt["journal"])
    (path,) = outcome.more
    head = json.loads(path.read_text())["hold"]["journal_head"]
    assert head != outcome.receipt["hold"]["journal_head"]


def test_a_checkpoint_of_the_host_reaches_the_worker(runs):
    (path,) = runs.solo(checkpoint="/models/d").more
    assert json.loads(path.read_text())["limits"] == list(whole_receipt.LIMITS)
    runs.solo()
    assert [whole.checkpoint for whole in runs.wholes] == ["/models/d", None]
    assert replace(runs.wholes[0], checkpoint=None) == PHYSICAL


def test_after_gates_that_failed_no_worker_is_run(runs):
    outcome = runs.solo({"gate-2/edges": finds(LEAK)})
    assert (outcome.verdict, outcome.more, runs.wholes) == ("wrong", (), [])


REFUSAL = Refusal(Code.OCCUPANCY, "worker", "room", "none")
ERRORS = {
    "refused": (RefusedError(REFUSAL), Code.OCCUPANCY),
    "wrong": (WrongError(replace(REFUSAL, code=Code.RANK_DIED)), Code.RANK_DIED),
    "late": (TimedOutError(replace(REFUSAL, code=Code.STEP_TIMEOUT)), Code.STEP_TIMEOUT),
}


@pytest.mark.parametrize("name", ERRORS)
def test_a_worker_that_gave_nothing_leaves_the_solo_receipt(runs, name):
    error, code = ERRORS[name]
    runs.worker = error
    with pytest.raises(type(error)) as caught:
        runs.solo()
    refusal = caught.value.refusal
    assert refusal.code is code
    (tombstone,) = runs.tombstones()
    path = runs.out / f"solo-{tombstone['hold']}.json"
    assert str(path) in refusal.left
    assert intact(path, "solo") is Exit.DONE
    assert len(runs.files()) == 2


def test_a_worker_that_may_still_run_leaves_no_receipt(runs):
    runs.worker = UncleanError(replace(REFUSAL, code=Code.SURVIVOR))
    with pytest.raises(UncleanError):
        runs.solo()
    assert runs.files() == []


def test_a_worker_that_is_not_sound_is_wrong_and_no_reference(runs):
    devices = (UUIDS[0], UUIDS[0])
    good = frozen(devices=devices, batches=(8,))
    runs.worker = whole_run("solo", frozen=good, ended=torn_down(dead=(True, False)))
    outcome = runs.solo()
    assert (outcome.verdict, outcome.exit) == ("wrong", Exit.WRONG)
    (path,) = outcome.more
    tree = json.loads(path.read_text())
    assert (tree["verdict"], tree["settings"]["found"]) == ("wrong", "NOT_TORN_DOWN")
    # an honest account is intact, and opens nothing
    assert intact(path, "whole_worker") is Exit.DONE
    evidence = [("identity_reference", one.read_bytes()) for one in (outcome.receipt_path, path)]
    with pytest.raises(RefusedError) as caught:
        runs.full(evidence=evidence)
    assert caught.value.refusal.code is Code.NOT_PROVEN


def test_memory_that_a_worker_keeps_is_a_leak(runs, monkeypatch):
    monkeypatch.setattr(Context, "at_rest", lambda context: (context.gpus(), False))
    (path,) = runs.solo().more
    tree = json.loads(path.read_text())
    assert (tree["verdict"], tree["settings"]["found"]) == ("wrong", "LEAK")


# -- the pair ---------------------------------------------------------------------------------


def test_a_pair_that_rests_on_both_is_qualified_in_full(runs):
    evidence = references(runs)
    outcome = runs.full(evidence=evidence)
    assert (outcome.verdict, outcome.exit, outcome.more) == ("qualified", Exit.DONE, ())
    assert intact(outcome.receipt_path, "qualification") is Exit.DONE
    tree = outcome.receipt
    assert (tree["scope"], tree["limits"]) == ("full", [*physical.FULL_LIMITS, MADE_UP])
    assert tree["evidence"] == [
        {"role": "identity_reference", "kind": kind, "sha256": file_digest(raw)}
        for kind, (_, raw) in zip(("solo", "whole_worker"), evidence, strict=True)
    ]
    assert tree["checkpoint_sha256"] == digest("checkpoint")
    assert tree["input_set_sha256"] == digest("inputs")
    names = ["sampled_fused.pair", "sampled_fused.solo"]
    names += ["sampled_fused.pair.worker", "bias_rows.worker"]
    found = [(one["name"], one["rank"]) for one in tree["kernels"]]
    assert found == [(name, rank) for name in names for rank in (0, 1)]
    steps = [(g["gate"], a["arm"], a["found"]) for g in tree["gates"] for a in g["arms"]]
    assert steps == [(step.gate, step.arm, step.expected) for step in plan(FULL)]
    # the three receipts hang together, whoever looks at them
    paths = [outcome.receipt_path, *sorted(runs.out.glob("solo-*.json"))]
    paths += sorted(runs.out.glob("whole_worker-*.json"))
    policy = Policy(kind="qualification", current=True, require_evidence=True)
    assert verify(paths, policy).exit is Exit.DONE


def test_such_a_qualification_admits_a_worker_with_the_switch_on(runs):
    raw = runs.full(evidence=references(runs)).receipt_path.read_bytes()
    receipt = read_model(raw, "full")
    assert isinstance(receipt, Qualification)
    here = Subject(
        source_digest=installed_source().digest,
        gpu_models=frozenset({"H200"}),
        gpu_uuids=frozenset(UUIDS),
        drivers=frozenset({"570.1"}),
        libraries=dict.fromkeys(LIBRARIES, "c" * 64),
        kernels=kernel_facts(receipt.kernels),
    )
    given = [("qualification", raw)]
    assert isinstance(admit(Command.WORKER_ON, given, here), Admission)
    other = replace(here, gpu_uuids=frozenset({UUIDS[0]}))
    assert isinstance(admit(Command.WORKER_ON, given, other), Refused)


@pytest.mark.parametrize("kept", [[], [0], [1]])
def test_without_both_receipts_nothing_is_held(runs, kept):
    evidence = references(runs)
    holds = len(runs.tombstones())
    with pytest.raises(RefusedError) as caught:
        runs.full(evidence=[evidence[place] for place in kept])
    assert caught.value.refusal.code is Code.EVIDENCE_MISSING
    assert caught.value.refusal.next == "pp4 solo-qualify"
    assert len(runs.tombstones()) == holds


def test_references_of_another_model_are_refused_and_not_failed(runs):
    evidence = references(runs)
    runs.report = report(*(gpu(index, name="GB10") for index in (0, 1)))
    with pytest.raises(RefusedError) as caught:
        runs.full(evidence=evidence)
    assert (caught.value.refusal.code, caught.value.exit) == (
        Code.SUBJECT_MISMATCH,
        Exit.REFUSED,
    )


def test_a_worker_that_gives_something_else_is_a_pair_that_is_wrong(runs):
    evidence = references(runs)
    arm = {"gate-6/worker-equals-archive": finds(Code.OUTPUT_MISMATCH)}
    outcome = runs.full(arm, evidence=evidence)
    assert (outcome.verdict, outcome.exit) == ("wrong", Exit.WRONG)
    assert intact(outcome.receipt_path, "qualification") is Exit.DONE


def test_a_missed_flip_voids_the_run(runs):
    arm = {"gate-6/flipped-archive-byte": finds()}
    outcome = runs.full(arm, evidence=references(runs))
    assert (outcome.verdict, outcome.exit) == ("wrong", Exit.WRONG)
