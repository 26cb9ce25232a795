"""A run on two GPUs or one, from the HOLD to the stored receipt, with GPUs that are made up."""

import json
import os
import socket
import subprocess
from dataclasses import replace

import pytest

from pp4.clock import Deadline
from pp4.errors import Code, Exit, Refusal, RefusedError, TimedOutError, UncleanError, WrongError
from pp4.hold.processes import Owned
from pp4.qualify import far, held, physical, soak
from pp4.qualify.arms import Finding
from pp4.qualify.gates import PHYSICAL, SOLO
from pp4.qualify.pair_qualify import plan
from pp4.receipts.admission import Command, Refused, Subject, admit
from pp4.receipts.digests import file_digest, installed_source
from pp4.receipts.journal import first_break, head
from pp4.receipts.verify import Policy, verify
from pp4.run import host, receipt
from tests.unit.qualify.fakes import finds, raises
from tests.unit.qualify.gpus import PLACES, UUIDS, gpu, report
from tests.unit.qualify.physical_runs import LIBRARIES, QUIET, lab, two_gpus
from tests.unit.receipts.samples import sample


@pytest.fixture
def runs(tmp_path, monkeypatch):
    return lab(tmp_path, monkeypatch)


def verified(outcome, kind):
    """How the product's own check of the stored file ends."""
    return verify([outcome.receipt_path], Policy(kind=kind, current=True)).exit


def bare(outcome):
    """The receipt as text, without what is meant to be taken out."""
    return json.dumps({**outcome.receipt, "private": {}})


# -- a run that goes well ---------------------------------------------------------------------


def test_a_pair_ends_in_a_qualification_that_verifies(runs):
    outcome = runs.pair()
    assert (outcome.verdict, outcome.exit, outcome.differences) == ("qualified", Exit.DONE, ())
    assert verified(outcome, "qualification") is Exit.DONE
    tree = outcome.receipt
    assert json.loads(outcome.receipt_path.read_text()) == tree
    name = f"qualification-{tree['hold']['id']}"
    assert runs.files() == [f"{name}.closed", f"{name}.json"]
    # what the host says of the end, without what names it
    ((tombstone,), closed) = runs.tombstones(), json.loads((runs.out / runs.files()[0]).read_text())
    assert closed == {k: v for k, v in tombstone.items() if k not in ("gpus", "boot_id")}
    assert (closed["hold"], closed["why"]) == (tree["hold"]["id"], "done")
    assert (tree["hold"]["transport"], tree["hold"]["host_key"]) == ("local", None)
    assert (tree["kind"], tree["scope"], tree["hardware_executed"]) == (
        "qualification",
        "kernels",
        True,
    )
    assert tree["limits"] == list(physical.PAIR_LIMITS)
    assert tree["evidence"] == []
    assert [one["name"] for one in tree["libraries"]] == list(LIBRARIES)
    found = [(one["name"], one["rank"]) for one in tree["kernels"]]
    names = ("sampled_fused.pair", "sampled_fused.solo")
    assert found == [(name, rank) for name in names for rank in (0, 1)]
    steps = [(g["gate"], a["arm"], a["found"]) for g in tree["gates"] for a in g["arms"]]
    assert steps == [(step.gate, step.arm, step.expected) for step in plan(PHYSICAL)]


def test_one_gpu_ends_in_a_solo_receipt_that_verifies(runs):
    outcome = runs.solo(gpu="1")
    assert (outcome.verdict, outcome.exit) == ("qualified", Exit.DONE)
    assert verified(outcome, "solo") is Exit.DONE
    assert verified(outcome, "qualification") is Exit.REFUSED
    tree = outcome.receipt
    name = f"solo-{tree['hold']['id']}"
    assert runs.files()[:2] == [f"{name}.closed", f"{name}.json"]
    assert (tree["kind"], tree["scope"], tree["limits"]) == (
        "solo",
        "solo",
        list(physical.SOLO_LIMITS),
    )
    # two processes ran, on one device
    assert [(one["name"], one["rank"]) for one in tree["kernels"]] == [("sampled_fused.solo", 0)]
    assert [one["rank"] for one in tree["gpus"]] == [0]
    assert tree["private"]["gpu.0.uuid"]["value"] == UUIDS[1]
    assert tree["private"]["gpu.0.pci_id"]["value"] == PLACES[1]
    assert tree["topology"] == {}
    steps = [(g["gate"], a["arm"]) for g in tree["gates"] for a in g["arms"]]
    assert steps == [(step.gate, step.arm) for step in plan(SOLO)]


def test_without_a_name_the_first_gpu_is_taken(runs):
    assert runs.solo().receipt["private"]["gpu.0.uuid"]["value"] == UUIDS[0]


def test_the_gpus_are_in_the_receipt_before_and_after(runs):
    runs.now = [replace_gpu(one, temperature_c=71, slowed_by=()) for one in two_gpus()]
    tree = runs.pair().receipt
    first, second = tree["gpus"]
    assert [one["rank"] for one in (first, second)] == [0, 1]
    assert (first["name"], first["driver"]) == ("H200", "570.1")
    assert (first["facts"]["vbios"], first["facts"]["temperature_c_after"]) == ("96.00", 71)
    # nothing slows it: that is an answer, and not none
    assert first["facts"]["slowed_by_after"] == ""
    assert first["facts"]["power_limit_mw"] == "not told"
    assert first["memory_bytes"] is None
    assert [one["uuid"] for one in (first, second)] == ["gpu.0.uuid", "gpu.1.uuid"]
    values = [tree["private"][name]["value"] for name in ("gpu.0.uuid", "gpu.1.uuid")]
    assert values == list(UUIDS)
    assert tree["topology"]["0_to_1.write"] == tree["topology"]["1_to_0.write"] == "ok"
    assert tree["topology"]["0_to_1.topology"] == "node"


def replace_gpu(one, **changes):
    return one.model_copy(update=changes)


def test_both_ways_are_told_of_the_ranks_and_not_of_the_driver_s_numbers(runs):
    """The pair may be any two of a host's GPUs, and the driver's numbers are not the ranks'."""
    others = [gpu(0, mig=True), gpu(1), gpu(2, pci_bus_id="00000000:D8:00.0")]
    runs.report = report(*others)
    runs.now = others
    tree = runs.pair().receipt
    assert set(tree["topology"]) == {
        f"{way}.{what}"
        for way in ("0_to_1", "1_to_0")
        for what in ("read", "write", "atomics", "nvlink", "topology")
    }
    assert tree["private"]["gpu.0.uuid"]["value"] == others[1].uuid


def test_a_qualification_of_kernels_opens_nothing(runs):
    raw = runs.pair().receipt_path.read_bytes()
    subject = Subject(source_digest=installed_source().digest)
    for command in Command:
        for role in ("qualification", "identity_reference"):
            assert isinstance(admit(command, [(role, raw)], subject), Refused)


# -- its HOLD ---------------------------------------------------------------------------------


def test_the_hold_names_the_gpus_and_is_over_before_there_is_a_receipt(runs, monkeypatch):
    seen = []

    def look(context):
        seen.append((context.hold.gpus, context.settings.devices, runs.tombstones()))
        return Finding(None)

    stored = []
    real = receipt.write_new
    monkeypatch.setattr(
        receipt, "write_new", lambda path, raw: (stored.append(runs.tombstones()), real(path, raw))
    )
    outcome = runs.pair({"gate-5/healthy": look})
    assert seen == [(UUIDS, UUIDS, [])]
    ((tombstone,),) = stored
    assert tombstone["hold"] == outcome.receipt["hold"]["id"]
    assert outcome.receipt["hold"]["exclusion"] == "private"
    # a boot is named where it can be taken out, and binaries stay for the next run
    assert outcome.receipt["private"]["host.boot_id"]["value"]


def test_fences_rise_from_run_to_run(runs):
    fences = [int(run().receipt["hold"]["fence"]) for run in (runs.pair, runs.solo, runs.pair)]
    assert fences[0] < fences[1] < fences[2]


@pytest.mark.parametrize("second", ["pair", "solo"])
def test_of_two_runs_at_once_the_second_is_told_who_holds_the_gpus(runs, second):
    caught = []

    def again(context):
        inner = lab(runs.root, runs.monkeypatch)
        with pytest.raises(RefusedError) as error:
            getattr(inner, second)()
        caught.append((error.value, context.hold.hold_id, runs.files()))
        return Finding(None)

    outcome = runs.pair({"gate-2/ties": again})
    ((error, hold_id, files),) = caught
    assert (error.refusal.code, error.exit) == (Code.HELD_BY, Exit.REFUSED)
    assert hold_id in error.refusal.found
    assert str(os.getpid()) in error.refusal.found
    assert files == []
    # and the first one has not noticed
    assert outcome.verdict == "qualified"


def test_the_other_gpu_of_a_host_is_free_meanwhile(runs):
    inner = []

    def again(context):
        inner.append(lab(runs.root, runs.monkeypatch).solo(gpu="1"))
        return Finding(None)

    outcome = runs.solo({"gate-2/ties": again}, gpu="0")
    assert [one.verdict for one in (outcome, *inner)] == ["qualified", "qualified"]


def test_a_survivor_leaves_no_receipt(runs, monkeypatch):
    monkeypatch.setattr("pp4.hold.local_hold._GRACE_S", 0.05)
    # nothing reaches it, as one that hangs in a driver
    monkeypatch.setattr(Owned, "signal", lambda *_: None)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as hanging:

        def leave(context):
            context.hold.own(hanging.pid, "a rank that hangs")
            return Finding(None)

        with pytest.raises(UncleanError) as caught:
            runs.pair({"gate-7/settled": leave})
        hanging.kill()
    assert (caught.value.refusal.code, caught.value.exit) == (Code.SURVIVOR, Exit.UNCLEAN)
    assert runs.files() == []
    # the GPUs are given to nobody until somebody has looked
    with pytest.raises(RefusedError) as refused:
        runs.pair()
    assert refused.value.refusal.code is Code.QUARANTINED


# -- a run that does not go well --------------------------------------------------------------

LEAK = Code.LEAK
OTHERWISE = {
    "a pass arm finds something": ("gate-4/neighbours", finds(LEAK), "wrong", Exit.WRONG),
    "a control is missed": ("gate-5/late-answer", finds(), "wrong", Exit.WRONG),
    "a control is caught by another code": ("gate-0/wrong-device", finds(LEAK), "wrong", 1),
    "an arm has a bug": ("gate-7/settled", raises(KeyError("x")), "wrong", Exit.WRONG),
    "a gpu is not idle": ("gate-0/foreign-memory", finds(), "wrong", Exit.WRONG),
    "a wait runs out": (
        "gate-3/padded-rows",
        raises(TimedOutError(Refusal(Code.STEP_TIMEOUT, "a", "b", "c"))),
        "timeout",
        Exit.TIMEOUT,
    ),
}


@pytest.mark.parametrize("name", OTHERWISE)
def test_one_arm_that_comes_out_otherwise_decides_and_leaves_its_receipt(runs, name):
    arm, run, verdict, code = OTHERWISE[name]
    outcome = runs.pair({arm: run})
    assert (outcome.verdict, outcome.exit) == (verdict, code)
    assert outcome.exit is not Exit.DONE
    assert outcome.receipt_path.name in runs.files()
    # an honest account of a failed run is intact
    assert verified(outcome, "qualification") is Exit.DONE
    assert json.loads(outcome.receipt_path.read_text())["verdict"] == verdict


@pytest.mark.parametrize("repetitions", [0, 1])
def test_what_failed_at_its_first_try_still_leaves_a_receipt(runs, repetitions):
    outcome = runs.pair({"gate-2/many-rows": lambda _: Finding(LEAK, {}, repetitions)})
    assert outcome.verdict == "wrong"
    assert verified(outcome, "qualification") is Exit.DONE


def test_a_solo_run_with_a_failing_arm_is_wrong_and_opens_nothing(runs):
    outcome = runs.solo({"gate-2/edges": finds(LEAK)})
    assert (outcome.verdict, outcome.exit) == ("wrong", Exit.WRONG)
    assert verified(outcome, "solo") is Exit.DONE
    with pytest.raises(RefusedError) as caught:
        runs.pair(evidence=[("identity_reference", outcome.receipt_path.read_bytes())])
    assert caught.value.refusal.code is Code.NOT_PROVEN


def test_a_run_in_which_no_rank_spoke_leaves_no_receipt(runs):
    first = plan(PHYSICAL)[0].name
    with pytest.raises(WrongError) as caught:
        runs.pair({first: raises(WrongError(Refusal(LEAK, "the arm", "b", "c")))})
    assert caught.value.refusal.code is Code.RANK_DIED
    assert "the arm" in caught.value.refusal.found
    assert not runs.out.exists()
    assert len(runs.tombstones()) == 1


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_an_interruption_leaves_no_receipt_and_lets_go(runs, stop):
    with pytest.raises(stop):
        runs.pair({"gate-5/killed": raises(stop())})
    assert not runs.out.exists()
    assert [one["why"] for one in runs.tombstones()] == ["cancelled"]
    assert runs.pair().verdict == "qualified"


def test_a_source_that_changed_during_the_run_leaves_no_receipt(runs, monkeypatch):
    now = [installed_source()]
    for module in (far, held, receipt):
        monkeypatch.setattr(module, "installed_source", lambda: now[0])

    def edit(context):
        now[0] = replace(now[0], digest="0" * 64)
        return Finding(None)

    with pytest.raises(RefusedError) as caught:
        runs.pair({"gate-3/padded-rows": edit})
    assert caught.value.refusal.code is Code.SUBJECT_MISMATCH
    assert not runs.out.exists()


# -- a body that is no receipt ----------------------------------------------------------------


@pytest.mark.parametrize("floors", [{}, {"gate-2/many-rows": 99_999}])
def test_what_contradicts_itself_is_kept_beside_and_is_no_receipt(runs, floors):
    """Too few repetitions under a good verdict: hours of a GPU are not thrown away for it."""
    with pytest.raises(RefusedError) as caught:
        runs.pair(floors=floors)
    refusal = caught.value.refusal
    assert (refusal.code, caught.value.exit) == (Code.GATE_NOT_RUN, Exit.REFUSED)
    (name,) = runs.files()
    assert name.endswith(".rejected")
    assert refusal.left == str(runs.out / name)
    kept = json.loads((runs.out / name).read_text())
    assert (kept["verdict"], kept["kind"]) == ("qualified", "qualification")
    found = {arm["arm"] for gate in kept["gates"] for arm in gate["arms"]}
    assert found == {step.arm for step in plan(PHYSICAL)}
    # nobody can take it for one
    assert verify([runs.out / name], Policy()).exit is not Exit.DONE
    assert len(runs.tombstones()) == 1


def test_a_rejected_body_is_never_written_over(runs):
    for _ in range(2):
        with pytest.raises(RefusedError):
            runs.pair(floors={})
    assert len(runs.files()) == 2


# -- what has to be there before anything is held ----------------------------------------------


def no_hold(runs):
    return not (runs.root / "state" / "holds").exists() or not list(
        (runs.root / "state" / "holds").iterdir()
    )


@pytest.mark.parametrize("below", ["", "below/it"])
def test_a_directory_that_takes_no_receipt_refuses_before_the_hold(runs, below, monkeypatch):
    (runs.root / "file").write_text("mine")
    monkeypatch.setattr(type(runs), "out", runs.root / "file" / below)
    with pytest.raises(RefusedError) as caught:
        runs.pair()
    assert caught.value.refusal.code is Code.UNWRITABLE
    assert no_hold(runs)


@pytest.mark.parametrize("name", ["torch", "triton", "numpy"])
@pytest.mark.parametrize("run", ["pair", "solo"])
def test_a_missing_package_refuses_before_the_gpus_are_looked_at(runs, monkeypatch, name, run):
    monkeypatch.setattr(receipt, "find_spec", lambda one: None if one == name else object())
    monkeypatch.setattr(host, "look_at_gpus", lambda: pytest.fail("looked"))
    with pytest.raises(RefusedError) as caught:
        getattr(runs, run)()
    assert caught.value.refusal.code is Code.MISSING_PACKAGE
    command = {"pair": "pp4 pair-qualify --hold local", "solo": "pp4 solo-qualify"}[run]
    assert caught.value.refusal.where == command
    assert list(runs.root.iterdir()) == []


def test_of_more_than_one_fault_the_first_in_the_way_of_a_hold_is_said(runs, monkeypatch):
    """Packages, GPUs, evidence, a place for the receipt: in this order, and nobody holds."""
    (runs.root / "file").write_text("mine")
    monkeypatch.setattr(type(runs), "out", runs.root / "file")
    monkeypatch.setattr(held, "open_window", lambda *_: pytest.fail("asked for a HOLD"))
    monkeypatch.setattr(receipt, "find_spec", lambda one: None)
    good, runs.report = runs.report, report(two_gpus()[0])
    evidence = [("identity_reference", b"{}")]

    def refused():
        with pytest.raises(RefusedError) as caught:
            runs.pair(evidence=evidence)
        return caught.value.refusal.code

    assert refused() is Code.MISSING_PACKAGE
    monkeypatch.setattr(receipt, "find_spec", lambda one: object())
    assert refused() is Code.NO_GPU_PAIR
    runs.report = good
    assert refused() is Code.UNKNOWN_VERSION
    evidence.clear()
    assert refused() is Code.UNWRITABLE
    assert no_hold(runs)


@pytest.mark.parametrize("name", ["2", "GPU-ffff", "first"])
def test_a_gpu_that_nobody_has_is_refused(runs, name):
    with pytest.raises(RefusedError) as caught:
        runs.solo(gpu=name)
    assert caught.value.refusal.code is Code.NO_GPU_PAIR
    assert list(runs.root.iterdir()) == []


# -- evidence ---------------------------------------------------------------------------------


def test_a_solo_receipt_that_a_pair_has_to_match_is_in_its_evidence(runs):
    raw = runs.solo().receipt_path.read_bytes()
    outcome = runs.pair(evidence=[("identity_reference", raw)])
    assert outcome.receipt["evidence"] == [
        {"role": "identity_reference", "kind": "solo", "sha256": file_digest(raw)}
    ]
    assert verified(outcome, "qualification") is Exit.DONE


def test_evidence_that_does_not_fit_refuses_before_the_hold(runs):
    pair = runs.pair().receipt_path.read_bytes()
    holds = len(runs.tombstones())
    solo = runs.solo().receipt_path.read_bytes()
    wrong = {
        "a qualification": [("identity_reference", pair)],
        "another role": [("budget", solo)],
        "twice": [("identity_reference", solo)] * 2,
        "no receipt": [("identity_reference", b"{}")],
        "a rehearsal": [("identity_reference", sample("rehearsal"))],
        "of another source": [("identity_reference", sample("solo"))],
        "changed": [("identity_reference", solo.replace(b"qualified", b"qualifieD"))],
    }
    for name, evidence in wrong.items():
        with pytest.raises(RefusedError):
            runs.pair(evidence=evidence)
        assert len(runs.tombstones()) == holds + 1, name


# -- the soak ---------------------------------------------------------------------------------

SOAK = {"positions": "1000", "mismatches": "0", "wait_histogram": [0, 5, 9]}


def soaking(monkeypatch, result, code=None):
    """Put a result in the place of the soak; -> what it was asked for."""
    asked = []

    def small(context, minutes):
        asked.append((minutes, context.hold.gpus))
        if isinstance(result, Exception):
            raise result
        facts = {
            "rows": int(result["positions"]),
            "mismatches": int(result["mismatches"]),
            "waits_below_2_to": tuple(result["wait_histogram"]),
        }
        return Finding(code, facts, 1000)

    monkeypatch.setattr(soak, "_soak", small)
    return asked


def test_a_soak_is_in_the_receipt(runs, monkeypatch):
    asked = soaking(monkeypatch, SOAK)
    outcome = runs.pair(soak_minutes=3)
    assert asked == [(3, UUIDS)]
    assert outcome.receipt["soak"] == SOAK
    assert verified(outcome, "qualification") is Exit.DONE
    (gate,) = (gate for gate in outcome.receipt["gates"] if gate["gate"] == 2)
    assert (gate["arms"][-1]["arm"], gate["arms"][-1]["found"]) == ("soak", "pass")


def test_nothing_is_soaked_unless_it_is_asked_for(runs, monkeypatch):
    asked = soaking(monkeypatch, SOAK)
    assert runs.pair().receipt.get("soak") is None
    assert asked == []


def test_a_mismatch_in_the_soak_is_wrong_and_leaves_its_receipt(runs, monkeypatch):
    """The rare race that a soak is for: what it found must not be lost."""
    soaking(monkeypatch, {**SOAK, "mismatches": "1"}, Code.OUTPUT_MISMATCH)
    outcome = runs.pair(soak_minutes=3)
    assert (outcome.verdict, outcome.exit) == ("wrong", Exit.WRONG)
    assert outcome.receipt["soak"]["mismatches"] == "1"
    assert verified(outcome, "qualification") is Exit.DONE


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (WrongError(Refusal(Code.RANK_DIED, "stream", "a rank", "none")), "wrong"),
        (TimedOutError(Refusal(Code.STEP_TIMEOUT, "stream", "an answer", "none")), "timeout"),
    ],
)
def test_a_soak_that_breaks_off_leaves_what_the_gates_found(runs, monkeypatch, error, verdict):
    """A rank that dies after an hour of soaking is a finding, and the gates' are not lost by it."""
    soaking(monkeypatch, error)
    outcome = runs.pair(soak_minutes=3)
    assert outcome.verdict == verdict
    assert outcome.receipt_path.is_file()


def test_a_hold_that_runs_out_leaves_a_receipt_of_what_was_found_before(runs, monkeypatch):
    """The rest did not run, and says so."""

    def last(context):
        context.hold._grant = replace(
            context.hold._grant, deadline=Deadline.after(context.hold.clock, 0.0)
        )
        return Finding(None)

    outcome = runs.pair({"gate-4/neighbours": last})
    assert (outcome.verdict, outcome.exit) == ("inconclusive", Exit.INCONCLUSIVE)
    found = [
        (f"gate-{g['gate']}/{a['arm']}", a["found"])
        for g in outcome.receipt["gates"]
        for a in g["arms"]
    ]
    place = [name for name, _ in found].index("gate-4/neighbours")
    assert not any(text.startswith("not_run(") for _, text in found[: place + 1])
    assert {text for _, text in found[place + 1 :]} == {"not_run(DEADLINE)"}
    assert verified(outcome, "qualification") is Exit.DONE


def test_a_gpu_that_is_lost_at_the_end_does_not_cost_the_receipt(runs):
    runs.now = RefusedError(Refusal(Code.NO_GPU_PAIR, "GPU", "a GPU", "lost"))
    outcome = runs.pair()
    assert "temperature_c_after" not in outcome.receipt["gpus"][0]["facts"]
    assert verified(outcome, "qualification") is Exit.DONE


# -- names of machines ------------------------------------------------------------------------


def saying(*texts):
    """An arm that fails with facts in which these texts stand wherever a text can."""
    facts = {"text": f"on {texts[0]}", "many": tuple(texts), "pair": " and ".join(texts)}
    return lambda context: Finding(LEAK, facts)


def test_no_name_of_a_gpu_is_left_but_where_it_can_be_taken_out(runs):
    outcome = runs.pair({"gate-0/devices": saying(*UUIDS), "gate-5/killed": saying(*PLACES)})
    text = bare(outcome)
    for name in (*UUIDS, *PLACES):
        assert name not in text
    arms = {a["arm"]: a["facts"] for g in outcome.receipt["gates"] for a in g["arms"]}
    assert arms["devices"]["text"] == "on gpu.0.uuid"
    assert arms["devices"]["pair"] == "gpu.0.uuid and gpu.1.uuid"
    assert arms["killed"]["many"] == ["gpu.0.pci_id", "gpu.1.pci_id"]
    assert outcome.receipt["settings"]["devices"] == ["gpu.0.uuid", "gpu.1.uuid"]
    # taken out, it is a receipt still, and says as much
    assert verified(outcome, "qualification") is Exit.DONE


def test_the_journal_stays_as_it_was_written(runs):
    seen = []

    def remember(context):
        seen.append(context.hold.journal)
        return Finding(LEAK, {"text": UUIDS[0]})

    outcome = runs.pair({"gate-7/settled": remember})
    journal = outcome.receipt["journal"]
    assert journal == [dict(line) for line in seen[0].lines]
    assert first_break(journal) is None
    assert head(journal) == outcome.receipt["hold"]["journal_head"]
    assert not any(name in json.dumps(journal) for name in (*UUIDS, *PLACES))


def test_names_of_the_host_s_other_gpus_are_not_left_either(runs):
    """A refusal that lists what is there, as for a GPU that fell off its bus."""
    third = gpu(2, memory_used_bytes=QUIET)
    runs.report = report(*two_gpus(), third)
    there = ", ".join(f"{one.index}: {one.uuid}" for one in (*two_gpus(), third))
    lost = RefusedError(Refusal(Code.NO_GPU_PAIR, f"GPU {UUIDS[0]!r}", "a GPU", there))
    text = bare(runs.pair({"gate-7/settled": raises(lost)}))
    for uuid in (*UUIDS, third.uuid):
        assert uuid not in text


@pytest.mark.parametrize(
    "place", ["0000:3b:00.0", "00000000:3B:00.0", "0000:af:00.0", "00000000:AF:00.0"]
)
def test_places_are_not_left_as_a_driver_words_them(runs, place):
    error = WrongError(Refusal(Code.RANK_DIED, "NVRM", "a GPU", f"Xid (PCI:{place}): 79"))
    assert place not in bare(runs.pair({"gate-7/settled": raises(error)}))


def test_no_name_of_this_host_and_no_address_is_left_of_an_error(runs):
    host = socket.gethostname()
    said = f"{host}: connect to 10.20.30.40 and [fe80::1:2]: refused"
    error = WrongError(Refusal(Code.RANK_DIED, "group", "a peer", said))
    text = json.dumps(runs.pair({"gate-7/settled": raises(error)}).receipt["gates"])
    for name in (host, "10.20.30.40", "fe80::1:2"):
        assert name not in text


@pytest.mark.parametrize("before", range(440, 500, 7))
def test_a_name_that_was_cut_in_two_is_not_left(runs, before):
    """Long texts of errors are cut where they are kept, and must not be cut inside a name."""
    error = WrongError(Refusal(Code.RANK_DIED, "x" * before, "y", f"{UUIDS[0]} {UUIDS[1]}"))
    text = bare(runs.pair({"gate-7/settled": raises(error)}))
    # beginnings that both GPUs share would still tell which board it was
    assert UUIDS[0][:12] not in text
