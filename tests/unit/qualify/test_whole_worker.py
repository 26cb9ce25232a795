"""The whole worker under a HOLD: what it and its client are told, and gate 6 upon what they say."""

import json
import os
from dataclasses import replace
from types import SimpleNamespace

import pytest

from pp4.config import INTERPRETED, ON_GPUS
from pp4.errors import Code, Refusal, RefusedError, WrongError
from pp4.qualify import whole_worker
from pp4.qualify.context import Context
from pp4.qualify.gates import FULL
from pp4.qualify.judge.whole_worker import binaries
from pp4.qualify.settings import REHEARSAL, physical
from pp4.qualify.whole_settings import PHYSICAL, REHEARSED
from pp4.receipts.models import read_model
from pp4.wire import Event
from pp4.wire.holds import Granted
from pp4.wire.serving import read_settings
from tests.unit.qualify.gpus import UUIDS, gpu
from tests.unit.qualify.test_gate_runs import Scripted
from tests.unit.qualify.test_session import Channel, Starting, facts
from tests.unit.qualify.whole_runs import (
    LIBRARIES,
    PIDS,
    digest,
    frozen,
    primed,
    served,
    settled,
    torn_down,
    whole_run,
)
from tests.unit.receipts import samples

GRANTED = Granted(
    hold="0123456789abcdef",
    fence=3,
    nonce="nonce",
    exclusion="private",
    boot_id="boot",
    gpus=UUIDS,
    opened_at="2026-01-01T00:00:00+00:00",
    bound_s=600.0,
    ttl_s=30.0,
    deadline_boottime_ns=10**15,
    transport="local",
    rehearsal=False,
    directory="/state/holds/1",
    public="/host/holds/1",
    work="/state/holds/1/work",
    compiled="/state/compiled",
)


TOLD = Event(sequence=1, name=f"ranks {PIDS[0]} {PIDS[1]}")


def said(model):
    """An answer that carries a model."""
    return facts(**model.model_dump(mode="json"))


@pytest.fixture
def started(tmp_path):
    """A HOLD whose worker and client say what a test wants; -> how a run in it goes."""
    holds = []

    def started(solo=False, gpus=UUIDS, whole=REHEARSED, **answers):
        hold = Starting(tmp_path)
        holds.append(hold)
        hold.gpus, hold.granted = gpus, GRANTED
        socket = str(tmp_path / "worker-1.s")
        checkpoint = facts(sha256=digest("checkpoint"), files=2, bytes=9)
        client = Channel(answers.get("checkpoint", checkpoint), answers.get("run", said(frozen())))
        server = Channel(
            *answers.get("events", (TOLD,)),
            answers.get("serve", said(served(socket=socket))),
            answers.get("settle", said(settled())),
            answers.get("teardown", said(torn_down())),
        )
        hold.script.extend([server, client])
        settings = physical(gpus) if gpus else REHEARSAL
        context = Context(hold, settings, tmp_path / "compiled")
        hold.ran = lambda: whole_worker.run(context, whole, solo=solo)
        hold.client, hold.server = client, server
        return hold

    yield started
    for hold in holds:
        hold.journal.close()


def test_the_worker_gets_the_grant_and_the_client_the_frozen_set(started, tmp_path):
    hold = started()
    run = hold.ran()
    assert (run.frozen, run.settled, run.ended) == (frozen(), settled(), torn_down())
    assert run.checkpoint_sha256 == digest("checkpoint")
    asked = [(one.verb, one.arguments) for one in hold.server.sent]
    assert asked == [
        ("serve", {"granted": GRANTED.model_dump(mode="json")}),
        ("settle", {}),
        ("teardown", {}),
    ]
    path = str(tmp_path / "checkpoint")
    assert [(one.verb, one.arguments) for one in hold.client.sent] == [
        ("checkpoint", {"path": path, "sizes": REHEARSED.sizes.model_dump()}),
        (
            "run",
            {"socket": str(tmp_path / "worker-1.s"), "inputs": "small", "limit_s": 60.0},
        ),
    ]
    # both ranks are in the books before the client says a word, and both programs end
    assert hold.owned == [(PIDS[0], "worker-1-rank-0"), (PIDS[1], "worker-1-rank-1")]
    assert hold.stopped == [hold.client, hold.server]


def test_the_worker_is_the_product_s_server_with_the_switch_on(started, tmp_path):
    hold = started()
    hold.ran()
    (module, (text,), environment, label), (client, *_) = hold.started
    assert client == "pp4.worker.frozen"
    assert (module, label) == ("pp4.worker.serve", "worker-1")
    assert environment == {**ON_GPUS, "DSPARK_SAMPLED_TOP32": "1"}
    settings = read_settings(text.encode())
    assert (settings.device, settings.gpus, settings.solo) == ("gpu", UUIDS, False)
    assert (settings.batches, settings.depths) == ((REHEARSED.batch,), (4, 5))
    assert settings.permission.kind == "grant"
    assert (settings.tcp, settings.metrics_port) == (None, None)
    assert settings.waits == physical(UUIDS).ordinary
    assert settings.state == str(tmp_path / "worker-1")
    assert settings.compiled == str(tmp_path / "compiled")
    assert (tmp_path / "worker-1").is_dir()


def test_a_solo_worker_has_one_gpu(started):
    hold = started(solo=True)
    hold.ran()
    (_, (text,), _, _), _ = hold.started
    settings = read_settings(text.encode())
    assert (settings.gpus, settings.solo) == (UUIDS[:1], True)


def test_where_no_gpu_is_held_the_worker_is_interpreted(started):
    hold = started(gpus=())
    hold.ran()
    (_, (text,), environment, _), _ = hold.started
    settings = read_settings(text.encode())
    assert (settings.device, settings.gpus) == ("interpreter", ())
    assert environment == {**INTERPRETED, "DSPARK_SAMPLED_TOP32": "1"}


def test_a_checkpoint_of_the_host_is_looked_at_and_not_written(started, tmp_path):
    hold = started(whole=replace(PHYSICAL, checkpoint="/models/drafter"))
    hold.ran()
    assert hold.client.sent[0].arguments == {"path": "/models/drafter", "sizes": None}
    (_, (text,), _, _), _ = hold.started
    assert read_settings(text.encode()).checkpoint == "/models/drafter"


def test_a_checkpoint_that_is_there_is_not_written_again(started, tmp_path):
    (tmp_path / "checkpoint").mkdir()
    hold = started()
    hold.ran()
    assert hold.client.sent[0].arguments["sizes"] is None


def test_the_inputs_go_to_no_other_worker(started):
    hold = started(serve=said(served(socket="/elsewhere")))
    with pytest.raises(WrongError) as caught:
        hold.ran()
    assert caught.value.refusal.code is Code.SUBJECT_MISMATCH
    assert [one.verb for one in hold.client.sent] == ["checkpoint"]
    assert hold.stopped == [hold.client, hold.server]


def test_ranks_are_in_the_books_before_the_worker_serves(started):
    hold = started(serve=facts_that_never_come())
    with pytest.raises(WrongError):
        hold.ran()
    assert hold.owned == [(PIDS[0], "worker-1-rank-0"), (PIDS[1], "worker-1-rank-1")]


def facts_that_never_come():
    return WrongError(Refusal(Code.RANK_DIED, "worker-1", "a live process", "its stream ended"))


@pytest.mark.parametrize(
    "events", [(), (Event(sequence=1, name="ranks 41 43"),), (Event(sequence=1, name="ranks 41"),)]
)
def test_ranks_that_nobody_was_told_of_serve_nobody(started, events):
    hold = started(events=events)
    with pytest.raises(WrongError) as caught:
        hold.ran()
    assert caught.value.refusal.code is Code.SUBJECT_MISMATCH
    assert [one.verb for one in hold.client.sent] == ["checkpoint"]


def test_an_answer_that_says_more_or_less_is_refused(started):
    hold = started(settle=facts(compilations=[0, 0], counters={}, speed=5))
    with pytest.raises(WrongError) as caught:
        hold.ran()
    assert caught.value.refusal.code is Code.BAD_FRAME
    assert hold.stopped == [hold.client, hold.server]


# -- gate 6 -----------------------------------------------------------------------------------


def arms(name):
    (gate,) = (gate for gate in FULL if gate.number == 6)
    (arm,) = (arm for arm in gate.arms if arm.step.arm == name)
    return arm


class Gate:
    """Gate 6 with made-up workers.

    Attributes:
        runs: what the pair's worker and the solo worker do.
    """

    def __init__(self, tmp_path, monkeypatch, gpus=()):
        self.hold = Starting(tmp_path)
        self.hold.gpus = gpus
        self.context = Context(self.hold, physical(gpus) if gpus else REHEARSAL)
        self.context.record.libraries = LIBRARIES[:1]
        pair, solo = ([primed(rank, name) for rank in (0, 1)] for name in ("pair", "solo"))
        self.primed = {"primed": pair, "solo": solo}
        self.session = Scripted(**{"prime-by-owner": lambda *_: self._primed()})
        self.context._session = self.session
        devices = gpus or ("interpreter-0", "interpreter-1")
        alone = frozen(devices=(devices[0], devices[0]))
        self.runs = {
            False: whole_run(frozen=frozen(devices=devices)),
            True: whole_run("solo", frozen=alone),
        }
        self.asked = []
        monkeypatch.setattr(whole_worker, "run", self._run)
        monkeypatch.setattr(Context, "gpus", lambda _: tuple(gpu(0) for _ in gpus))

    def _primed(self):
        return {name: [one.model_dump() for one in ones] for name, ones in self.primed.items()}

    def _run(self, context, whole, *, solo):
        self.asked.append(("solo" if solo else "pair", whole))
        return self.runs[solo]

    def archive(self, **changes):
        """Put a receipt into the evidence."""
        body = samples.whole_worker()
        given = frozen()
        solo = primed(0, "solo")
        body.update(
            checkpoint_sha256=digest("checkpoint"),
            input_set_sha256=given.input_set_sha256,
            outputs=[samples.output(one.batch, one.n_out, *one.blocks) for one in given.outputs],
        )
        for row, one in zip(body["kernels"], (solo, primed(0, "bias")), strict=True):
            row.update(ptx_sha256=one.ptx_sha256, cubin_sha256=one.cubin_sha256)
        for name, change in changes.items():
            body[name] = change
        receipt = read_model(samples.build(body), "archive")
        self.hold.admission = SimpleNamespace(
            source_digest="0" * 64, receipts={"whole_worker as identity_reference": receipt}
        )

    def find(self, name="worker-equals-archive"):
        """Run one arm."""
        return arms(name).run(self.context)


@pytest.fixture
def gate(tmp_path, monkeypatch):
    made = Gate(tmp_path, monkeypatch)
    yield made
    made.hold.journal.close()


@pytest.fixture
def gate_on_gpus(tmp_path, monkeypatch):
    made = Gate(tmp_path, monkeypatch, UUIDS)
    yield made
    made.hold.journal.close()


def test_a_rehearsal_compares_a_pair_s_worker_with_a_solo_one(gate):
    finding = gate.find()
    assert finding.code is None
    assert [kind for kind, _ in gate.asked] == ["pair", "solo"]
    assert finding.repetitions == 12
    assert finding.facts["outputs"] == finding.facts["archived"]
    assert len(finding.facts["outputs"]) == 12
    assert (finding.facts["sampled_rows"], finding.facts["worker_blocks"]) == (14, 12)
    assert "worker_refusals" not in finding.facts
    assert gate.context.record.whole == gate.runs[False]
    assert gate.find("flipped-archive-byte").code is Code.OUTPUT_MISMATCH
    assert gate.find("other-gpu-model").code is Code.SUBJECT_MISMATCH


def test_gpus_are_held_to_the_archive_and_run_no_solo_worker(gate_on_gpus):
    gate = gate_on_gpus
    gate.archive()
    finding = gate.find()
    assert finding.code is None
    assert [kind for kind, _ in gate.asked] == ["pair"]
    assert finding.facts["gpu_model"] == "H200"
    assert gate.find("flipped-archive-byte").code is Code.OUTPUT_MISMATCH
    assert gate.find("other-gpu-model").code is Code.SUBJECT_MISMATCH


def test_a_worker_on_gpus_has_mapped_what_the_gates_have_hashed(gate_on_gpus):
    gate_on_gpus.archive()
    other = LIBRARIES[0].model_copy(update={"sha256": "0" * 64})
    gate_on_gpus.context.record.libraries = (other,)
    assert gate_on_gpus.find().code is Code.LIBRARY_CHANGED


def test_gpus_without_an_archive_are_refused(gate_on_gpus):
    with pytest.raises(RefusedError) as caught:
        gate_on_gpus.find()
    assert caught.value.refusal.code is Code.EVIDENCE_MISSING


def other_outputs():
    given = [samples.output(one.batch, one.n_out, *one.blocks) for one in frozen().outputs]
    given[2] = samples.output(3, 4, *("0" * 64,) * 3)
    return given


def on_another_model():
    rows = samples.whole_worker()["gpus"]
    return [{**row, "name": "A100"} for row in rows]


UNLIKE = {
    "outputs": (other_outputs(), Code.OUTPUT_MISMATCH),
    "gpus": (on_another_model(), Code.SUBJECT_MISMATCH),
    "checkpoint_sha256": ("0" * 64, Code.EVIDENCE_MISMATCH),
    "input_set_sha256": ("0" * 64, Code.EVIDENCE_MISMATCH),
    "kernels": (samples.kernels(1, "sampled_fused.solo.worker"), Code.EVIDENCE_MISMATCH),
    "definition": (
        {"id": "dyadic24-floor-first-v1", "sha256": "e" * 64},
        Code.EVIDENCE_MISMATCH,
    ),
}


@pytest.mark.parametrize("member", UNLIKE)
def test_an_archive_of_something_else(gate_on_gpus, member):
    change, code = UNLIKE[member]
    gate_on_gpus.archive(**{member: change})
    assert gate_on_gpus.find().code is code


def test_an_archive_whose_bias_rows_came_from_another_kernel(gate_on_gpus):
    rows = samples.whole_worker()["kernels"]
    solo = primed(0, "solo")
    rows[0].update(ptx_sha256=solo.ptx_sha256, cubin_sha256=solo.cubin_sha256)
    gate_on_gpus.archive(kernels=rows)
    assert gate_on_gpus.find().code is Code.EVIDENCE_MISMATCH


def test_a_worker_that_is_not_sound_fails_whatever_it_gives(gate):
    gate.runs[False] = replace(gate.runs[False], ended=torn_down(dead=(True, False)))
    assert gate.find().code is Code.NOT_TORN_DOWN


def test_a_solo_worker_that_is_not_sound_is_no_archive(gate):
    gate.runs[True] = replace(gate.runs[True], settled=settled(compilations=(0, 1)))
    assert gate.find().code is Code.COMPILED_AFTER_PRIMING


def test_a_worker_serves_with_what_the_gates_compile(gate):
    gate.primed["primed"] = [primed(rank, "another") for rank in (0, 1)]
    assert gate.find().code is Code.KERNELS_DIFFER


def test_so_does_the_solo_worker(gate):
    gate.primed["solo"] = [primed(rank, "another") for rank in (0, 1)]
    assert gate.find().code is Code.KERNELS_DIFFER


def test_one_block_that_differs_between_the_workers_is_found(gate):
    run = gate.runs[True]
    outputs = run.frozen.outputs
    last = outputs[-1]
    spoiled = last.model_copy(update={"blocks": (*last.blocks[:-1], digest("else"))})
    changed = run.frozen.model_copy(update={"outputs": (*outputs[:-1], spoiled)})
    gate.runs[True] = replace(run, frozen=changed)
    assert gate.find().code is Code.OUTPUT_MISMATCH


@pytest.mark.parametrize("name", ["flipped-archive-byte", "other-gpu-model"])
def test_a_control_upon_nothing_controls_nothing(gate, name):
    with pytest.raises(WrongError) as caught:
        gate.find(name)
    assert caught.value.refusal.code is Code.INCOMPLETE


def test_the_flipped_byte_would_be_missed_without_the_comparison(gate, monkeypatch):
    gate.find()
    monkeypatch.setattr("pp4.qualify.judge.identity", lambda archive, found: None)
    assert gate.find("flipped-archive-byte").code is None


def test_binaries_of_both_ranks_are_one():
    assert len(binaries((primed(0), primed(1)))) == 1
    assert len(binaries((primed(0), primed(1, "solo")))) == 2


def test_numbers_of_a_run_are_in_its_receipt():
    for whole in (PHYSICAL, REHEARSED):
        known = whole.as_facts()
        assert json.dumps(known)
        for name, value in whole.sizes.model_dump().items():
            assert known[f"drafter_{name}"] == value
        for name, other in (("batch", 2), ("context", 3), ("cache_mib", 5), ("run_s", 7.0)):
            assert replace(whole, **{name: other}).as_facts() != known
    hosts = replace(PHYSICAL, checkpoint="/models/secret").as_facts()
    assert hosts["drafter"] == "of the host"
    assert "secret" not in json.dumps(hosts)
    assert os.sep not in json.dumps(hosts)
