"""The engine program of an arm with a real worker of each switch."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from pp4.clock import SystemClock
from pp4.config import SWITCHES, child_environment
from pp4.engine.adapters.handshake import Agreed
from pp4.engine.measured.program import Program, _require_worker
from pp4.engine.measured.targets import Sized
from pp4.engine.patience import Patience
from pp4.errors import BadInputError, Code
from pp4.receipts.runs import Round
from pp4.wire import Decoder, Request, encode
from pp4.wire.measured import Prepared
from pp4.worker.frozen_checkpoint import digest_of
from tests.unit.engine.measured.arms import (
    NEW_TOKENS,
    PROMPTS,
    SLOTS,
    Arm,
    connection,
    numbers,
    plain_sha256,
    question,
    write_pair,
)
from tests.unit.engine.served import DEPTH, DRAFTER, VOCAB
from tests.unit.processes import LONG, halt, within

ROOT = Path(__file__).parents[4]
LONGEST = max(map(len, PROMPTS))


@pytest.fixture
def arm(workers):
    """A connected arm of sampled drafts."""
    with Arm(workers.pair) as made:
        yield made.ready(workers.of(True))


def failures(snapshot):
    return {cause: int(count) for cause, count in snapshot.failed_rounds.items() if int(count)}


# -- what comes out ------------------------------------------------------------------------------


def test_what_is_prepared_is_said(workers):
    with Arm(workers.pair) as arm:
        found = Prepared(**arm.prepare())
    assert found.target_sha256 == digest_of(Path(workers.pair["target"])).sha256
    assert found.drafter_sha256 == digest_of(Path(workers.pair["drafter"])).sha256
    assert (found.prompts, found.vocab, found.device) == (len(PROMPTS), VOCAB, "CPU")
    # a block fits behind the longest prompt and all of its new tokens but the last
    assert found.context == LONGEST + NEW_TOKENS - 1 + DEPTH
    assert {"python", "torch", "numpy"} <= found.versions.keys()


@pytest.mark.parametrize("batch", [1, SLOTS])
def test_greedy_text_is_the_targets_own_under_either_switch(workers, batch):
    plain, digests = plain_sha256(workers.pair, 1, batch), set()
    for sampled in (True, False):
        with Arm(workers.pair, sampled) as arm:
            arm.ready(workers.of(sampled))
            found = arm.ask("round", **question(1, batch=batch))
            assert failures(arm.look()) == {}
        assert found["drafted"] > 0
        digests.add(found["outputs_sha256"])
    assert digests == {plain}


def test_equal_questions_have_equal_answers_and_others_have_others(arm):
    asked = question(2, "0.7")
    first = arm.ask("round", **asked)["outputs_sha256"]
    assert arm.ask("round", **asked)["outputs_sha256"] == first
    # the same prompts, and other keys
    again = question(2 + len(PROMPTS) // SLOTS, "0.7")
    assert arm.ask("round", **again)["outputs_sha256"] != first


@pytest.mark.parametrize("sampled", [True, False])
def test_a_round_adds_up(workers, sampled):
    with Arm(workers.pair, sampled) as arm:
        arm.ready(workers.of(sampled))
        tree = arm.ask("round", **question(0, "0.7", phase="profiled"))
        counters = arm.look().counters
    found = Round.model_validate_json(json.dumps(tree))
    assert found.tokens == SLOTS * NEW_TOKENS == int(counters["tokens"])
    assert found.drafted == int(counters["drafted_rows"]) == int(counters["drafts_asked"])
    assert len(found.accepted_by_position) == DEPTH
    assert sorted(found.accepted_by_position, reverse=True) == list(found.accepted_by_position)
    assert sum(found.accepted_by_position) == int(counters["accepted"])
    steps = int(counters["steps"])
    assert len(found.draft_ns) == len(found.target_ns) == len(found.verify_ns) == steps
    parts = sum(found.draft_ns + found.target_ns + found.verify_ns)
    assert 0 < parts < int(found.elapsed_ns)
    assert set(found.memory_bytes) == {"rss.engine", "rss.worker", "rss.rank0", "rss.rank1"}
    # an interpreter with torch takes more than that
    assert all(int(size) > 64 << 20 for size in found.memory_bytes.values())


def test_a_snapshot_has_every_cause_and_every_counter(arm):
    arm.ask("round", **question(phase="warm-up"))
    found = arm.look("headline")
    assert found.label == "headline"
    assert set(found.failed_rounds) == {
        "not_connected",
        "unfit",
        "lost",
        "untrusted",
        "failed",
        "refused",
        "resting",
        "timed_out",
        "waiting",
        "malformed",
    }
    assert set(found.failed_rounds.values()) == {"0"}
    # the causes that are none stay with the counters
    assert {"plain_no_drafts", "plain_no_room", "drafts_late", "drafts_ended"} <= set(
        found.counters
    )
    assert found.counters["finished"] == str(SLOTS)
    assert set(found.unsupported) == {"torch.allocated", "torch.reserved", "nvml"}


def test_after_the_end_there_is_a_snapshot_and_no_round(arm):
    arm.ask("round", **question())
    arm.ask("disconnect")
    assert arm.look("final").counters["finished"] == str(SLOTS)
    assert arm.refused("round", **question())["code"] == Code.BAD_INPUT


def test_a_batch_has_arrays_of_its_own_size(arm, monkeypatch):
    widths, step = [], Sized.step

    def seen(self, rows):
        found = step(self, rows)
        widths.append(self._now.slots)
        return found

    monkeypatch.setattr(Sized, "step", seen)
    for batch in (1, 2):
        widths.clear()
        arm.ask("round", **question(batch=batch))
        assert set(widths) == {batch}


# -- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"slots": 7}, "prompts"),
        ({"new_tokens": 484}, "prompts, line 3"),
        ({"depth": 6}, "drafter"),
        ({"drafter": {"vocab": 13, "draft_vocab": 13}}, "target, vocabulary"),
        ({"drafter": {"hidden": 32}}, "target, hidden size"),
        ({"drafter": {"target_layers": (0, 1, 4)}}, "target, layers"),
        ({"prompts": [[1], [12], [2], [3]]}, "prompts, line 2"),
        ({"prompts": [[1], [2], [-1], [3]]}, "prompts, line 3"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_loaded(
    workers, tmp_path, monkeypatch, changes, where
):
    monkeypatch.setattr("pp4.engine.measured.pair.load", None)
    drafter = replace(DRAFTER, **changes.pop("drafter", {}))
    pair = write_pair(tmp_path, drafter, changes.pop("prompts", PROMPTS))
    with Arm(pair) as arm:
        refusal = arm.refused("prepare", **pair, **numbers(**changes))
        assert refusal["where"] == where
        assert refusal["code"] in (Code.BAD_INPUT, Code.UNSUPPORTED_CHECKPOINT)
        assert arm.refused("look", label="baseline")["code"] == Code.BAD_INPUT


def test_the_longest_sequence_that_fits_is_taken(workers):
    with Arm(workers.pair) as arm:
        # a worker needs its block before the drafter's last position
        assert arm.prepare(new_tokens=483)["context"] == DRAFTER.max_positions - DRAFTER.block


@pytest.mark.parametrize("sampled", [True, False])
def test_a_switch_that_says_otherwise_is_refused(workers, monkeypatch, sampled):
    monkeypatch.setenv(SWITCHES[1], str(int(not sampled)))
    worker = workers.of(sampled)
    with Arm(workers.pair) as arm:
        # the environment decides, as in the program itself
        arm.program = Program()
        arm.prepare()
        refusal = arm.refused("connect", **connection(worker, sampled))
        assert refusal["code"] == Code.BAD_SETTING
        assert SWITCHES[1] in refusal["where"]
        monkeypatch.setenv(SWITCHES[1], str(int(sampled)))
        arm.ask("connect", **connection(worker, sampled))


@pytest.mark.parametrize("sampled", [True, False])
def test_a_worker_of_the_other_switch_is_refused(workers, sampled):
    with Arm(workers.pair, sampled) as arm:
        arm.prepare()
        refusal = arm.refused("connect", **connection(workers.of(not sampled), sampled))
        assert (refusal["code"], refusal["found"]) == (Code.BAD_SETTING, str(int(not sampled)))
        assert SWITCHES[0] in refusal["where"]
        assert arm.refused("round", **question())["expected"] == "connect before it"


@pytest.mark.parametrize(
    ("changes", "where"), [({"new_tokens": 80}, "worker, context"), ({"slots": 6}, None)]
)
def test_a_worker_without_room_is_refused(workers, changes, where):
    with Arm(workers.pair) as arm:
        arm.prepare(**changes)
        asked = connection(workers.of(True), True)
        if where is None:
            arm.ask("connect", **asked)
        else:
            assert arm.refused("connect", **asked)["where"] == where


@pytest.mark.parametrize("lacks", ["context", "slots"])
def test_a_worker_has_to_hold_every_request_of_the_largest_batch(lacks):
    pair = SimpleNamespace(features=10, asked=SimpleNamespace(slots=10))
    given = {"sampled": True, "context": 10, "slots": 10}
    _require_worker(SimpleNamespace(**given), True, pair)
    with pytest.raises(BadInputError) as caught:
        _require_worker(SimpleNamespace(**{**given, lacks: 9}), True, pair)
    assert caught.value.refusal.where == f"worker, {lacks}"


def test_processes_that_are_none_are_refused(workers):
    worker = workers.of(True)
    with Arm(workers.pair) as arm:
        arm.prepare()
        for processes in ({"engine": worker.pid}, {"rank0": 1 << 22}):
            asked = connection(worker, True, processes=processes)
            assert arm.refused("connect", **asked)["code"] == Code.BAD_INPUT
        asked = connection(worker, True, processes={"Rank 0": worker.pid})
        assert arm.refused("connect", **asked)["code"] == Code.BAD_FRAME
        # nothing of it stays
        arm.ask("connect", **connection(worker, True))


def test_nobody_to_connect_to_is_refused(workers, tmp_path):
    with Arm(workers.pair) as arm:
        arm.prepare()
        asked = connection(workers.of(True), True, socket=str(tmp_path / "none"))
        assert arm.refused("connect", **asked)["code"] == Code.UNREACHABLE


def test_what_comes_out_of_order_is_refused_and_changes_nothing(workers):
    worker = workers.of(True)
    with Arm(workers.pair) as arm:
        for verb, arguments in (
            ("connect", connection(worker, True)),
            ("round", question()),
            ("look", {"label": "baseline"}),
            ("disconnect", {}),
        ):
            assert arm.refused(verb, **arguments)["code"] == Code.BAD_INPUT
        arm.ready(worker)
        refusal = arm.refused("prepare", **workers.pair, **numbers())
        assert refusal["found"] == "a second time"
        assert arm.refused("connect", **connection(worker, True))["found"] == "a second time"
        assert arm.refused("round", **question(batch=SLOTS + 1))["where"] == "batch"
        assert arm.refused("round", **question(), more=1)["code"] == Code.BAD_FRAME
        arm.ask("round", **question())


# -- what goes wrong in a round ------------------------------------------------------------------


class Striking(SystemClock):
    """A clock that does something at one look: in the middle of a round, between its steps.

    Args:
        strike: what to do.
        look: at which, counted from when it is armed.
    """

    def __init__(self, strike, look=7):
        self._strike, self._left, self.armed = strike, look, False

    def monotonic_ns(self):
        if self.armed:
            self._left -= 1
            if not self._left:
                self._strike()
        return super().monotonic_ns()


HASTY = Patience(draft_s=0.3, exchange_s=0.3, retry_steps=2)
PATIENT = Patience(draft_s=LONG, exchange_s=LONG)
STOOD = {"timed_out", "waiting", "lost", "not_connected"}
"""Of rows of a worker that stands still, wherever in a step it was stopped."""


def struck(workers, strike, patience):
    """An arm with a warm worker, and a clock that strikes in the next round."""
    worker = workers.of(True)
    clock = Striking(lambda: strike(worker.pid))
    arm = Arm(workers.pair, clock=clock, patience=patience)
    arm.prepare()
    asked = connection(worker, True)
    # a busy machine may be late to answer one that has no patience
    assert within(lambda: arm.reply("connect", **asked).facts is not None)
    arm.ask("round", **question(1, phase="warm-up"))
    clock.armed = True
    return worker, arm


def kill(pid):
    os.kill(pid, signal.SIGKILL)


def test_rows_fail_by_cause_while_a_worker_stands_still(workers):
    worker, arm = struck(workers, halt, HASTY)
    with arm:
        try:
            found = arm.ask("round", **question(1))
        finally:
            worker.signal(signal.SIGCONT)
        # it ended, and what it says is still the target's own
        assert found["outputs_sha256"] == plain_sha256(workers.pair, 1)
        seen = arm.look()
        lost = failures(seen)
        assert lost.keys() <= STOOD
        assert sum(lost.values()) == int(seen.counters["plain_rows"]) > 0


def test_a_round_ends_within_its_limit_however_patient_it_is(workers):
    worker, arm = struck(workers, halt, PATIENT)
    with arm:
        began = time.monotonic()
        try:
            refusal = arm.refused("round", **question(1, limit_s=2.0))
            took = time.monotonic() - began
            # it still answers, also while the worker stands
            counted = failures(arm.look())
            again = arm.refused("round", **question(1))
        finally:
            worker.signal(signal.SIGCONT)
        assert refusal["code"] == Code.STEP_TIMEOUT
        assert refusal["where"].startswith("round headline 1, B 3, T 0:")
        assert refusal["expected"] == "an end within 2 s"
        assert "rows without a draft" in refusal["found"]
        # far from the patience
        assert 2.0 <= took < LONG / 2
        assert sum(counted.values()) > 0
        assert counted.keys() <= STOOD
        for cause, count in counted.items():
            assert f"{count} {cause}" in refusal["found"]
        # an engine that was left in a step does not go on
        assert again == refusal


def test_logits_that_are_none_refuse_the_round_and_name_it(arm, monkeypatch):
    step = Sized.step

    def poisoned(self, rows):
        found = step(self, rows)
        found.logits.fill_(float("nan"))
        return found

    arm.ask("round", **question(0))
    monkeypatch.setattr(Sized, "step", poisoned)
    refusal = arm.refused("round", **question(1, "0.7"))
    assert refusal["code"] == Code.BAD_LOGITS
    assert refusal["where"].startswith("round headline 1, B 3, T 0.7: target, position ")
    monkeypatch.undo()
    assert arm.look().counters["finished"] == str(SLOTS)
    assert arm.refused("round", **question(2)) == refusal


def test_an_arm_that_is_on_is_not_measured_with_greedy_drafts(arm, monkeypatch):
    """A worker answers what it is asked; nothing else than the mode of its drafts tells them."""
    monkeypatch.setattr(Agreed, "asked_temperature", lambda self, temperature: 0.0)
    arm.ask("round", **question(0))
    refusal = arm.refused("round", **question(0, "0.7"))
    assert refusal["code"] == Code.BAD_PROPOSAL
    assert refusal["where"] == "round headline 0, B 3, T 0.7: drafts"
    assert refusal["found"].endswith("rows DELTA")


def test_an_error_of_our_own_refuses_the_round_and_every_later_one(arm, monkeypatch):
    monkeypatch.setattr(Sized, "step", None)
    assert arm.refused("round", **question())["code"] == Code.INTERNAL
    monkeypatch.undo()
    assert arm.refused("round", **question())["code"] == Code.INTERNAL
    assert failures(arm.look()) == {}


# -- the program as a process --------------------------------------------------------------------


class Process:
    """``python -m pp4.engine.measured``, asked over its standard streams."""

    def __init__(self, sampled):
        changes = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        changes |= {SWITCHES[1]: "1"} if sampled else {}
        argv = [sys.executable, "-P", "-m", "pp4.engine.measured"]
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=child_environment(changes),
        )
        self._decoder, self._sequence = Decoder(), 0

    def ask(self, verb, **arguments):
        self._sequence += 1
        request = Request(sequence=self._sequence, verb=verb, arguments=arguments)
        self._process.stdin.write(encode(request))
        self._process.stdin.flush()
        out = self._process.stdout.fileno()
        while select.select([out], [], [], LONG)[0]:
            data = os.read(out, 1 << 16)
            assert data, "it has ended"
            for message in self._decoder.feed(data):
                assert message.sequence == self._sequence
                return message
        raise AssertionError("no answer")

    def end(self):
        """Close its input; -> its exit code."""
        self._process.stdin.close()
        try:
            return self._process.wait(LONG)
        finally:
            self._process.kill()
            self._process.stdout.close()


def test_the_program_answers_on_its_standard_streams(workers, arm):
    worker = workers.of(True)
    expected = arm.ask("round", **question(3, "0.7"))["outputs_sha256"]
    program = Process(sampled=True)
    try:
        assert program.ask("prepare", **workers.pair, **numbers()).facts["prompts"] == len(PROMPTS)
        refused = program.ask("connect", **connection(worker, False)).refusal
        assert refused["code"] == Code.BAD_SETTING
        assert program.ask("connect", **connection(worker, True)).facts == {}
        found = program.ask("round", **question(3, "0.7")).facts
        assert found["outputs_sha256"] == expected
        assert "rss.engine" in program.ask("look", label="final").facts["memory_bytes"]
        assert program.ask("nonsense").refusal["code"] == Code.BAD_FRAME
        assert program.ask("disconnect").facts == {}
    finally:
        code = program.end()
    assert code == 0


# -- last, since the next test would have to wait for another worker -------------------------------


def test_a_round_goes_on_plainly_once_its_worker_is_dead(workers):
    worker, arm = struck(workers, kill, PATIENT)
    with arm:
        found = arm.ask("round", **question(1))
        assert found["outputs_sha256"] == plain_sha256(workers.pair, 1)
        assert within(lambda: "rss.worker" in arm.look().unsupported)
        lost = failures(arm.look("final"))
    assert lost.pop("lost") > 0
    assert lost.keys() <= {"not_connected"}
    assert worker.ended().code == -signal.SIGKILL
