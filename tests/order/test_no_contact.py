"""A measurement that is refused has sent nothing and started nothing: seen from below the command.

One interpreter runs every kind of refusal under an audit hook and under strace, with a HOLD file
whose host is a socket that listens here.  A last call, which is admitted, shows that hook
and socket would have told.
"""

import json
import re
import shutil
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

import paramiko
import pytest

from pp4.errors import Code, Exit
from pp4.receipts.canonical import parse
from pp4.receipts.digests import sha256_hex, tree_digest
from pp4.receipts.verify import verify_bytes
from tests.unit.hold_files import ED25519
from tests.unit.measure import evidence
from tests.unit.receipts.parts import UUIDS

ROOT = Path(__file__).parents[2]
LIMIT_S = 240
FILE = """
[hold]
name = "test"
bound_minutes = {minutes}
ttl = 2

[receiving_host]
transport = "ssh"
address = "127.0.0.1"
port = {port}
user = "nobody"
identity_file = "{key}"
host_key = "{host_key}"
gpus = {gpus}
{more}
"""
# Runs commands one after the other; prints a line for each: how it ended, and what the hook heard.
CHILD = """
import contextlib, io, json, sys
NAMES = ("socket.", "subprocess.", "os.fork", "os.posix_spawn", "os.exec", "os.spawn", "os.system",
    "pty.", "ssl.")
heard = []
def hook(event, arguments):
    if event.startswith(NAMES):
        heard.append(event)
sys.addaudithook(hook)
from pp4 import cli
for argv in json.loads(sys.stdin.read()):
    heard.clear()
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.main(argv)
    said = {"code": code, "heard": sorted(set(heard)), "out": out.getvalue(), "err": err.getvalue()}
    print(json.dumps(said), flush=True)
"""


class Listener:
    """A socket that listens, takes whoever comes, and lets them go at once."""

    def __init__(self):
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port, self.seen = self._socket.getsockname()[1], 0
        self._thread = threading.Thread(target=self._take, daemon=True)
        self._thread.start()

    def _take(self):
        while True:
            try:
                link, _ = self._socket.accept()
            except OSError:
                return
            self.seen += 1
            link.close()

    def close(self):
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(LIMIT_S)


@pytest.fixture(scope="module")
def listener():
    found = Listener()
    yield found
    found.close()


def hold_file(place, port, minutes=90, model=evidence.MODEL, more="", gpus=UUIDS):
    place.mkdir(exist_ok=True)
    key = place / "key"
    if not key.exists():
        paramiko.ECDSAKey.generate().write_private_key_file(str(key))
    path = place / "hold.toml"
    text = FILE.format(
        minutes=minutes,
        port=port,
        key=key,
        host_key=ED25519,
        gpus=json.dumps(gpus),
        more=model + more,
    )
    path.write_text(text)
    return path


def renamed(body):
    """The same made on GPUs of another model."""
    return {**body, "gpus": [{**gpu, "name": "H100"} for gpu in body["gpus"]]}


def recompiled(body):
    """The same with other binaries."""
    rows = [{**one, "cubin_sha256": "f" * 64} for one in body["kernels"]]
    return {**body, "kernels": rows}


def of_older_source(body):
    files = [{"path": "cli.py", "sha256": "a" * 64}]
    digest = tree_digest([["cli.py", "a" * 64]])
    return {**body, "source": {"digest": digest, "files": files}}


def cut(body):
    arms = [body["arms"][0]]
    return {**body, "arms": arms, "complete": False}


@dataclass(frozen=True)
class Case:
    """A kind of refusal: the command, the code, and what differs from what would be admitted.

    Attributes:
        work: of the command.
        code: of the refusal.
        without: evidence that is not given.
        bodies: evidence that is another one; makes its members.
        closed: what the tombstone of the first HOLD says otherwise, None where there is none.
        file: what the HOLD file says otherwise.
    """

    work: str
    code: Code
    without: tuple = ()
    bodies: dict = field(default_factory=dict)
    closed: dict | None = field(default_factory=dict)
    file: dict = field(default_factory=dict)


def of_another_drafter():
    return {**evidence.whole_worker(), "checkpoint_sha256": "3" * 64}


def of_another_seed():
    facts = evidence.plain(evidence.schedule.settings(evidence.PLAN))
    return evidence.first_half(settings={**facts, "seed": 1})


OTHER_FILE = "not the file that was meant"
OLD = "2026-01-01T00:00:00Z"
OTHERS = [UUIDS[0], UUIDS[1].replace("b", "c")]
UNRESTORED = {"restored": ["systemctl: status 1"]}
CASES = {
    "no reference": Case("budget", Code.EVIDENCE_MISSING, without=("whole_worker",)),
    "no budget": Case("A1B1", Code.EVIDENCE_MISSING, without=("budget",)),
    "no first half": Case("B2A2", Code.EVIDENCE_MISSING, without=("first_half",)),
    "expired": Case(
        "A1B1", Code.TOO_OLD, bodies={"budget": lambda: evidence.budget(expires_at=OLD)}
    ),
    "over": Case(
        "A1B1", Code.OVER_BUDGET, bodies={"budget": lambda: evidence.budget(each_ns=10**12)}
    ),
    "over this window": Case(
        "A1B1",
        Code.OVER_BUDGET,
        bodies={"budget": lambda: evidence.budget(each_ns=10**9)},
        file={"minutes": 2},
    ),
    "other kernels": Case(
        "A1B1", Code.EVIDENCE_MISMATCH, bodies={"solo": lambda: recompiled(evidence.solo())}
    ),
    "another GPU model": Case(
        "A1B1", Code.EVIDENCE_MISMATCH, bodies={"budget": lambda: renamed(evidence.budget())}
    ),
    "other shapes": Case(
        "A1B1", Code.SUBJECT_MISMATCH, file={"model": "[model]\nbatch_sizes = [1, 8]\n"}
    ),
    "another model": Case(
        "A1B1",
        Code.SUBJECT_MISMATCH,
        bodies={"budget": lambda: evidence.budget(model_sha256="6" * 64)},
    ),
    "another drafter": Case(
        "budget", Code.SUBJECT_MISMATCH, bodies={"whole_worker": of_another_drafter}
    ),
    "another source": Case(
        "A1B1", Code.HISTORICAL, bodies={"budget": lambda: of_older_source(evidence.budget())}
    ),
    "another depth": Case("A1B1", Code.BAD_HOLD_FILE, file={"model": "[model]\ndepth = 4\n"}),
    "half arms": Case(
        "B2A2", Code.NOT_PROVEN, bodies={"first_half": lambda: cut(evidence.first_half())}
    ),
    "other settings": Case("B2A2", Code.SUBJECT_MISMATCH, bodies={"first_half": of_another_seed}),
    "other GPUs": Case("B2A2", Code.SUBJECT_MISMATCH, file={"gpus": OTHERS}),
    "other ranks": Case("B2A2", Code.SUBJECT_MISMATCH, file={"gpus": UUIDS[::-1]}),
    "not restored": Case("B2A2", Code.NOT_RESTORED, closed=UNRESTORED),
    "restored by nobody": Case(
        "B2A2", Code.NOT_RESTORED, file={"more": '[[restore]]\nargv = ["true"]'}
    ),
    "the end of another HOLD": Case("B2A2", Code.NOT_RESTORED, closed={"fence": "8"}),
    "a survivor": Case("B2A2", Code.NOT_RESTORED, closed={"survivors": [{"pid": 4711}]}),
    "no tombstone": Case("B2A2", Code.NOT_RESTORED, closed=None),
}


@dataclass(frozen=True)
class Refused:
    said: dict
    connections: int
    log: Path
    untraced: str


def case(place, port, name):
    """Write what a case needs; -> its command line."""
    one, where = CASES[name], place / name.replace(" ", "-")
    path = hold_file(where, port, **one.file)
    argv = evidence.options(where, one.work, one.without, **one.bodies)
    tombstone = where / "first_half.closed"
    if one.closed is None:
        tombstone.unlink()
    elif one.closed:
        tombstone.write_bytes(evidence.dump({**evidence.TOMBSTONE, **one.closed}))
    return ["measure", one.work, "--hold", str(path), *argv, "--out", str(where / "out")]


def in_hold_file(place, port):
    """Evidence that the HOLD file names, with another digest than it has; -> command line."""
    where = place / "file"
    where.mkdir()
    budget = evidence.write(where, "budget")
    digest = sha256_hex(budget.read_bytes() + b"x")
    row = f'[evidence]\nbudget = {{ path = "budget.json", sha256 = "{digest}" }}'
    path = hold_file(where, port, more=row)
    return ["measure", "A1B1", "--hold", str(path), "--out", str(where / "out")]


@pytest.fixture(scope="module")
def written(tmp_path_factory, listener):
    """Command lines by case; whatever they read lies there."""
    place = tmp_path_factory.mktemp("refused")
    lines = {name: case(place, listener.port, name) for name in CASES}
    return {**lines, OTHER_FILE: in_hold_file(place, listener.port)}


def run(lines, *before):
    """Run command lines in one child; -> what it said of each."""
    done = subprocess.run(
        [*before, sys.executable, "-P", "-c", CHILD],
        input=json.dumps(lines),
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


TRACE = ("strace", "-f", "--seccomp-bpf", "-e", "trace=network,process", "-o")


@pytest.fixture(scope="module")
def refused(written, listener, tmp_path_factory):
    """What was said of each case, connections, and the log of strace or why there is none."""
    log, lines = tmp_path_factory.mktemp("strace") / "log", list(written.values())
    before = listener.seen
    if traced := why_untraced(log):
        told = run(lines)
    else:
        log.unlink()
        told = run(lines, *TRACE, str(log))
    return Refused(dict(zip(written, told, strict=True)), listener.seen - before, log, traced)


def why_untraced(log):
    """Why nothing can be traced here; empty where it can."""
    if shutil.which(TRACE[0]) is None:
        return "no strace here"
    tried = subprocess.run([*TRACE, str(log), "true"], capture_output=True, text=True)
    return f"nothing may be traced here: {tried.stderr}" if tried.returncode else ""


def codes():
    return {name: one.code for name, one in CASES.items()} | {OTHER_FILE: Code.EVIDENCE_MISMATCH}


@pytest.mark.parametrize("name", [*CASES, OTHER_FILE])
def test_a_refusal_has_sent_nothing_started_nothing_and_left_its_receipt(refused, written, name):
    found = refused.said[name]
    assert found["code"] == Exit.REFUSED, found
    assert found["heard"] == []
    said = re.search(r"^code +(\w+)$", found["err"], re.MULTILINE)
    assert said.group(1) == codes()[name], found["err"]
    out = Path(written[name][-1])
    (path,) = out.iterdir()
    assert f"nothing but the receipt {path}" in found["err"]
    report = verify_bytes([(path.name, path.read_bytes())])
    assert report.failures == ()
    tree = parse(path.read_bytes(), path.name)
    assert (tree["kind"], tree["contacted"], tree["exit"]) == ("refusal", False, 3)
    assert tree["refusal"]["code"] == codes()[name]
    assert tree["command"] == f"pp4 measure {written[name][1]} --hold FILE"


def test_nobody_has_connected(refused):
    assert refused.connections == 0


@pytest.mark.parametrize("name", ["over", "expired", "other shapes", "not restored"])
def test_the_projected_times_are_shown_in_any_case(refused, name):
    rows = [line.split() for line in refused.said[name]["out"].splitlines()]
    assert [row[0] for row in rows if row[0].startswith("headline.")] == [
        f"headline.b{batch}.t{temperature}"
        for batch in evidence.PLAN.batches
        for temperature in evidence.PLAN.temperatures
    ]
    assert rows[-2][:3] == ["all", "of", "it"]
    assert rows[-1][:2] == ["the", "window"]


def test_under_strace_there_is_no_socket_and_no_process(refused):
    if refused.untraced:
        pytest.skip(refused.untraced)
    lines = refused.log.read_text().splitlines()
    calls = [match.group(1) for line in lines if (match := re.match(r"\d+ +(\w+)\(", line))]
    # one program, which has ended
    assert calls.count("execve") == 1
    assert set(calls) <= {"execve", "exit_group"}, set(calls)


def test_what_is_admitted_is_heard_and_seen(tmp_path, listener):
    path = hold_file(tmp_path / "admitted", listener.port)
    argv = evidence.options(tmp_path / "admitted", "B2A2")
    line = ["measure", "B2A2", "--hold", str(path), *argv, "--out", str(tmp_path / "out")]
    before = listener.seen
    (found,) = run([line])
    assert found["code"] != Exit.DONE
    assert "socket.connect" in found["heard"], found
    assert listener.seen > before
    assert not list(tmp_path.glob("out/refusal-*"))
