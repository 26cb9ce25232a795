"""The rehearsal as a person runs it: what it says, writes and leaves."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pp4.errors import Code
from pp4.qualify.gates import REHEARSED
from pp4.qualify.pair_qualify import plan
from pp4.qualify.rehearsal import DIFFERENCES, LIMITS
from pp4.qualify.settings import REHEARSAL
from pp4.qualify.whole_settings import REHEARSED as WHOLE
from pp4.receipts.admission import Command, Refused, Subject, admit
from pp4.receipts.canonical import dump
from pp4.receipts.journal import first_break, head

ROOT = Path(__file__).parents[2]
SHA = re.compile(r"[0-9a-f]{64}")
STEPS = plan(REHEARSED)


def verify(rehearsed, path, *arguments):
    done = subprocess.run(
        [sys.executable, "-m", "pp4", "verify-receipt", "--json", str(path), *arguments],
        cwd=rehearsed.source,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.returncode, json.loads(done.stdout)


def test_it_ends_well(rehearsed):
    assert rehearsed.exit == 0, rehearsed.stdout[-2000:] + rehearsed.stderr[-2000:]


def test_it_says_one_document_and_nothing_else(rehearsed):
    document = json.loads(rehearsed.stdout)
    assert rehearsed.stderr == ""
    assert (document["verdict"], document["exit"]) == ("rehearsed", 0)
    assert document["receipt"] == rehearsed.receipt
    assert document["receipt_path"] == str(rehearsed.receipt_path)
    assert document["differences"] == list(DIFFERENCES)


def test_it_leaves_one_receipt_and_nothing_else(rehearsed):
    assert rehearsed.files == [f"rehearsal-{rehearsed.receipt['hold']['id']}.json"]
    assert rehearsed.temporary == []
    assert rehearsed.processes == []


def test_it_had_two_ranks_under_an_owner(rehearsed):
    # coordinator, owner and two ranks at least; this is also what shows that the watch sees them
    assert rehearsed.seen >= 4


def test_it_fits_a_small_machine(rehearsed):
    """Each process counted at its own peak, shared pages counted again in each."""
    assert 100 * 1024 < rehearsed.peak_kib < 2 * 1024 * 1024


def test_the_receipt_verifies_as_what_it_is(rehearsed):
    code, _ = verify(rehearsed, rehearsed.receipt_path, "--kind", "rehearsal", "--current")
    assert code == 0


@pytest.mark.parametrize("kind", ["qualification", "solo", "whole_worker"])
def test_the_receipt_is_refused_as_anything_else(rehearsed, kind):
    code, document = verify(rehearsed, rehearsed.receipt_path, "--kind", kind)
    assert code == 3
    assert Code.WRONG_KIND in json.dumps(document)


@pytest.mark.parametrize("command", list(Command))
def test_the_receipt_opens_nothing(rehearsed, command):
    raw = rehearsed.receipt_path.read_bytes()
    subject = Subject(source_digest=rehearsed.receipt["source"]["digest"])
    for role in ("qualification", "identity_reference", "budget", "first_half"):
        judged = admit(command, [(role, raw)], subject)
        assert isinstance(judged, Refused)
        assert judged.refusal.code in (Code.WRONG_KIND, Code.WRONG_ROLE)


def test_a_changed_receipt_does_not_verify(rehearsed, tmp_path):
    tree = rehearsed.receipt
    tree["hold"]["fence"] = "2"
    forged = tmp_path / "forged.json"
    forged.write_bytes(dump(tree))
    code, document = verify(rehearsed, forged, "--kind", "rehearsal")
    assert code == 1
    assert Code.DIGEST_MISMATCH in json.dumps(document)


def test_the_receipt_claims_no_hardware(rehearsed):
    receipt = rehearsed.receipt
    assert (receipt["kind"], receipt["scope"]) == ("rehearsal", "full")
    assert receipt["hardware_executed"] is False
    assert receipt["gpus"] == []
    assert receipt["limits"] == list(LIMITS)
    assert receipt["hold"]["transport"] == "local"


def test_the_journal_is_the_plan_step_by_step(rehearsed):
    journal = rehearsed.receipt["journal"]
    assert first_break(journal) is None
    assert head(journal) == rehearsed.receipt["hold"]["journal_head"]
    walked = [(line["event"], line["step"]) for line in journal if line["event"] != "process"]
    assert walked == [(event, step.name) for step in STEPS for event in ("begin", "end")]


def test_the_gates_are_the_plan_with_what_was_found(rehearsed):
    gates = rehearsed.receipt["gates"]
    assert [(gate["gate"], gate["name"]) for gate in gates] == [
        (gate.number, gate.name) for gate in REHEARSED
    ]
    found = [
        (gate["gate"], arm["arm"], arm["expected"], arm["gating"])
        for gate in gates
        for arm in gate["arms"]
    ]
    assert found == [(step.gate, step.arm, step.expected, step.gating) for step in STEPS]


def all_arms(receipt):
    return {
        f"gate-{gate['gate']}/{arm['arm']}": arm
        for gate in receipt["gates"]
        for arm in gate["arms"]
    }


@pytest.mark.parametrize("step", [s for s in STEPS if s.gating], ids=lambda step: step.name)
def test_every_gating_arm_found_what_it_had_to(rehearsed, step):
    arm = all_arms(rehearsed.receipt)[step.name]
    assert arm["found"] == step.expected, arm["facts"]
    assert arm["repetitions"] > 0
    assert 0 < int(arm["elapsed_ns"]) <= int(arm["limit_ns"])


def test_every_step_ends_in_the_journal_as_in_the_receipt(rehearsed):
    lines = rehearsed.receipt["journal"]
    ends = {line["step"]: line["found"] for line in lines if line["event"] == "end"}
    assert ends == {name: arm["found"] for name, arm in all_arms(rehearsed.receipt).items()}


def test_the_numbers_of_the_run_are_in_the_receipt(rehearsed):
    settings = rehearsed.receipt["settings"]
    expected = {
        name: list(fact) if isinstance(fact, tuple) else fact
        for name, fact in REHEARSAL.as_facts().items()
    }
    assert {name: settings[name] for name in expected} == expected
    worker = {f"worker_{name}": fact for name, fact in WHOLE.as_facts().items()}
    assert {name: settings[name] for name in worker} == worker
    assert set(settings) - set(expected) - set(worker) == {"python", "torch", "triton"}
    pattern = all_arms(rehearsed.receipt)["gate-0/data-pattern"]
    assert pattern["repetitions"] == 2 * REHEARSAL.pattern_epochs
    assert pattern["facts"]["mismatches"] == [0, 0]


def test_the_flipped_bit_was_seen_once_in_each_direction(rehearsed):
    flipped = all_arms(rehearsed.receipt)["gate-0/flipped-bit"]
    assert flipped["facts"]["mismatches"] == [1, 1]


def test_the_leak_showed_wherever_it_can(rehearsed):
    arms = all_arms(rehearsed.receipt)
    leak, settled = arms["gate-7/leak"]["facts"], arms["gate-7/settled"]["facts"]
    assert set(leak) == set(settled)
    assert len(leak) == 4
    for place, found in leak.items():
        assert len(found) == 2, place
        assert settled[place] == [], place


def test_both_ranks_mapped_the_same(rehearsed):
    first, second = all_arms(rehearsed.receipt)["gate-0/libraries"]["facts"]["mapped_by_ranks"]
    assert SHA.fullmatch(first)
    assert first == second


def test_every_interleaving_of_the_contract_was_searched(rehearsed):
    """Two slots, and with every error told; the one that has one slot is in tests/order."""
    facts = all_arms(rehearsed.receipt)["gate-2/host-model"]["facts"]
    page = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
    assert len(facts["states"]) == 2
    # a number that shrinks unnoticed would mean that a fault or an interleaving fell out
    assert all(f"{states:,}" in page for states in facts["states"])
    assert all(m > s for m, s in zip(facts["moves"], facts["states"], strict=True))


def test_streams_went_through_as_many_rows_as_the_settings_say(rehearsed):
    arms = all_arms(rehearsed.receipt)
    rows = arms["gate-2/many-rows"]
    assert rows["repetitions"] == rows["facts"]["rows"] >= REHEARSAL.streamed_rows
    assert sum(rows["facts"]["waits_below_2_to"]) > 0
    assert arms["gate-2/vectorised-agrees"]["repetitions"] > 0
    replays = REHEARSAL.replays + REHEARSAL.streamed_replays
    found = arms["gate-3/replay-equals-eager"]["repetitions"]
    assert found == len(REHEARSAL.depths) * replays


@pytest.mark.parametrize("arm", ["never-launched", "late-first", "late-next", "killed"])
def test_a_wait_that_ran_out_took_its_budget(rehearsed, arm):
    facts = all_arms(rehearsed.receipt)[f"gate-5/{arm}"]["facts"]
    budget = int(facts["budget"])
    assert facts["unit"] == "polls"
    assert 0 <= budget - max(map(int, facts["longest_wait"])) <= budget // 10


def test_the_late_rank_really_answered(rehearsed):
    late = all_arms(rehearsed.receipt)["gate-5/late-answer"]["facts"]
    assert late["ranks_with_clean_own_word"] == [1]


def test_what_no_launch_could_show_is_not_claimed(rehearsed):
    facts = all_arms(rehearsed.receipt)["gate-1/one-specialisation"]["facts"]
    before, after = facts["cached_before_and_after"]
    assert 0 < before == after
    assert facts["compilation_at_launch"].startswith("not exercised")


def test_both_ranks_ran_equal_binaries_and_solo_another(rehearsed):
    kernels = rehearsed.receipt["kernels"]
    names = [(kernel["name"], kernel["rank"]) for kernel in kernels]
    assert names == [
        ("sampled_fused.pair", 0),
        ("sampled_fused.pair", 1),
        ("sampled_fused.solo", 0),
        ("sampled_fused.solo", 1),
        ("sampled_fused.pair.worker", 0),
        ("sampled_fused.pair.worker", 1),
    ]
    digests = [(kernel["ptx_sha256"], kernel["cubin_sha256"]) for kernel in kernels]
    assert digests[0] == digests[1]
    assert digests[2] == digests[3]
    # the checkpoint has the rehearsal's shape, so its worker runs what the gates have looked at
    assert digests[4] == digests[5] == digests[0]
    assert digests[0][0] != digests[2][0]
    for kernel in kernels:
        assert SHA.fullmatch(kernel["ptx_sha256"])
        assert kernel["target"] == "sm_90"


def test_the_worker_of_the_pair_gave_what_the_solo_one_gave(rehearsed):
    facts = all_arms(rehearsed.receipt)["gate-6/worker-equals-archive"]["facts"]
    assert len(facts["outputs"]) == 8
    assert facts["outputs"] == facts["archived"]
    assert (facts["sampled_rows"], facts["greedy_rows"]) == (6, 10)
    assert SHA.fullmatch(facts["checkpoint_sha256"])
    assert SHA.fullmatch(facts["input_set_sha256"])
    flipped = all_arms(rehearsed.receipt)["gate-6/flipped-archive-byte"]["facts"]["block"]
    assert flipped not in facts["archived"]


def test_libraries_and_definition_are_bound(rehearsed):
    receipt = rehearsed.receipt
    assert {library["name"] for library in receipt["libraries"]} >= {"libtorch_cpu.so"}
    assert all(SHA.fullmatch(library["sha256"]) for library in receipt["libraries"])
    assert receipt["definition"]["id"] == "dyadic24-floor-first-v1"
    assert SHA.fullmatch(receipt["definition"]["sha256"])


def test_every_process_is_in_the_journal_in_pairs(rehearsed):
    started = [line["step"] for line in rehearsed.receipt["journal"] if line["event"] == "process"]
    ranks = [label for label in started if "-rank-" in label]
    owners = [label for label in started if "-rank-" not in label]
    assert [label.rpartition("-")[0] for label in owners] == [
        *("owner", "careless-owner"),
        # each with a client of its own
        *("worker", "frozen") * 2,
    ]
    assert len(set(started)) == len(started)
    assert [label[-1] for label in ranks] == ["0", "1"] * (len(ranks) // 2)


def test_names_of_this_machine_stand_only_where_they_can_be_taken_out(rehearsed):
    import socket

    receipt = rehearsed.receipt
    assert receipt["private"]["host.name"]["value"] == socket.gethostname()
    bare = json.dumps({**receipt, "private": {}})
    assert str(Path(rehearsed.out).parent) not in bare
