"""On which GPUs a worker starts and what allows it the switch, before it is started."""

import os
from pathlib import Path

import pytest

from pp4.errors import Code, Exit, RefusedError
from pp4.qualify.standing import KEPT, StandingPolicy
from pp4.qualify.starting import Wish, leave
from pp4.receipts.build import build
from pp4.receipts.digests import file_digest
from tests.unit.qualify.gpus import gpu, report
from tests.unit.qualify.machines import machine
from tests.unit.receipts import samples

RAW = samples.sample("qualification")
POLICY = StandingPolicy(source=samples.SOURCE["digest"], now=samples.NOW)
PAIR = (gpu(0).uuid, gpu(1).uuid)
# a machine whose second and third GPU were qualified
MIXED = report(gpu(0), *(gpu(at, uuid=uuid) for at, uuid in enumerate(samples.UUIDS, 1)))


def never():
    raise AssertionError("nobody has to be asked")


@pytest.fixture
def state(tmp_path):
    (tmp_path / KEPT).mkdir()
    return tmp_path


def keep(state, name, raw=RAW):
    path = state / KEPT / name
    path.write_bytes(raw)
    return path


def ask(wish, state, look=lambda: MIXED, facts=machine, policy=POLICY):
    return leave(wish, state, look, facts, policy)


def refused(*arguments, **changes):
    with pytest.raises(RefusedError) as caught:
        ask(*arguments, **changes)
    assert caught.value.exit is Exit.REFUSED
    return caught.value.refusal


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("device", ["interpreter", "reference"])
def test_what_is_no_gpu_asks_nobody(state, device, sampled):
    found = ask(Wish(sampled, device), state, never, never)
    assert (found.gpus, found.permission.kind) == ((), "none")


def test_a_switch_that_is_off_asks_for_gpus_alone(state):
    found = ask(Wish(False, "gpu"), state, lambda: report(gpu(0), gpu(1)), never)
    assert (found.gpus, found.permission.kind) == (PAIR, "none")
    named = ask(Wish(False, "gpu", gpus=("1", PAIR[0])), state, lambda: report(gpu(0), gpu(1)))
    assert named.gpus == PAIR[::-1]
    alone = ask(Wish(False, "gpu", solo=True), state, lambda: report(gpu(0)), never)
    assert alone.gpus == PAIR[:1]


@pytest.mark.parametrize("gpus", [(), PAIR[:1]])
def test_one_gpu_alone_is_no_pair_whatever_is_qualified(state, gpus):
    wish = Wish(True, "gpu", solo=True, gpus=gpus, qualification=keep(state, "q.json"))
    refusal = refused(wish, state, never, never)
    assert (refusal.code, refusal.found) == (Code.BAD_SETTING, "a solo worker")


def test_a_qualification_is_not_looked_at_with_the_switch_off(state):
    """Falling back to OFF has to work whatever has become of the receipt."""
    wish = Wish(False, "gpu", qualification=Path("/gone.json"))
    assert ask(wish, state, facts=never).permission.kind == "none"


def test_gpus_that_are_not_there(state):
    both = report(gpu(0), gpu(1), bad={(0, 1)})
    assert refused(Wish(False, "gpu"), state, lambda: both).code is Code.NO_GPU_PAIR
    none = refused(Wish(False, "gpu", solo=True), state, report)
    assert (none.code, none.found) == (Code.NO_GPU_PAIR, "no GPU")


def test_a_grant_is_the_workers_to_judge(state):
    found = ask(Wish(True, "gpu", grant=True), state, lambda: report(gpu(0), gpu(1)), never)
    assert (found.gpus, found.permission.kind) == (PAIR, "grant")
    assert ask(Wish(True, "reference", grant=True), state, never, never).permission.kind == "grant"


@pytest.mark.parametrize("given", [False, True])
def test_a_qualification_that_stands_names_the_gpus(state, given):
    path = keep(state, "q.json")
    wish = Wish(True, "gpu", qualification=path if given else None)
    found = ask(wish, state, never)
    assert found.gpus == samples.UUIDS
    assert found.permission.model_dump() == {
        "kind": "qualification",
        "path": str(path),
        "sha256": file_digest(RAW),
    }


def test_a_relative_path_is_made_whole(state, monkeypatch):
    path = keep(state, "q.json")
    monkeypatch.chdir(state)
    wish = Wish(True, "gpu", qualification=Path(os.path.relpath(path)))
    assert ask(wish, state).permission.path == str(path)


def test_gpus_that_are_named_have_to_be_those(state):
    keep(state, "q.json")
    assert ask(Wish(True, "gpu", gpus=("1", "2")), state).gpus == samples.UUIDS
    for names in (("2", "1"), ("0", "1")):
        refusal = refused(Wish(True, "gpu", gpus=names), state)
        assert refusal.code is Code.SUBJECT_MISMATCH
        assert samples.UUIDS[0] in refusal.expected


def later():
    body = samples.qualification()
    body["made_at"] = "2026-03-01T13:00:00Z"
    return body


def test_of_several_the_newest_that_stands_is_taken(state):
    keep(state, "a.json", build(later()))
    keep(state, "b.json")
    newest = later()
    newest["made_at"] = "2026-03-01T14:00:00Z"
    newest["libraries"][0]["sha256"] = samples.digest("0")
    keep(state, "c.json", build(newest))
    keep(state, "d.json", build(samples.qualification("kernels")))
    keep(state, "e.json", samples.sample("solo"))
    assert Path(ask(Wish(True, "gpu"), state).permission.path).name == "a.json"


def test_there_is_none(state, tmp_path):
    assert refused(Wish(True, "gpu"), state, never, never).code is Code.EVIDENCE_MISSING
    keep(state, "e.json", samples.sample("solo"))
    assert refused(Wish(True, "gpu"), state).code is Code.EVIDENCE_MISSING
    gone = refused(Wish(True, "gpu", qualification=tmp_path / "gone"), state, never, never)
    assert gone.code is Code.UNREADABLE


def changed():
    facts = machine()
    facts["gpus"][1]["driver"] = "580"
    return facts


@pytest.mark.parametrize("given", [False, True])
def test_one_that_does_not_stand_is_refused_with_what_differs(state, given):
    path = keep(state, "q.json")
    wish = Wish(True, "gpu", qualification=path if given else None)
    refusal = refused(wish, state, facts=changed)
    assert refusal.code is Code.SUBJECT_MISMATCH
    assert "580" in refusal.found
    assert refusal.source == str(path)


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (lambda: build(samples.qualification("kernels")), Code.NOT_PROVEN),
        (lambda: samples.sample("rehearsal"), Code.WRONG_KIND),
        (lambda: RAW[:-1], Code.NOT_JSON),
    ],
)
def test_one_that_opens_nothing(state, raw, code):
    path = keep(state, "q.json", raw())
    assert refused(Wish(True, "gpu", qualification=path), state).code is code


def test_the_policy_counts(state):
    keep(state, "q.json")
    policy = StandingPolicy(source=samples.SOURCE["digest"], now=samples.NOW, same_boot=True)
    facts = {**machine(), "boot_id": "boot-2"}
    refusal = refused(Wish(True, "gpu"), state, facts=lambda: facts, policy=policy)
    assert "boot" in refusal.where
