"""Measurements as a person runs and ends them, in real HOLDs whose steps are played."""

import json
import os
import signal
import subprocess
import sys

import pytest

from pp4.errors import Code, Exit
from pp4.measure import schedule
from pp4.measure.rounds_file import read_rounds
from pp4.receipts.build import seal
from pp4.receipts.digests import sha256_hex
from pp4.receipts.verify import verify_bytes
from tests.faults.measured_steps import CUT
from tests.faults.test_hold_cli import free, marked
from tests.faults.windows import PATIENCE_S, ROOT, tombstone, until
from tests.unit.measure import evidence
from tests.unit.receipts.parts import UUIDS

COMMAND = "tests.faults.measured_command"
FILE = """
[hold]
name = "test"
ttl = 2

[receiving_host]
transport = "local"
gpus = {gpus}
state_dir = "{place}/state"
host_dir = "{place}/host"
"""
OF_GATES = '--hold hold.toml --solo "$SOLO" --whole-worker "$WORKER"'
BUDGET = f"pp4 measure budget {OF_GATES}"
FIRST = f'pp4 measure A1B1 {OF_GATES} --budget "$BUDGET"'
SECOND = f'pp4 measure B2A2 {OF_GATES} --budget "$BUDGET" --first "$FIRST"'
SUMMARY = 'pp4 measure summary "$FIRST" "$SECOND"'
SEAL = 'pp4 measure seal "$ROUNDS"'
MEASURE = (BUDGET, FIRST, SECOND, SUMMARY, SEAL)
"""Lines of the operator's page."""
TIMED = [one for phase in schedule.TIMED for one in schedule.rounds(evidence.FEW, phase)]


class Command:
    """Runs ``pp4`` with played steps in one directory."""

    def __init__(self, place):
        self.place, self.out = place, place / "mine" / "receipts"
        self.file = place / "hold.toml"
        text = FILE.format(gpus=json.dumps(UUIDS), place=place)
        self.file.write_text(text + evidence.MODEL)
        self.environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PP4_STATE_DIR": str(place / "mine"),
            "PP4_HOST_DIR": str(place / "host"),
        }
        self._started = []

    def behave(self, **does):
        (self.place / "behaviour.json").write_text(json.dumps(does))

    def start(self, *argv, **environment):
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", COMMAND, *map(str, argv)],
            env={**self.environment, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )
        self._started.append(process)
        return process

    def measure(self, work, *more, without=(), out=None, **environment):
        """Start a measurement with evidence of its own, but for what is left out."""
        argv = evidence.options(self.place, work, without, evidence.FEW)
        hold = ("--hold", self.file)
        where = ("--out", out) if out else ()
        return self.start("measure", work, *hold, *argv, *more, *where, **environment)

    def type(self, line, **words):
        """Run a line of the operator's page; -> exit code, output, what it complained of."""
        programs = self.place / "programs"
        programs.mkdir(exist_ok=True)
        pp4 = programs / "pp4"
        pp4.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m {COMMAND} "$@"\n')
        pp4.chmod(0o755)
        path = {"PATH": f"{programs}:{os.environ['PATH']}"}
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=self.place,
            env={**self.environment, **path, **{name: str(word) for name, word in words.items()}},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        return done.returncode, done.stdout, done.stderr

    def rounds(self):
        """The file of rounds, None as long as there is none."""
        return next(iter(self.out.glob("measurement-*.rounds.jsonl")), None)

    def hanging(self, process):
        """Wait until the step hangs: what it has told before is on the disk; -> id of the HOLD."""
        for line in process.stderr:
            if line == "hanging\n":
                return self.rounds().name.split("-")[1].split(".")[0]
        raise AssertionError(process.communicate(timeout=PATIENCE_S))

    def receipt(self, name, hold):
        return json.loads((self.out / f"{name}-{hold}.json").read_text())

    def close(self):
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.communicate(timeout=PATIENCE_S)


@pytest.fixture
def command(tmp_path):
    found = Command(tmp_path)
    yield found
    found.close()


def ended(process):
    out, said = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out, said


def verified(*paths):
    """Refuse receipts that do not verify; together they show what each rests on."""
    report = verify_bytes([(path.name, path.read_bytes()) for path in paths])
    assert report.failures == ()


def require_cut_in_b1(hold, receipt):
    """A half that was cut in B1: everything until then, and no claim."""
    assert (receipt["complete"], receipt["summary"]) == (False, None)
    a1, b1 = receipt["arms"]
    assert (a1["verdict"], b1["verdict"]) == ("complete", "partial")
    assert len(a1["rounds"]) == len(TIMED)
    assert [one["index"] for one in b1["rounds"]] == list(range(CUT))
    assert [one["label"] for one in b1["snapshots"]] == ["baseline"]
    assert any("not complete" in text for text in receipt["limits"])
    names = {(one["kind"], one["name"]) for one in receipt["timeline"]}
    assert {("step", "gates"), ("gate", "gate-2"), ("arm", "A1"), ("arm", "B1")} <= names
    assert receipt["hold"]["id"] == hold


# -- the whole way


def test_a_budget_then_two_halves_then_their_summary(command):
    evidence.options(command.place, "budget")
    words = {"SOLO": "solo.json", "WORKER": "whole_worker.json"}
    code, out, said = command.type(BUDGET, **words)
    assert code == Exit.DONE, said
    (words["BUDGET"],) = command.out.glob("budget-*.json")
    assert "verdict: fits" in out
    code, _, said = command.type(FIRST, **words)
    assert code == Exit.DONE, said
    (first,) = command.out.glob("measurement-*.json")
    # nothing is told of an arm before the gates are over
    lines = said.splitlines()
    assert [line for line in lines if line.startswith("plan ")][-1].startswith("plan B1, ON")
    code, out, said = command.type(SECOND, **words, FIRST=first)
    assert code == Exit.DONE, said
    assert "verdict: FASTER" in out
    (second,) = set(command.out.glob("measurement-*.json")) - {first}
    evidence_of_all = [command.place / name for name in ("solo.json", "whole_worker.json")]
    verified(*command.out.glob("*.json"), *evidence_of_all)
    require_whole(command, json.loads(second.read_text()), first)
    require_summary(command, first, second)


def require_whole(command, receipt, first):
    hold = receipt["hold"]["id"]
    assert receipt["complete"]
    by_role = {(one["role"], one["kind"]): one["sha256"] for one in receipt["evidence"]}
    gates = command.out / f"qualification-{hold}.json"
    assert by_role["qualification", "qualification"] == sha256_hex(gates.read_bytes())
    assert by_role["first_half", "measurement"] == sha256_hex(first.read_bytes())
    closed = first.with_suffix(".closed").read_bytes()
    assert receipt["first_half_closed"]["sha256"] == sha256_hex(closed)
    assert receipt["first_half_closed"]["restore"] == "done"
    for kind in ("qualification", "measurement"):
        word = json.loads((command.out / f"{kind}-{hold}.closed").read_text())
        assert (word["hold"], word["why"]) == (hold, "done")
    kept = read_rounds(command.out / f"measurement-{hold}.rounds.jsonl")
    told = [line.rounded.round for line in kept.lines if line.rounded and line.rounded.round]
    assert told == [one for arm in receipt["arms"] for one in arm["rounds"]]
    assert len(told) == 2 * len(TIMED)


def require_summary(command, first, second):
    """The summary is computed anew to the last digit, and another one is noticed."""
    code, out, said = command.type(f"{SUMMARY} --json", FIRST=first, SECOND=second)
    assert code == Exit.DONE, said
    body = json.loads(second.read_text())
    assert json.loads(out)["summary"] == body["summary"]
    assert abs(float(body["summary"]["effect"]) - 0.029559) < 1e-6
    low = format(float(body["summary"]["interval_low"]) - 1e-6, ".6f")
    changed = command.place / "changed.json"
    changed.write_bytes(seal({**body, "summary": {**body["summary"], "interval_low": low}}))
    code, _, said = ended(command.start("measure", "summary", first, changed))
    assert (code, Code.CROSS_CHECK in said) == (Exit.WRONG, True), said


# -- what cuts it


def test_a_coordinator_that_is_killed_leaves_every_round_and_seal_makes_a_receipt(command):
    command.behave(hang="B1")
    process = command.measure("A1B1")
    hold = command.hanging(process)
    assert marked(hold)
    rounds = command.rounds()
    code, _, said = ended(command.start("measure", "seal", rounds))
    assert (code, Code.HELD_BY in said) == (Exit.REFUSED, True), said
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    assert until(lambda: tombstone(command.place, hold))["why"] == "abandoned"
    until(lambda: not marked(hold))
    assert free(command.place, hold)
    # no receipt: not even of the gates, which nobody has seen closed
    assert [path for path in command.out.iterdir() if path != rounds] == []
    code, out, said = command.type(SEAL, ROUNDS=rounds)
    assert code == Exit.DONE, said
    receipt = command.receipt("measurement", hold)
    require_cut_in_b1(hold, receipt)
    verified(command.out / f"measurement-{hold}.json")
    assert "verdict: partial" in out
    assert all(one["role"] != "qualification" for one in receipt["evidence"])
    code, _, said = ended(command.start("measure", "seal", rounds))
    assert (code, Code.EXISTS in said) == (Exit.REFUSED, True), said


def test_ctrl_c_closes_the_hold_and_seals_what_there_is(command):
    command.behave(hang="B1")
    process = command.measure("A1B1")
    hold = command.hanging(process)
    # while the HOLD is open there is no receipt of anything
    assert not list(command.out.glob("*.json"))
    process.send_signal(signal.SIGINT)
    code, _, said = ended(process)
    assert code == Exit.INTERRUPTED, said
    assert tombstone(command.place, hold)["why"] == "cancelled"
    assert marked(hold) == []
    require_sealed(command, hold, said)


def require_sealed(command, hold, said):
    """A cut half and the qualification before it, with the end of their HOLD beside each."""
    receipt = command.receipt("measurement", hold)
    require_cut_in_b1(hold, receipt)
    path, gates = (command.out / f"{kind}-{hold}.json" for kind in ("measurement", "qualification"))
    verified(path)
    assert str(path) in said
    (reference,) = [one for one in receipt["evidence"] if one["role"] == "qualification"]
    assert reference["sha256"] == sha256_hex(gates.read_bytes())
    assert path.with_suffix(".closed").read_bytes() == gates.with_suffix(".closed").read_bytes()


def test_the_deadline_seals_what_there_is(command):
    command.behave(hang="B1")
    process = command.measure("A1B1", BOUND_S="12")
    hold = command.hanging(process)
    code, _, said = ended(process)
    assert (code, Code.DEADLINE in said) == (Exit.TIMEOUT, True), said
    assert tombstone(command.place, hold)["why"] == "deadline"
    require_sealed(command, hold, said)


@pytest.fixture
def disk(tmp_path):
    """Mounts a disk of some MiB for receipts."""
    out = tmp_path / "disk"
    out.mkdir()

    def mount(size):
        mounted = ["mount", "-t", "tmpfs", "-o", f"size={size}m", "tmpfs", str(out)]
        done = subprocess.run(mounted, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"no disk may be mounted here: {done.stderr.strip()}")
        return out

    yield mount
    subprocess.run(["umount", "-l", str(out)], capture_output=True)


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a disk")


@needs_root
def test_a_disk_without_room_is_refused_before_any_contact(command, disk):
    code, _, said = ended(command.measure("A1B1", out=disk(8)))
    assert (code, Code.UNWRITABLE in said) == (Exit.REFUSED, True), said
    assert not (command.place / "state").exists()


@needs_root
def test_a_disk_that_fills_up_ends_the_run_and_leaves_no_claim(command, disk):
    out = disk(20)
    command.behave(fill=["B1", str(out)])
    code, _, said = ended(command.measure("A1B1", out=out))
    assert (code, Code.UNWRITABLE in said) == (Exit.UNCLEAN, True), said
    (rounds,) = out.glob("*.rounds.jsonl")
    hold = rounds.name.split("-")[1].split(".")[0]
    assert tombstone(command.place, hold)["why"] == "failed"
    assert marked(hold) == []
    assert not list(out.glob("*.json"))
    # what was shown is there, and can be sealed where there is room
    shown = [line for line in said.splitlines() if "tokens/s" in line]
    told = [line for line in read_rounds(rounds).lines if line.rounded and line.rounded.round]
    assert len(told) == len(shown) >= len(TIMED) + CUT
    code, _, said = ended(command.start("measure", "seal", rounds, "--out", command.place))
    assert code == Exit.DONE, said
    verified(command.place / f"measurement-{hold}.json")
