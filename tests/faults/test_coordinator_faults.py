"""Signals at the command itself, in the middle of a rehearsal: nobody and nothing stays."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LONG = 180.0


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
    """The command, its progress line by line, and everything that it has started."""

    def __init__(self, directory):
        self.temp, self.out = directory / "temp", directory / "out"
        self.temp.mkdir()
        # whatever runs inside inherits this directory: that is how it is found again
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pp4", "pair-qualify", "--dry-run", "--out", str(self.out)],
            cwd=ROOT,
            env={**os.environ, "TMPDIR": str(self.temp)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def reach(self, step):
        """Read progress until a step has ended."""
        for line in self.process.stderr:
            if line.startswith("[") and step in line:
                return
        pytest.fail(f"ended before {step}")

    def children(self):
        """Pids of everything below the command."""
        return processes_of(self.temp) - {self.process.pid}

    def end(self):
        """Read the rest; -> what it still said."""
        out, err = self.process.communicate(timeout=LONG)
        assert out == ""
        return err.splitlines()


@pytest.fixture
def rehearsal(tmp_path):
    started = Rehearsal(tmp_path)
    yield started
    for pid in processes_of(started.temp):
        os.kill(pid, signal.SIGKILL)
    started.process.wait()
    started.process.stdout.close()
    started.process.stderr.close()


# while ranks exchange patterns, while they compile, while they run blocks
PLACES = {"pattern": "gate-0/wrong-device", "compiling": "gate-1/unprimed-capture"}
BLOCKS = "gate-1/late-compilation"


@pytest.mark.parametrize(
    ("number", "exit_code", "step"),
    [
        (signal.SIGINT, 130, PLACES["pattern"]),
        (signal.SIGTERM, 143, PLACES["compiling"]),
    ],
)
def test_a_signal_ends_the_rehearsal_and_leaves_nothing(rehearsal, number, exit_code, step):
    rehearsal.reach(step)
    assert within(lambda: len(rehearsal.children()) >= 3)
    rehearsal.process.send_signal(number)
    said = rehearsal.end()
    assert rehearsal.process.returncode == exit_code
    # no waiting: the answer said that nothing is left, so nothing may be left now
    assert "left      nothing" in said
    assert rehearsal.children() == set()
    assert list(rehearsal.temp.iterdir()) == []
    assert not rehearsal.out.exists()


def test_a_killed_coordinator_leaves_no_process(rehearsal):
    rehearsal.reach(BLOCKS)
    assert within(lambda: len(rehearsal.children()) >= 3)
    rehearsal.process.kill()
    assert rehearsal.process.wait(LONG) == -signal.SIGKILL
    # far below every bound of a step: the end of the coordinator itself has to be what ends them
    assert within(lambda: not rehearsal.children(), limit_s=15)
    assert list(rehearsal.out.iterdir()) == []
    # what it could not remove is one directory with the journal up to its last line
    (directory,) = rehearsal.temp.iterdir()
    assert (directory / "journal.jsonl").read_bytes().endswith(b"\n")


def test_a_coordinator_killed_while_a_rank_compiles_leaves_no_compiler(rehearsal):
    rehearsal.reach(PLACES["compiling"])
    compilers = []
    assert within(lambda: compilers.extend(_compiling(rehearsal.children())) or compilers)
    for pid in compilers:
        # one that would end by itself would show nothing
        os.kill(pid, signal.SIGSTOP)
    rehearsal.process.kill()
    assert within(lambda: not rehearsal.children(), limit_s=15)


def _compiling(pids):
    """Those of some processes that compile a kernel."""
    found = []
    for pid in pids:
        with suppress(OSError):
            if b"pp4.kernels.compile" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found
