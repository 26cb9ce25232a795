"""May a worker with the switch on start here, and if not, what took that away?"""

import copy
import json
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pp4.errors import Code, Exit, Refusal, WrongError
from pp4.qualify import standing
from pp4.qualify.standing import (
    StandingPolicy,
    exit_of,
    gate,
    kept,
    machine_subject,
    receipts_in,
    status,
    summary,
)
from pp4.receipts.admission import Admission, Command, Refused, admit
from pp4.receipts.build import build, seal
from pp4.receipts.digests import file_digest
from pp4.receipts.private import open_leaf, redact
from tests.unit.qualify.machines import NEXT, machine
from tests.unit.receipts import samples

POLICY = StandingPolicy(source=samples.SOURCE["digest"], now=samples.NOW)
RAW = samples.sample("qualification")


def asked(**changes):
    return StandingPolicy(**{"source": samples.SOURCE["digest"], "now": samples.NOW, **changes})


def whats(answer):
    return {reason.what for reason in answer.standing.reasons}


def test_the_machine_that_was_qualified_is_admitted():
    answer = gate(RAW, machine(), POLICY)
    assert answer.refusal is None
    assert answer.standing.stands
    assert answer.exit is Exit.DONE
    assert answer.as_dict()["admitted"] is True
    assert answer.standing.sha256 == file_digest(RAW)


# Each changes one fact that the receipt is bound to: (what, how, a word that names it).
CHANGES = {
    **{
        f"uuid of GPU {i}": ("gpu", lambda m, i=i: m["gpus"][i].update(uuid=NEXT), samples.UUIDS[i])
        for i in (0, 1)
    },
    **{
        f"GPU {i} is gone": ("gpu", lambda m, i=i: m["gpus"].pop(i), samples.UUIDS[i])
        for i in (0, 1)
    },
    **{
        f"model of GPU {i}": ("gpu", lambda m, i=i: m["gpus"][i].update(name="B200"), "B200")
        for i in (0, 1)
    },
    **{
        f"driver of GPU {i}": ("driver", lambda m, i=i: m["gpus"][i].update(driver="580"), "580")
        for i in (0, 1)
    },
    **{
        f"bytes of library {row['name']}": (
            "library",
            lambda m, i=i: m["libraries"][i].update(sha256=samples.digest("0")),
            row["name"],
        )
        for i, row in enumerate(samples.LIBRARIES)
    },
    **{
        f"library {row['name']} is not loaded": (
            "library",
            lambda m, i=i: m["libraries"].pop(i),
            row["name"],
        )
        for i, row in enumerate(samples.LIBRARIES)
    },
    **{
        f"{member} of kernel {i}": (
            "kernel",
            lambda m, i=i, member=member: m["kernels"][i].update({member: samples.digest("0")}),
            f"{row['name']}/{row['rank']}/sm_90",
        )
        for i, row in enumerate(samples.kernels(2))
        for member in ("ptx_sha256", "cubin_sha256")
    },
    **{
        f"target of kernel {i}": (
            "kernel",
            lambda m, i=i: m["kernels"][i].update(target="sm_100"),
            f"sampled_fused.pair/{i}/sm_90",
        )
        for i in (0, 1)
    },
    **{
        f"kernel {i} is not compiled": (
            "kernel",
            lambda m, i=i: m["kernels"].pop(i),
            f"sampled_fused.pair/{i}/sm_90",
        )
        for i in (0, 1)
    },
    "a second library of the same name": (
        "library",
        lambda m: m["libraries"].append({**m["libraries"][0], "sha256": samples.digest("0")}),
        "libcuda.so.1",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_each_fact_that_changed_refuses_and_is_named(name):
    what, change, word = CHANGES[name]
    facts = machine()
    change(facts)
    answer = gate(RAW, facts, POLICY, "q.json")
    assert whats(answer) == {what}
    assert any(word in reason.found for reason in answer.standing.reasons)
    refusal = answer.refusal
    assert refusal.code is Code.SUBJECT_MISMATCH
    assert refusal.source == "q.json"
    assert word in refusal.found
    assert refusal.next.startswith("pp4 ")
    assert answer.exit is Exit.REFUSED


@settings(max_examples=40)
@given(st.sets(st.sampled_from([name for name in CHANGES if "gone" not in name]), max_size=4))
def test_whatever_changed_status_and_admission_agree(names):
    """Reasons are collected beside admission; they must never tell another story."""
    facts = machine()
    for name in names:
        # Two changes may meet in one place, and the later one finds it gone.
        try:
            CHANGES[name][1](facts)
        except IndexError:
            continue
    try:
        subject = machine_subject(facts, samples.SOURCE["digest"])
    except WrongError:
        # Both GPUs were given the same UUID.
        assert sum("uuid" in name for name in names) == 2
        return
    admitted = isinstance(admit(Command.WORKER_ON, [("qualification", RAW)], subject), Admission)
    answer = gate(RAW, facts, POLICY)
    assert admitted is (not names) is answer.standing.stands is (answer.refusal is None)


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m["gpus"].append({**m["gpus"][0], "uuid": NEXT, "name": "L4", "driver": "570.1"}),
        lambda m: m["gpus"].reverse(),
        lambda m: m["libraries"].append({"name": "libmore.so", "sha256": samples.digest("0")}),
        lambda m: m["libraries"][0].update(build_id=None),
        lambda m: m["kernels"].reverse(),
        lambda m: m.update(boot_id="boot-2"),
        lambda m: m["gpus"][0].update(vbios=None),
    ],
)
def test_what_the_receipt_is_not_bound_to_may_change(change):
    facts = machine()
    change(facts)
    assert gate(RAW, facts, POLICY).refusal is None


def test_admission_decides_whatever_the_reasons(monkeypatch):
    refusal = Refusal(Code.INTERNAL, "evidence", "evidence that can be judged", "none")
    monkeypatch.setattr(standing, "admit", lambda *_: Refused(refusal))
    answer = gate(RAW, machine(), POLICY)
    assert answer.exit is Exit.REFUSED
    assert answer.refusal.code is Code.INTERNAL
    assert whats(answer) == {"receipt"}


def test_another_source_is_historical():
    policy = asked(source=samples.digest("0"))
    answer = gate(RAW, machine(), policy)
    assert whats(answer) == {"source"}
    assert answer.refusal.code is Code.HISTORICAL
    assert samples.digest("0") in answer.refusal.expected
    assert samples.SOURCE["digest"] in answer.refusal.found


def test_without_a_policy_the_installed_source_counts():
    assert whats(gate(RAW, machine())) == {"source"}


def failed_body():
    body = samples.qualification()
    body["gates"][2]["arms"][0]["found"] = "failed(OUTPUT_MISMATCH)"
    body["verdict"] = "wrong"
    return samples.with_journal(body)


@pytest.mark.parametrize(
    ("raw", "what", "code"),
    [
        (build(samples.qualification("kernels")), "scope", Code.NOT_PROVEN),
        (build(failed_body()), "verdict", Code.NOT_PROVEN),
        (samples.sample("rehearsal"), "receipt", Code.WRONG_KIND),
        (samples.sample("solo"), "receipt", Code.WRONG_KIND),
        (RAW + b"\n", "receipt", Code.NOT_CANONICAL),
        (b"junk", "receipt", Code.NOT_JSON),
        (b"", "receipt", Code.NOT_JSON),
        (seal(redact(json.loads(RAW))), "gpu", Code.SUBJECT_MISMATCH),
    ],
)
def test_a_receipt_that_will_not_do_is_refused_whatever_the_machine(raw, what, code):
    answer = gate(raw, machine(), POLICY)
    assert whats(answer) == {what}
    assert answer.refusal.code is code
    assert answer.exit is Exit.REFUSED


def test_firmware_counts_where_the_receipt_states_it():
    body = samples.qualification()
    body["gpus"][1]["facts"] = {"vbios": "96.00"}
    raw = build(body)
    assert gate(raw, machine(), POLICY).refusal is None
    for here in ("97.00", None):
        facts = machine()
        facts["gpus"][1]["vbios"] = here
        answer = gate(raw, facts, POLICY)
        assert whats(answer) == {"firmware"}
        assert answer.refusal.code is Code.SUBJECT_MISMATCH
        assert "rank 1" in answer.refusal.found
        assert "firmware" in answer.refusal.where


def test_firmware_that_was_not_told_then_is_not_compared():
    body = samples.qualification()
    body["gpus"][1]["facts"] = {"vbios": "not told"}
    for here in ("97.00", None):
        facts = machine()
        facts["gpus"][1]["vbios"] = here
        assert gate(build(body), facts, POLICY).refusal is None


def test_age_ends_it_where_the_policy_says_so():
    facts = machine()
    assert gate(RAW, facts, asked(max_age=timedelta(days=1))).refusal is None
    answer = gate(RAW, facts, asked(max_age=timedelta(hours=23)))
    assert whats(answer) == {"age"}
    assert answer.refusal.code is Code.TOO_OLD


def test_a_reboot_ends_it_where_the_policy_says_so():
    policy = asked(same_boot=True)
    assert gate(RAW, machine(), policy).refusal is None
    for here in ("boot-2", None):
        facts = {**machine(), "boot_id": here}
        assert gate(RAW, facts, POLICY).refusal is None
        answer = gate(RAW, facts, policy)
        assert whats(answer) == {"boot"}
        assert "boot" in answer.refusal.where
        assert "boot-1" in answer.refusal.found


def test_the_boot_may_stand_among_the_private_leaves():
    body = samples.qualification()
    body["hold"]["boot_id"] = None
    body["private"]["host.boot_id"] = open_leaf("boot-1", salt="1" * 64)
    raw, policy = build(body), asked(same_boot=True)
    assert gate(raw, machine(), policy).refusal is None
    assert whats(gate(raw, {**machine(), "boot_id": "boot-2"}, policy)) == {"boot"}


def test_every_reason_is_named_and_not_only_the_first():
    facts = machine()
    for row in facts["gpus"]:
        row["driver"] = "580"
    for row in facts["libraries"]:
        row["sha256"] = samples.digest("0")
    standing = gate(RAW, facts, asked(source=samples.digest("0"))).standing
    assert [reason.what for reason in standing.reasons] == [
        "source", "driver", "library", "library",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.pop("gpus"),
        lambda m: m.update(gpus=[]),
        lambda m: m["gpus"].append(m["gpus"][0]),
        lambda m: m["kernels"].append(m["kernels"][0]),
        lambda m: m["kernels"][0].update(ptx_sha256=None),
        lambda m: m["kernels"][0].update(rank=2),
        lambda m: m["gpus"][0].update(driver=""),
        lambda m: m.update(more=1),
    ],
)
def test_facts_of_another_shape_are_a_bad_frame(change):
    facts = machine()
    change(facts)
    for call in (lambda: gate(RAW, facts, POLICY), lambda: status([], facts, POLICY)):
        with pytest.raises(WrongError) as caught:
            call()
        assert caught.value.refusal.code is Code.BAD_FRAME


# -- status


@pytest.fixture
def stored(tmp_path):
    """Receipts of every sort in one directory."""

    def store(**named):
        for name, raw in named.items():
            (tmp_path / f"{name}.json").write_bytes(raw)
        return receipts_in([tmp_path])

    return store


def newer(days, **changes):
    body = {**samples.qualification(), "made_at": f"2026-03-0{days}T12:00:00Z"}
    return build({**body, **changes})


def test_status_looks_at_qualifications_alone(stored):
    paths = stored(**{kind: samples.sample(kind) for kind in samples.KINDS})
    (standing,) = status(paths, machine(), POLICY)
    assert standing.file.endswith("/qualification.json")
    assert standing.stands
    assert standing.gpus == "H200, H200"
    line = summary([standing])
    assert line.startswith("qualified: ")
    assert standing.file in line
    assert exit_of([standing]) is Exit.DONE


def test_status_says_of_each_what_invalidated_it(stored):
    broken = copy.deepcopy(samples.LIBRARIES)
    broken[1]["sha256"] = samples.digest("0")
    paths = stored(
        a=newer(1, libraries=broken),
        b=build(samples.qualification("kernels")),
        c=RAW[:-1],
        d=newer(2),
    )
    found = status(paths, machine(), POLICY)
    assert [s.file[-6:] for s in found] == ["d.json", "a.json", "b.json", "c.json"]
    assert [[r.what for r in s.reasons] for s in found] == [
        [], ["library"], ["scope"], ["receipt"],
    ]  # fmt: skip
    assert "libcudart.so.13" in found[1].reasons[0].found
    assert "opens nothing" in found[2].reasons[0].found
    assert exit_of(found) is Exit.DONE


def test_what_stands_comes_before_what_is_newer(stored):
    hold = {**samples.qualification()["hold"], "boot_id": "boot-9"}
    paths = stored(a=newer(1), b=newer(2, hold=hold))
    found = status(paths, machine(), POLICY)
    assert [s.file[-6:] for s in found] == ["b.json", "a.json"]
    found = status(paths, machine(), asked(same_boot=True))
    assert [s.file[-6:] for s in found] == ["a.json", "b.json"]


def test_nothing_stands_on_a_machine_that_cannot_say_what_it_is(stored):
    found = status(stored(a=RAW), None, POLICY)
    assert [[r.what for r in s.reasons] for s in found] == [["machine"]]
    assert exit_of(found) is Exit.REFUSED
    assert "qualified for nothing" in summary(found)


def test_the_line_names_what_is_against_the_nearest(stored):
    facts = machine()
    facts["gpus"][0]["driver"] = facts["gpus"][1]["driver"] = "580"
    found = status(stored(a=RAW, b=build(samples.qualification("kernels"))), facts, POLICY)
    assert summary(found).startswith("qualified for nothing: ")
    assert summary(found).endswith("a.json does not stand, because of driver")
    assert summary([]) == "qualified for nothing: there is no qualification"
    assert exit_of([]) is Exit.REFUSED


def test_the_same_receipt_in_two_places_counts_once(stored, tmp_path):
    paths = stored(a=RAW, b=RAW)
    (standing,) = status(paths, machine(), POLICY)
    assert standing.file.endswith("a.json")


def test_a_file_that_cannot_be_read_is_said(tmp_path):
    (standing,) = status([tmp_path / "gone.json"], machine(), POLICY)
    assert [(r.what, r.code) for r in standing.reasons] == [("receipt", Code.UNREADABLE)]
    assert standing.sha256 is None
    assert json.dumps(standing.as_dict())


def test_receipts_are_kept_with_the_state(tmp_path):
    assert kept(tmp_path) == []
    (tmp_path / "receipts").mkdir()
    (tmp_path / "closed.json").touch()
    (tmp_path / "receipts" / "q.json").touch()
    assert kept(tmp_path) == [tmp_path / "receipts" / "q.json"]


def test_places_are_files_and_directories(tmp_path):
    (tmp_path / "d").mkdir()
    for name in ("d/b.json", "d/a.json", "d/c.txt", "e.rcpt"):
        (tmp_path / name).touch()
    (tmp_path / "d" / "deeper.json").mkdir()
    asked_for = [tmp_path / "d", tmp_path / "e.rcpt", tmp_path / "gone"]
    names = [str(path.relative_to(tmp_path)) for path in receipts_in(asked_for)]
    assert names == ["d/a.json", "d/b.json", "d/deeper.json", "e.rcpt", "gone"]
