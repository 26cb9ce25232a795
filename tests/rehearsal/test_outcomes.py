"""Every other way in which a rehearsal can end: never with exit code 0, never with a false receipt.

Arms are small functions here; HOLD, journal, verdict, receipt and refusals are the product's own.
"""

import errno
import json
import os
from dataclasses import replace

import pytest

from pp4.errors import (
    Code,
    Exit,
    Refusal,
    RefusedError,
    TimedOutError,
    UncleanError,
    WrongError,
)
from pp4.qualify import rehearsal
from pp4.qualify.arms import Finding
from pp4.qualify.gates import REHEARSED
from pp4.qualify.settings import REHEARSAL
from pp4.receipts.verify import Policy, verify
from pp4.run import receipt
from tests.unit.qualify.fakes import catching, finds, passing, raises

LEAK = Code.LEAK


def receipts(tmp_path):
    directory = tmp_path / "out"
    return sorted(directory.iterdir()) if directory.is_dir() else []


def kept_beside(tmp_path, refusal):
    """What was found is there, under a name that is no receipt's, and the refusal says where."""
    (path,) = receipts(tmp_path)
    assert path.suffix == ".rejected"
    assert refusal.left == str(path)
    assert json.loads(path.read_text())["kind"] == "rehearsal"
    assert verify([path], Policy()).exit is not Exit.DONE


def test_with_all_arms_as_expected_it_is_rehearsed(rehearse, tmp_path, temporary):
    """The ground on which the rest stands."""
    outcome = rehearse()
    assert (outcome.verdict, outcome.exit) == ("rehearsed", Exit.DONE)
    assert receipts(tmp_path) == [outcome.receipt_path]
    assert list(temporary.iterdir()) == []
    assert outcome.receipt == json.loads(outcome.receipt_path.read_text())


OTHERWISE = {
    "a pass arm finds something": (passing("good", finds(LEAK), gate=4), "wrong", Exit.WRONG),
    "a control is missed": (catching("control", LEAK, finds(), gate=2), "wrong", Exit.WRONG),
    "a control is caught by another code": (
        catching("control", LEAK, finds(Code.STICKY), gate=2),
        "wrong",
        Exit.WRONG,
    ),
    "a control raises its own code": (
        catching("control", LEAK, raises(WrongError(Refusal(LEAK, "a", "b", "c"))), gate=5),
        "wrong",
        Exit.WRONG,
    ),
    "an arm has a bug": (passing("good", raises(KeyError("ranks")), gate=7), "wrong", Exit.WRONG),
    "a wait runs out": (
        passing("good", raises(TimedOutError(Refusal(Code.STEP_TIMEOUT, "a", "b", "c"))), gate=3),
        "timeout",
        Exit.TIMEOUT,
    ),
    "an arm takes too long": (passing("good", finds(), gate=3, limit_s=0.0), "timeout", 5),
}


@pytest.mark.parametrize("name", OTHERWISE)
def test_one_arm_that_comes_out_otherwise_decides(rehearse, tmp_path, temporary, name):
    arm, verdict, code = OTHERWISE[name]
    outcome = rehearse(arm)
    assert (outcome.verdict, outcome.exit) == (verdict, code)
    assert outcome.exit is not Exit.DONE
    # a failed run leaves its receipt, which is intact and says so
    assert verify([outcome.receipt_path], Policy(kind="rehearsal")).exit is Exit.DONE
    assert json.loads(outcome.receipt_path.read_text())["verdict"] == verdict
    assert list(temporary.iterdir()) == []


def test_a_recorded_race_decides_nothing(rehearse):
    race = catching("missing-barrier-ran", Code.OUTPUT_MISMATCH, finds(), gate=2, gating=False)
    outcome = rehearse(race)
    assert (outcome.verdict, outcome.exit) == ("rehearsed", Exit.DONE)
    text = json.dumps(outcome.receipt)
    assert "failed(CONTROL_NOT_CAUGHT)" in text


@pytest.mark.parametrize(
    "text",
    ["", "x" * 100_000, "\ud800 \udcff", "\x00\x1b[31m", "é" * 5000],
    ids=["empty", "long", "surrogates", "control characters", "wide"],
)
def test_a_failure_with_odd_words_still_leaves_its_receipt(rehearse, text):
    error = WrongError(Refusal(Code.RANK_DIED, text, text, text, left=text))
    outcome = rehearse(passing("good", raises(error), gate=5))
    assert outcome.exit is Exit.WRONG
    assert outcome.receipt_path.is_file()


@pytest.mark.parametrize("code", [None, LEAK])
def test_facts_of_every_kind_are_kept(rehearse, code):
    facts = {"text": "", "number": -3, "truth": True, "many": (1, "x", False), "none": ()}
    outcome = rehearse(passing("good", finds(code, **facts), gate=5))
    (kept,) = (
        arm["facts"]
        for gate in outcome.receipt["gates"]
        for arm in gate["arms"]
        if "many" in arm["facts"]
    )
    assert kept == {**facts, "many": [1, "x", False], "none": []}


@pytest.mark.parametrize("missing", [0, 3, 7])
def test_a_gate_that_did_not_run_leaves_no_receipt(rehearse, tmp_path, temporary, missing):
    gates = tuple(gate for gate in REHEARSED if gate.number != missing)
    # the arm that records the ranks is in gate 0; without it no rank ever spoke
    kind = WrongError if missing == 0 else RefusedError
    with pytest.raises(kind) as caught:
        rehearse(gates=gates)
    assert caught.value.refusal.code is (Code.RANK_DIED if missing == 0 else Code.GATE_NOT_RUN)
    assert caught.value.exit is not Exit.DONE
    if missing == 0:
        assert receipts(tmp_path) == []
    else:
        kept_beside(tmp_path, caught.value.refusal)
    assert list(temporary.iterdir()) == []


def test_a_control_that_does_not_gate_leaves_no_receipt(rehearse, tmp_path):
    idle = catching("control", LEAK, finds(LEAK), gate=4, gating=False)
    with pytest.raises(RefusedError) as caught:
        rehearse(idle)
    assert caught.value.refusal.code is Code.CROSS_CHECK
    kept_beside(tmp_path, caught.value.refusal)


def test_a_run_in_which_no_rank_spoke_leaves_no_receipt(rehearse, tmp_path, temporary):
    silent = passing("good", raises(WrongError(Refusal(LEAK, "the arm", "b", "c"))), gate=0)
    with pytest.raises(WrongError) as caught:
        rehearse(silent)
    assert caught.value.refusal.code is Code.RANK_DIED
    assert "the arm" in caught.value.refusal.found
    assert receipts(tmp_path) == []
    assert list(temporary.iterdir()) == []


def test_a_survivor_leaves_its_directory_and_no_receipt(rehearse, tmp_path, temporary, monkeypatch):
    from pp4.hold import open as holds

    monkeypatch.setattr(holds, "_GRACE_S", 0.05)

    def leave(context):
        context.hold.own(os.getpid(), "this very test")
        return Finding(None)

    with pytest.raises(UncleanError) as caught:
        rehearse(passing("good", leave, gate=7))
    assert (caught.value.refusal.code, caught.value.exit) == (Code.SURVIVOR, Exit.UNCLEAN)
    assert receipts(tmp_path) == []
    assert len(list(temporary.iterdir())) == 1


def test_a_journal_that_cannot_be_written_ends_the_run(rehearse, tmp_path, temporary, monkeypatch):
    ran = []

    def fill_the_disk(context):
        def fsync(_):
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "fsync", fsync)
        return Finding(None)

    def later(context):
        ran.append(True)
        return Finding(None)

    with pytest.raises(UncleanError) as caught:
        rehearse(passing("good", fill_the_disk, gate=1), passing("good", later, gate=2))
    assert caught.value.refusal.code is Code.UNWRITABLE
    assert ran == []
    assert receipts(tmp_path) == []
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_an_interruption_leaves_nothing(rehearse, tmp_path, temporary, stop):
    with pytest.raises(stop):
        rehearse(passing("good", raises(stop()), gate=5))
    assert receipts(tmp_path) == []
    assert list(temporary.iterdir()) == []


def test_a_receipt_is_written_only_after_the_hold_is_closed(rehearse, temporary, monkeypatch):
    seen = []
    real = receipt.write_new

    def write_new(path, data):
        seen.append(list(temporary.iterdir()))
        real(path, data)

    monkeypatch.setattr(receipt, "write_new", write_new)
    rehearse()
    assert seen == [[]]


def test_a_source_that_changed_during_the_run_leaves_no_receipt(rehearse, tmp_path, monkeypatch):
    """Ranks start again and again: some would have run the old text and some the new."""
    now = [rehearsal.installed_source()]
    for module in (rehearsal, receipt):
        monkeypatch.setattr(module, "installed_source", lambda: now[0])

    def edit(context):
        now[0] = replace(now[0], digest="0" * 64)
        return Finding(None)

    with pytest.raises(RefusedError) as caught:
        rehearse(passing("good", edit, gate=3))
    assert caught.value.refusal.code is Code.SUBJECT_MISMATCH
    assert caught.value.refusal.found == "0" * 64
    assert receipts(tmp_path) == []


# -- real ranks, wrong settings -------------------------------------------------------------


def real(gate, name):
    """An arm of the product, in the place of the small one."""
    (arm,) = (arm for arm in REHEARSED[gate].arms if arm.step.arm == name)
    return arm


def named(arm, place):
    return replace(arm, step=replace(arm.step, arm=place))


def test_a_hold_that_names_other_devices_ends_wrong(rehearse):
    settings = replace(REHEARSAL, devices=("interpreter-0", "interpreter-2"))
    outcome = rehearse(named(real(0, "devices"), "good"), settings=settings)
    assert (outcome.verdict, outcome.exit) == ("wrong", Exit.WRONG)
    arm = outcome.receipt["gates"][0]["arms"][0]
    assert arm["found"] == "failed(DEVICE_MISMATCH)"
    assert arm["facts"]["expected"] == ["interpreter-0", "interpreter-2"]
    assert arm["facts"]["found"] == ["interpreter-0", "interpreter-1"]


def test_a_shape_that_no_kernel_has_ends_wrong(rehearse, temporary):
    shape = REHEARSAL.shape.model_copy(update={"split": 0})
    arm = named(real(2, "launch-order"), "good")
    outcome = rehearse(arm, settings=replace(REHEARSAL, shape=shape))
    assert (outcome.verdict, outcome.exit) == ("wrong", Exit.WRONG)
    (found,) = (one for one in outcome.receipt["gates"][2]["arms"] if one["arm"] == "good")
    assert found["found"] == "failed(BAD_INPUT)"
    assert list(temporary.iterdir()) == []


def test_healthy_blocks_with_bounds_that_are_too_tight_end_wrong(rehearse):
    """A peer that comes late in an honest run: the gate must not call it a pass."""
    patient = REHEARSAL.patient.model_copy(update={"first_polls": 1, "next_polls": 1})
    arm = named(real(2, "skewed-start"), "good")
    # how long a rank waits does not depend on the shape, and the smallest compiles fastest
    settings = replace(REHEARSAL, patient=patient, shape=REHEARSAL.text_shape)
    outcome = rehearse(arm, settings=settings)
    assert outcome.verdict == "wrong"
    (found,) = (one for one in outcome.receipt["gates"][2]["arms"] if one["arm"] == "good")
    assert found["found"] == "failed(PEER_TIMEOUT)"
