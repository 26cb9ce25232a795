"""Signals at the command itself, in the middle of a rehearsal: nobody and nothing stays."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.unit.processes import state

ROOT = Path(__file__).parents[2]
LONG = 180.0

# The command with a few arms of its plan: what comes before them would take half a minute.  A
# small kernel compiles faster.
COMMAND = """
import sys
from dataclasses import replace
from functools import partial
from pp4.cli import main
from pp4.qualify import rehearsal
from pp4.wire.facts import Shape

out, *arms = sys.argv[1:]
rehearsal.REHEARSED = tuple(
    replace(gate, arms=tuple(arm for arm in gate.arms if arm.step.name in arms))
    for gate in rehearsal.REHEARSED
)
small = Shape(vocab=64, split=32, tile=32, rank_dim=1)
settings = replace(rehearsal.REHEARSAL, shape=small)
rehearsal.rehearse = partial(rehearsal.rehearse, settings=settings)
sys.exit(main(["pair-qualify", "--dry-run", "--out", out]))
"""


def processes_of(mark):
    """Processes, zombies aside, whose arguments or environment hold a path; -> their pids."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            state = (entry / "stat").read_bytes().rpartition(b")")[2].split()[0]
            words = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
        except OSError:
            continue
        if state not in (b"Z", b"X") and os.fsencode(mark) in words:
            found.add(int(entry.name))
    return found


def within(condition, limit_s=LONG):
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


class Rehearsal:
    """The command, its progress line by line, and everything that it has started.

    Args:
        directory: where it runs.
        arms: of its plan; those behind the first take longer than a test does.
    """

    def __init__(self, directory, arms):
        self.first = arms[0]
        self.temp, self.out = directory / "temp", directory / "out"
        self.temp.mkdir()
        # whatever runs inside inherits this directory: that is how it is found again
        self.process = subprocess.Popen(
            [sys.executable, "-c", COMMAND, str(self.out), *arms],
            cwd=ROOT,
            env={**os.environ, "TMPDIR": str(self.temp)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def reach(self):
        """Read progress until the first arm has ended, and wait for the pair of the second."""
        for line in self.process.stderr:
            if line.startswith("[") and self.first in line:
                assert within(lambda: len(self.children()) >= 3)
                return
        pytest.fail(f"ended before {self.first}")

    def children(self):
        """Pids of everything below the command."""
        return processes_of(self.temp) - {self.process.pid}

    def end(self):
        """Read the rest; -> what it still said."""
        out, err = self.process.communicate(timeout=LONG)
        assert out == ""
        return err.splitlines()


@pytest.fixture
def rehearse(tmp_path):
    """Starts the command with some arms; ends whatever is left of it."""
    started = []

    def start(arms):
        started.append(Rehearsal(tmp_path, arms))
        return started[-1]

    yield start
    for one in started:
        for pid in processes_of(one.temp):
            os.kill(pid, signal.SIGKILL)
        one.process.wait()
        one.process.stdout.close()
        one.process.stderr.close()


# while ranks exchange patterns, while they compile, while they run blocks
COMPILING = ("gate-0/devices", "gate-1/unprimed-capture", "gate-1/both-primed-before-launch")
PATTERNS = ("gate-0/wrong-device", "gate-0/data-pattern", *COMPILING[1:])
BLOCKS = (
    COMPILING[-1],
    "gate-2/pair-equals-reference",
    "gate-2/ties",
    "gate-3/replay-equals-eager",
)


@pytest.mark.parametrize(
    ("number", "exit_code", "arms"),
    [(signal.SIGINT, 130, PATTERNS), (signal.SIGTERM, 143, COMPILING)],
)
def test_a_signal_ends_the_rehearsal_and_leaves_nothing(rehearse, number, exit_code, arms):
    rehearsal = rehearse(arms)
    rehearsal.reach()
    rehearsal.process.send_signal(number)
    said = rehearsal.end()
    assert rehearsal.process.returncode == exit_code
    # no waiting: the answer said that nothing is left, so nothing may be left now
    assert "left      nothing" in said
    assert rehearsal.children() == set()
    assert list(rehearsal.temp.iterdir()) == []
    assert not rehearsal.out.exists()


def test_a_killed_coordinator_leaves_no_process(rehearse):
    rehearsal = rehearse(BLOCKS)
    rehearsal.reach()
    rehearsal.process.kill()
    assert rehearsal.process.wait(LONG) == -signal.SIGKILL
    # far below every bound of a step: the end of the coordinator itself has to be what ends them
    assert within(lambda: not rehearsal.children(), limit_s=15)
    assert list(rehearsal.out.iterdir()) == []
    # what it could not remove is one directory with the journal up to its last line
    (directory,) = rehearsal.temp.iterdir()
    assert (directory / "journal.jsonl").read_bytes().endswith(b"\n")


def test_a_coordinator_killed_while_a_rank_compiles_leaves_no_compiler(rehearse):
    rehearsal = rehearse(COMPILING)
    rehearsal.reach()
    # one that would end by itself would show nothing
    assert within(lambda: _stopped(_compiling(rehearsal.children())))
    rehearsal.process.kill()
    assert within(lambda: not rehearsal.children(), limit_s=15)


def _stopped(pids):
    """Those of some processes that stand still now; the others have ended."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    assert within(lambda: all(state(pid) in ("T", "Z", "X", "") for pid in pids))
    return [pid for pid in pids if state(pid) == "T"]


def _compiling(pids):
    """Those of some processes that compile a kernel."""
    found = []
    for pid in pids:
        with suppress(OSError):
            if b"pp4.kernels.compile" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found
