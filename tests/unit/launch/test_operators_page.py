"""The operator's page: every command on it, run as it stands there, and what it says is so.

Commands are lines of its ``sh`` blocks.  Each is in one of the tuples below, which the tests run.
"""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from pp4.errors import Code, Exit
from pp4.hold.supervisor import RESERVE_S
from tests.faults.test_measure_cuts import MEASURE
from tests.faults.windows import GPUS, PATIENCE_S, Coordinator, gone, supervisor_of, until
from tests.faults.windows import told_by as told_of
from tests.rehearsal.conftest import rehearsed  # noqa: F401 (the one that all tests share)
from tests.ssh.loopback import FILE as OVER_SSH
from tests.ssh.loopback import filled
from tests.ssh.servers import Sshd, needs_sshd

ROOT = Path(__file__).parents[3]
PATH = ROOT / "launch" / "windows" / "PP4-COORDINATOR.md"
PAGE = PATH.read_text("utf-8")
ARCHIVED = ROOT / "receipts" / "qualification-0a1c8bc1a229da2d.json"

HERE = f"""
[hold]
name = "test"
ttl = {{ttl}}

[receiving_host]
transport = "local"
gpus = {json.dumps(GPUS)}
state_dir = "{{place}}/state"
host_dir = "{{place}}/host"
"""

DOCTOR, EXPLAIN, NEW = "pp4 doctor", "pp4 explain HELD_BY", "pp4 hold new hold.toml"
STATUS = "pp4 hold status --hold hold.toml"
REHEARSE = "pp4 pair-qualify --hold hold.toml --dry-run-device --out rehearsal"
CHECK_REHEARSAL = "pp4 verify-receipt --kind rehearsal rehearsal/*.json"
PHYSICAL = (
    "pp4 solo-qualify --hold hold.toml",
    "pp4 solo-qualify --hold hold.toml --checkpoint mini",
    'pp4 pair-qualify --hold hold.toml --solo "$SOLO" --soak 4',
    "pp4 pair-qualify --hold hold.toml",
)
END = 'kill -TERM "$PID"'
DRIVER = "nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory --format=csv"
CLOSE = 'pp4 hold close "$ID" --fence "$FENCE" --hold hold.toml'
RECOVER = 'pp4 hold recover "$ID" --hold hold.toml'
STATUS_THERE = "pp4 hold status"
CLEAR = (
    'pp4 hold clear "$GPU" --operator "$USER" --why "ps and nvidia-smi show nothing of that HOLD"'
)
CHECK = 'pp4 verify-receipt --kind qualification "$RECEIPT"'
STANDING = ("pp4 status", 'pp4 gate "$RECEIPT"')
RUN = {DOCTOR, EXPLAIN, NEW, STATUS, REHEARSE, CHECK_REHEARSAL, END, DRIVER, CLOSE, RECOVER}
RUN |= {STATUS_THERE, CLEAR, CHECK, *PHYSICAL, *STANDING, *MEASURE}


def test_every_command_of_the_page_is_run_by_a_test():
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    commands = [line for block in blocks for line in block.splitlines() if line]
    assert set(commands) == RUN
    # and every other fence shows what was said, and is no command that nobody runs
    assert PAGE.count("\n```") == 2 * (len(blocks) + PAGE.count("\n```text"))


class Shell:
    """A shell of the operator, in a directory that has ``hold.toml``; pp4 is the one under test."""

    def __init__(self, place):
        self.place = place
        programs = place / "programs"
        programs.mkdir()
        pp4 = programs / "pp4"
        pp4.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m pp4 "$@"\n')
        pp4.chmod(0o755)
        self.environment = {
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "PP4_STATE_DIR": str(place / "mine"),
            "PP4_HOST_DIR": str(place / "host"),
            "USER": "ada",
        }

    def start(self, command, **words):
        """Start a line; words are its variables."""
        return subprocess.Popen(
            ["bash", "-c", command],
            cwd=self.place,
            env=self.environment | {name: str(word) for name, word in words.items()},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, command, **words):
        """Run a line; -> exit code and all that it said."""
        process = self.start(command, **words)
        out, errors = process.communicate(timeout=PATIENCE_S)
        return SimpleNamespace(exit=process.returncode, out=out, said=out + errors)


@pytest.fixture
def shell(tmp_path):
    """A shell whose HOLD file names this machine, and GPUs that it does not have."""
    (tmp_path / "hold.toml").write_text(HERE.format(place=tmp_path, ttl=2))
    return Shell(tmp_path)


def row(out, first):
    """Words of the table row that begins with a text."""
    (line,) = [line for line in out.splitlines() if line.startswith(first)]
    return line.split()


def locks(out):
    return [row(out, gpu)[1] for gpu in GPUS]


# -- before the window, and the window


def test_what_is_looked_at_before(shell):
    done = shell.run(DOCTOR)
    assert done.exit == 0, done.said
    promised = re.search(r"Good: no `missing` in a row.*?\n\n", PAGE, re.DOTALL).group()
    rows = {name for name in re.findall(r"`([a-z ]+)`", promised) if name != "missing"}
    assert len(rows) == 10
    for name in rows:
        assert re.search(rf"^\w+ +{name}  ", done.out, re.MULTILINE), name
    assert "way out" in shell.run(EXPLAIN).out


def test_a_hold_file_is_written(shell):
    (shell.place / "hold.toml").unlink()
    assert shell.run(NEW).exit == 0
    assert (shell.place / "hold.toml").read_text().startswith("# A HOLD file")


def test_without_such_gpus_the_window_is_refused_and_nothing_is_left(shell):
    for command in PHYSICAL:
        done = shell.run(command, SOLO=next((ROOT / "receipts").glob("solo-*.json")))
        assert done.exit == Exit.REFUSED, done.said
        assert re.search(r"^left +nothing$", done.said, re.MULTILINE), done.said
    assert not list(shell.place.glob("*/holds/*"))


def test_the_receipt_of_a_rehearsal_is_checked(shell, rehearsed):  # noqa: F811
    (shell.place / "rehearsal").symlink_to(Path(rehearsed.out))
    done = shell.run(CHECK_REHEARSAL)
    assert done.exit == 0, done.said
    assert "verdict: rehearsed" in done.out


# -- abort, over SSH


@pytest.fixture
def over_ssh(shell):
    """The same shell, its HOLD file a real server's."""
    server = Sshd(shell.place / "sshd")
    (shell.place / "hold.toml").write_text(filled(OVER_SSH, server, shell.place))
    yield shell
    server.stop()


def at_work(place, process):
    """The HOLD of a run whose gates have begun."""
    assert process.poll() is None, process.communicate()
    for journal in place.glob("state/holds/*/journal.jsonl"):
        if b"gate-0/" in journal.read_bytes():
            return journal.parent.name
    return None


@needs_sshd
def test_a_run_is_seen_and_ended_and_leaves_nothing(over_ssh):
    process = over_ssh.start(REHEARSE)
    try:
        hold = until(lambda: at_work(over_ssh.place, process))
        seen = over_ssh.run(STATUS)
        assert (seen.exit, row(seen.out, hold)[1]) == (0, "open")
        assert locks(seen.out) == ["taken", "taken"]
        assert over_ssh.run(END, PID=process.pid).exit == 0
        said = "".join(process.communicate(timeout=PATIENCE_S))
    finally:
        process.kill()
        process.wait()
    assert process.returncode == Exit.TERMINATED, said
    assert re.search(r"^left +nothing$", said, re.MULTILINE)
    assert not list(over_ssh.place.glob("rehearsal/*"))
    seen = over_ssh.run(STATUS)
    assert row(seen.out, hold)[1:3] == ["closed", "cancelled"]
    assert locks(seen.out) == ["free", "free"]
    # HOLD, since, no time left, processes alive, GPUs
    assert row(seen.out, hold)[-3] == "0"


def test_what_the_driver_says_can_be_asked(shell):
    if subprocess.run(["bash", "-c", "nvidia-smi -L"], capture_output=True).returncode:
        pytest.skip("no driver of NVIDIA here")
    assert shell.run(DRIVER).exit == 0


# -- recovery


def test_a_hold_that_nobody_wants_is_closed(shell):
    one = Coordinator(shell.place, {"start": ["plain"]}, ttl_s=100.0)
    try:
        one.signal(signal.SIGKILL)
        assert row(shell.run(STATUS).out, one.hold)[1] == "open"
        done = shell.run(CLOSE, ID=one.hold, FENCE=one.told["fence"])
        assert done.exit == 0, done.said
        assert "\nwhy: cancelled\n" in done.out
        assert gone(one.drill)
    finally:
        one.close()


def test_a_hold_whose_supervisor_and_guard_are_killed_is_recovered(shell):
    one = Coordinator(shell.place, {"start": ["plain"]})
    (child,) = one.told["pids"]
    guard = int(told_of(one.told["pid"], "stat").rpartition(")")[2].split()[1])
    try:
        for pid in (guard, supervisor_of(shell.place, one.hold).pid, child):
            os.kill(pid, signal.SIGKILL)
        one.signal(signal.SIGKILL)
        until(lambda: gone(one.drill))
        assert row(shell.run(STATUS).out, one.hold)[1] == "lost"
        done = shell.run(RECOVER, ID=one.hold)
        assert (done.exit, "state: quarantined" in done.out) == (0, True), done.said
    finally:
        one.close()
    # on the host
    shell.environment["PP4_STATE_DIR"] = str(shell.place / "state")
    seen = shell.run(STATUS_THERE).out
    assert (locks(seen), row(seen, GPUS[0])[-1]) == (["free", "free"], one.hold)
    for gpu in GPUS:
        done = shell.run(CLEAR, GPU=gpu)
        assert (done.exit, "\noperator: ada\n" in done.out) == (0, True), done.said
    done = shell.run(RECOVER, ID=one.hold)
    assert (done.exit, "state: closed" in done.out) == (0, True), done.said


# -- receipts


def test_a_receipt_is_checked_and_opens_nothing(shell):
    done = shell.run(CHECK, RECEIPT=ARCHIVED)
    assert done.exit == 0, done.said
    assert "shows: the gates ran on the physical pair that it names; verdict: qual" in done.out
    assert "does not show:" in done.out
    for command in STANDING:
        done = shell.run(command, RECEIPT=ARCHIVED)
        assert done.exit == Exit.REFUSED, done.said


# -- what the page says


def section(title):
    return re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE).group(1)


def cells(text):
    """Rows of the tables of a text, without their heads."""
    rows = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows]


def test_every_exit_code_has_one_row():
    codes = [int(first) for first, *_ in cells(section("Exit codes")) if first.isdigit()]
    assert codes == sorted(Exit)


def test_every_code_and_place_that_is_named_exists():
    named = set(re.findall(r"`([A-Z]+(?:_[A-Z]+)*)`", PAGE)) - {"WRONG", "D"}
    ours = {"PP4_STATE_DIR", "PP4_HOST_DIR", "DSPARK_SAMPLED_TOP32", "VLLM_DSPARK_SAMPLED_TOP32"}
    assert len(named - ours) > 10
    assert named - ours <= set(Code)
    for link in re.findall(r"\]\(([^)]+)\)", PAGE):
        file, _, title = link.partition("#")
        text = (PATH.parent / file).read_text() if file else PAGE
        titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
        assert not title or title in [one.lower().replace(" ", "-") for one in titles], link


def test_figures_are_those_that_were_measured():
    measured = " ".join((ROOT / "benchmarks" / "RESULTS.md").read_text().split())
    figures = [row[1] for row in cells(section("The window") + section("Abort"))]
    numbers = [one for text in figures for one in re.findall(r"[\d.,]*\d(?= m?s\b)", text)]
    assert len(numbers) >= 9
    for number in [*numbers, "1,719 MiB"]:
        assert re.search(rf"(?<![\d.,]){re.escape(number)}(?!\d|[.,]\d)", measured), number
    assert "1,719 MiB" in PAGE
    assert f"after {90 - RESERVE_S / 60:g}\nminutes" in PAGE
