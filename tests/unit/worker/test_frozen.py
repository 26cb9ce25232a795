"""The client program of a whole-worker run, as whoever holds starts it."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pp4.drafter.support import unsupported
from pp4.errors import Code
from pp4.qualify.whole_settings import PHYSICAL, REHEARSED
from pp4.receipts.digests import tree_digest
from pp4.wire import Decoder, Reply, Request, encode
from pp4.wire.frozen import Checkpoint, CheckpointFacts
from pp4.worker import frozen
from pp4.worker.frozen_checkpoint import digest_of
from pp4.worker.frozen_inputs import PLANS, longest

ROOT = Path(__file__).parents[3]


def asked(verb, **arguments):
    return frozen.answer(Request(sequence=7, verb=verb, arguments=arguments))


def made(path, **changes):
    sizes = REHEARSED.sizes.model_copy(update=changes)
    reply = asked("checkpoint", path=str(path), sizes=sizes.model_dump())
    return CheckpointFacts(**reply.facts)


def test_a_made_up_checkpoint_is_the_same_wherever_it_is_made(tmp_path):
    first, again = made(tmp_path / "a"), made(tmp_path / "b")
    assert first == again
    assert (first.files, first.bytes > 0) == (2, True)
    assert made(tmp_path / "c", seed=1).sha256 != first.sha256
    assert made(tmp_path / "d", vocab=258).sha256 != first.sha256


def test_its_digest_is_over_names_and_digests_of_what_is_loaded(tmp_path):
    found = made(tmp_path)
    rows = [
        [name, hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()]
        for name in ("config.json", "model.safetensors")
    ]
    assert found.sha256 == tree_digest(rows)
    (tmp_path / "README.md").write_text("what is not loaded")
    assert digest_of(tmp_path) == found
    # one byte of the weights is another checkpoint
    raw = bytearray((tmp_path / "model.safetensors").read_bytes())
    raw[-1] ^= 1
    (tmp_path / "model.safetensors").write_bytes(raw)
    assert digest_of(tmp_path).sha256 != found.sha256


def test_a_checkpoint_that_is_there_is_looked_at(tmp_path):
    found = made(tmp_path)
    reply = asked("checkpoint", path=str(tmp_path))
    assert reply.facts == found.model_dump()


def test_a_checkpoint_is_never_written_over(tmp_path):
    made(tmp_path)
    sizes = REHEARSED.sizes.model_dump()
    reply = asked("checkpoint", path=str(tmp_path), sizes=sizes)
    assert reply.refusal["code"] == Code.EXISTS


def test_what_is_no_checkpoint_is_refused(tmp_path):
    assert asked("checkpoint", path=str(tmp_path)).refusal["code"] == Code.BAD_CHECKPOINT
    missing = asked("checkpoint", path=str(tmp_path / "none"))
    assert missing.refusal["code"] == Code.UNREADABLE


@pytest.mark.parametrize("whole", [PHYSICAL, REHEARSED])
def test_the_sizes_make_a_drafter_that_samples_both_depths_within_the_context(whole):
    config = frozen.config_of(whole.sizes)
    assert [list(unsupported(config, depth)) for depth in (4, 5)] == [[], []]
    assert config.block == 5
    assert whole.context + config.block <= config.max_positions


@pytest.mark.parametrize("whole", [PHYSICAL, REHEARSED])
def test_no_request_of_the_set_outgrows_the_context(whole):
    assert longest(whole.inputs) <= whole.context
    assert max(PLANS[whole.inputs].batches) == whole.batch


def test_an_unknown_verb_or_member_is_refused():
    assert asked("serve").refusal["code"] == Code.BAD_FRAME
    reply = asked("run", socket="/x", inputs="small", limit_s=1.0, speed=True)
    assert reply.refusal["code"] == Code.BAD_FRAME
    assert asked("run", socket="/x", inputs="huge", limit_s=1.0).refusal["code"] == Code.BAD_FRAME


def test_a_worker_that_is_not_there_is_unreachable(tmp_path):
    reply = asked("run", socket=str(tmp_path / "none"), inputs="small", limit_s=1.0)
    assert (reply.sequence, reply.refusal["code"]) == (7, Code.UNREACHABLE)


def test_as_a_program_it_answers_until_its_input_ends(tmp_path):
    """It starts without torch: a worker's libraries are none of its own."""
    told = Checkpoint(path=str(tmp_path / "d"), sizes=REHEARSED.sizes).model_dump()
    questions = [
        Request(sequence=1, verb="checkpoint", arguments=told),
        Request(sequence=2, verb="nothing"),
    ]
    program = (
        "import runpy, sys; runpy.run_module('pp4.worker.frozen', run_name='__main__');"
        "sys.stderr.write(str('torch' in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=b"".join(map(encode, questions)),
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=60,
        check=True,
    )
    first, second = Decoder().feed(done.stdout)
    assert isinstance(first, Reply)
    assert first.facts == digest_of(tmp_path / "d").model_dump()
    assert (second.sequence, second.refusal["code"]) == (2, Code.BAD_FRAME)
    assert done.stderr == b"False"


def test_an_error_that_nobody_expects_is_an_answer_as_well(monkeypatch):
    def broken(_):
        raise ZeroDivisionError("by nothing")

    monkeypatch.setitem(frozen.VERBS, "run", broken)
    reply = asked("run")
    assert reply.refusal["code"] == Code.INTERNAL
    assert "by nothing" in json.dumps(reply.refusal)
