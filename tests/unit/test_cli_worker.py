"""``pp4 worker``: what it starts and how, and what it says of one that runs."""

import json
import os
import socket
import sys
import threading
from datetime import UTC, datetime

import pytest

from pp4.config import INTERPRETED, ON_GPUS
from pp4.errors import Code, Refusal, RefusedError
from pp4.receipts.build import build
from pp4.receipts.digests import file_digest, installed_source
from pp4.run import host
from pp4.run import receipt as receipts
from pp4.transport.worker_socket import ask_status
from pp4.wire.draft_frames import Decoder, encode
from pp4.wire.drafts import QUESTIONS, Aborted, Refused, Standing, Status
from pp4.wire.offers import Offer
from pp4.wire.serving import read_settings
from tests.unit.qualify.gpus import UUIDS, gpu, report
from tests.unit.qualify.machines import machine
from tests.unit.receipts import samples
from tests.unit.test_cli import call, refusal

SWITCH = "DSPARK_SAMPLED_TOP32"


class Became(BaseException):
    """In the place of another program; nothing below may swallow it."""


@pytest.fixture
def started(monkeypatch, capsys):
    """Runs ``pp4 worker serve``; -> the settings and the environment that the worker got."""
    seen = []

    def become(path, argv, environment):
        seen.append((path, argv, environment))
        raise Became

    monkeypatch.setattr(os, "execve", become)
    monkeypatch.setattr(receipts, "require_packages", lambda _: None)
    monkeypatch.setattr(host, "look_at_gpus", lambda: report(gpu(0), gpu(1)))

    def serve(*arguments):
        with pytest.raises(Became):
            call(capsys, "worker", "serve", *arguments)
        path, argv, environment = seen.pop()
        assert path == argv[0] == sys.executable
        assert argv[1:4] == ["-P", "-m", "pp4.worker.serve"]
        assert len(argv) == 5
        return read_settings(argv[4].encode()), environment

    return serve


def test_a_worker_on_a_cpu(started, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told, env = started("drafter", "--device", "reference")
    assert told.checkpoint == str(tmp_path / "drafter")
    assert (told.device, told.gpus, told.permission.kind) == ("reference", (), "none")
    state = tmp_path / "pp4-state"
    assert told.socket == str(state / "worker" / "socket")
    assert (told.state, told.compiled) == (str(state / "worker"), str(state / "compiled"))
    assert SWITCH not in env
    assert INTERPRETED.items() <= env.items()
    assert os.path.exists(os.path.join(env["PYTHONPATH"], "pp4", "cli", "worker.py"))


def test_every_option_arrives(started, tmp_path):
    told, _ = started(
        *("/d", "--target", "/t", "--device", "interpreter", "--solo", "--socket", "/run/s"),
        *("--tcp", "[::1]:7000", "--batches", "1, 8", "--depths", "5", "--slots", "9"),
        *("--context", "100", "--cache-mib", "0", "--metrics-port", "0"),
        *("--exit-when-failed", "--log", "text", "--grant"),
    )
    assert (told.checkpoint, told.target, told.device, told.solo) == (
        "/d",
        "/t",
        "interpreter",
        True,
    )
    assert (told.socket, told.tcp.host, told.tcp.port) == ("/run/s", "::1", 7000)
    assert (told.batches, told.depths, told.slots) == ((1, 8), (5,), 9)
    assert (told.context, told.cache_mib, told.metrics_port) == (100, 0, 0)
    assert (told.exit_when_failed, told.log, told.permission.kind) == (True, "text", "grant")


def test_a_pair_of_gpus_with_the_switch_off(started):
    told, env = started("/d")
    assert (told.gpus, told.permission.kind) == (UUIDS, "none")
    assert SWITCH not in env
    assert ON_GPUS.items() <= env.items()
    assert started("/d", "--gpu", "1", "--gpu", "0")[0].gpus == UUIDS[::-1]
    assert started("/d", "--solo", "--gpu", "1")[0].gpus == UUIDS[1:]


@pytest.mark.parametrize("text", ["0", "1"])
def test_the_switch_is_handed_over_as_it_was_read(started, monkeypatch, text):
    monkeypatch.setenv(SWITCH, text)
    monkeypatch.setenv("VLLM_DSPARK_SAMPLED_TOP32", "1")
    told, env = started("/d", "--device", "reference")
    assert env.get(SWITCH) == ("1" if text == "1" else None)
    assert "VLLM_DSPARK_SAMPLED_TOP32" not in env
    assert "sampled" not in told.model_dump_json()


@pytest.mark.parametrize("text", ["", "yes", "2"])
def test_a_switch_that_makes_no_sense_starts_nothing(monkeypatch, capsys, text):
    monkeypatch.setenv(SWITCH, text)
    code, out, err = call(capsys, "worker", "serve", "/d", "--device", "reference")
    assert (code, out) == (3, "")
    assert refusal(err)["code"] == "BAD_SETTING"


@pytest.fixture
def qualified(monkeypatch, tmp_path):
    """A machine that was qualified, with the switch on."""
    monkeypatch.setenv(SWITCH, "1")
    monkeypatch.setattr(host, "facts_of_this_machine", lambda _: machine())
    body = {**samples.qualification(), "source": installed_source().as_dict()}
    path = tmp_path / "pp4-state" / "receipts" / "q.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(build(body))
    return path


def test_a_qualified_machine(started, qualified):
    for more in ((), ("--qualification", qualified), ("--max-age", "9999d")):
        told, env = started("/d", *more)
        assert told.gpus == samples.UUIDS
        assert told.permission.path == str(qualified)
        assert told.permission.sha256 == file_digest(qualified.read_bytes())
        assert env[SWITCH] == "1"


def test_a_machine_that_is_not_qualified(qualified, started, capsys, monkeypatch):
    for more in (("--max-age", "1s"), ("--gpu", "0", "--gpu", "1")):
        code, out, err = call(capsys, "worker", "serve", "/d", *more)
        assert (code, out) == (3, "")
    facts = machine()
    facts["kernels"][0]["cubin_sha256"] = samples.digest("0")
    monkeypatch.setattr(host, "facts_of_this_machine", lambda _: facts)
    code, _, err = call(capsys, "worker", "serve", "/d")
    assert (code, refusal(err)["code"]) == (3, "SUBJECT_MISMATCH")
    qualified.unlink()
    code, _, err = call(capsys, "worker", "serve", "/d")
    assert (code, refusal(err)["code"]) == (3, "EVIDENCE_MISSING")


def unasked():
    raise AssertionError("the GPUs were asked")


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (("--device", "cpu"), 3, "device"),
        (("--batches", "4,2"), 3, "batches"),
        (("--tcp", "0.0.0.0:1"), 3, "tcp.host"),
        (("--tcp", "localhost:1"), 3, "tcp.host"),
        (("--slots", "0"), 3, "slots"),
        (("--socket", "/" + "x" * 200), 3, "socket"),
        (("--log", "xml"), 3, "log"),
        (("--batches", "one"), 2, "--batches"),
        (("--batches", "1,"), 2, "--batches"),
        (("--depths", ""), 2, "--depths"),
        (("--tcp", "7000"), 2, "--tcp"),
        (("--gpu", "0"), 2, "--gpu"),
        (("--solo", "--gpu", "0", "--gpu", "1"), 2, "--gpu"),
        (("--device", "reference", "--gpu", "0"), 2, "--gpu"),
        (("--max-age", "soon"), 2, "--max-age"),
        (("--grant", "--qualification", "q.json"), 2, "--grant"),
    ],
)
def test_bad_options_are_one_refusal_before_a_gpu_is_asked(
    capsys, monkeypatch, arguments, code, word
):
    monkeypatch.setattr(host, "look_at_gpus", unasked)
    found, out, err = call(capsys, "worker", "serve", "/d", *arguments)
    assert (found, out) == (code, "")
    assert word in refusal(err)["where"]


def test_an_interpreter_that_does_not_start(capsys, monkeypatch):
    monkeypatch.setattr(receipts, "require_packages", lambda _: None)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    code, _, err = call(capsys, "worker", "serve", "/d", "--device", "reference")
    assert (code, refusal(err)["where"]) == (3, "/nowhere/python")


OFFER = Offer(
    definition="dyadic24-floor-first-v1",
    definition_sha256="d" * 64,
    tau="0.7",
    candidates=32,
    vocab=300,
    draft_vocab=300,
    bounds=((0, 150), (150, 300)),
    block=5,
    depths=(4, 5),
    feature_width=32,
    context=128,
    slots=64,
    batches=(1, 2, 4),
    sampled=True,
    device="reference",
    devices=("rank 0", "rank 1"),
)
FAILED = Refusal(Code.PEER_TIMEOUT, "rank 1", "an answer", "none")


def standing(state, **changes):
    given = {
        "sequence": 1,
        "state": state,
        "since": datetime(2026, 3, 1, 12, tzinfo=UTC),
        "ranks": (11, 12),
        "offer": None,
        "refusal": None,
        "counters": {"blocks": 3, "padded_rows": 2},
        **changes,
    }
    return Standing(**given)


@pytest.fixture
def answering(tmp_path):
    """A worker that answers one question with given bytes; -> its socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        path = tmp_path / "s"
        listening.settimeout(20)
        listening.bind(str(path))
        listening.listen()
        threads = []

        def serve(*pieces):
            def answer():
                line, _ = listening.accept()
                with line:
                    line.settimeout(20)
                    (asked,) = Decoder(QUESTIONS).feed(line.recv(4096))
                    assert asked.message == Status(sequence=1)
                    for piece in pieces:
                        line.sendall(piece)

            threads.append(threading.Thread(target=answer))
            threads[-1].start()
            return path

        yield serve
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()


@pytest.mark.parametrize(
    ("state", "code"),
    [("serving", 0), ("failed", 1), ("torn down", 3), ("starting", 4), ("primed", 4)],
)
def test_the_exit_code_is_the_state(answering, capsys, state, code):
    path = answering(encode(standing(state)))
    found, out, err = call(capsys, "worker", "status", path)
    assert (found, err) == (code, "")
    assert out.splitlines()[0] == f"state: {state}, since 2026-03-01T12:00:00+00:00"


def test_what_a_worker_says(answering, capsys):
    whole = encode(standing("serving", offer=OFFER))
    # as a network may cut it
    found, out, err = call(
        capsys, "worker", "status", answering(whole[:7], whole[7:90], whole[90:])
    )
    assert (found, err) == (0, "")
    assert "rank processes: 11, 12" in out
    assert "device: reference (rank 0, rank 1)" in out
    assert "sampled drafting: on" in out
    assert "vocabulary: 300 tokens, 300 of them drafted (0 to 149, 150 to 299)" in out
    assert "requests: 64 at once, 128 tokens each, batches of 1, 2, 4" in out
    assert "padded rows: 2" in out


def test_the_same_as_one_document(answering, capsys):
    asked = standing("failed", offer=OFFER, refusal=FAILED.as_dict())
    found, out, err = call(capsys, "worker", "status", answering(encode(asked)), "--json")
    assert (found, err) == (1, "")
    told = json.loads(out)
    assert (told["state"], told["exit"], told["counters"]["blocks"]) == ("failed", 1, 3)
    assert told["offer"] == OFFER.model_dump(mode="json")
    assert told["refusal"]["code"] == "PEER_TIMEOUT"


def test_a_worker_that_failed_says_why(answering, capsys):
    path = answering(encode(standing("failed", refusal=FAILED.as_dict())))
    found, out, err = call(capsys, "worker", "status", path)
    assert (found, refusal(err)["code"]) == (1, "PEER_TIMEOUT")
    assert "state: failed" in out


def test_a_worker_that_refuses_to_say(answering, capsys):
    other = Refusal(Code.INTERNAL, "socket", "this user", "another")
    path = answering(encode(Refused(sequence=None, refusal=other.as_dict())))
    found, _, err = call(capsys, "worker", "status", path)
    assert (found, refusal(err)["found"]) == (3, "another")


@pytest.mark.parametrize("left", ["nothing", "half an answer"])
def test_a_connection_that_ends(answering, capsys, left):
    data = b"" if left == "nothing" else encode(standing("serving"))[:-1]
    found, _, err = call(capsys, "worker", "status", answering(data))
    assert (found, refusal(err)["code"]) == (3, "UNREACHABLE")


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        encode(Aborted(sequence=1, request=1, dropped=False)),
        encode(standing("serving", sequence=2)),
    ],
)
def test_what_is_no_answer(answering, capsys, data):
    found, _, err = call(capsys, "worker", "status", answering(data))
    assert (found, refusal(err)["code"]) == (1, "BAD_FRAME")


def test_nobody_is_there(tmp_path, capsys):
    # a socket of somebody who is dead, no socket, nothing, and a name that is too long
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(str(tmp_path / "dead"))
    (tmp_path / "file").touch()
    for name in ("dead", "file", "none", "x" * 150):
        found, out, err = call(capsys, "worker", "status", tmp_path / name)
        assert (found, out) == (3, "")
        assert refusal(err)["code"] == "UNREACHABLE"
    # where a worker of this user would be
    found, _, err = call(capsys, "worker", "status")
    assert (found, refusal(err)["where"]) == (3, f"socket {tmp_path}/pp4-state/worker/socket")


def test_a_worker_that_says_nothing_is_not_waited_for(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(tmp_path / "s"))
        listening.listen()
        with pytest.raises(RefusedError) as caught:
            ask_status(tmp_path / "s", 0.05)
        assert caught.value.refusal.found == "none within 0.05 s"
