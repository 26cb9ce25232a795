"""One rehearsal for all tests that look at one, whichever worker comes first."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pytest
from filelock import FileLock

from pp4.errors import Code
from pp4.qualify import rehearsal
from pp4.qualify.arms import Finding
from pp4.qualify.gates import REHEARSED
from pp4.qualify.progress import Silent
from pp4.qualify.settings import REHEARSAL
from pp4.wire.facts import Library, Primed
from tests.unit.qualify.fakes import catching, finds, passing

ROOT = Path(__file__).parents[2]
LIMIT_S = 540.0
LEAK = Code.LEAK


@dataclass
class Run:
    """What a rehearsal left behind.

    Attributes:
        exit: exit code.
        source: directory of the copy of pp4 that ran.
        out: directory of the receipt.
        stdout: standard output.
        stderr: standard error.
        files: names in ``out``.
        temporary: names in the directory for temporary files.
        processes: processes of the run that were there after its end.
        seen: most processes at one moment.
        peak_kib: largest sum, at one moment, of the peak memory of every process then alive.
    """

    exit: int
    source: str
    out: str
    stdout: str
    stderr: str
    files: list[str]
    temporary: list[str]
    processes: list[int]
    seen: int
    peak_kib: int

    @property
    def receipt_path(self):
        """The one receipt."""
        (name,) = self.files
        return Path(self.out) / name

    @property
    def receipt(self):
        """Its content."""
        return json.loads(self.receipt_path.read_text())


def _processes(mark):
    """Peak memory in KiB by pid of every process whose environment holds a path."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if os.fsencode(mark) not in (entry / "environ").read_bytes():
                continue
            status = (entry / "status").read_text(errors="replace")
        except OSError:
            continue
        words = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        if words["State"].split()[0] not in "ZX":
            found[int(entry.name)] = int(words.get("VmHWM", "0 kB").split()[0])
    return found


class _Watch(threading.Thread):
    """Samples the memory of a run until it is told to stop."""

    def __init__(self, mark):
        super().__init__(daemon=True)
        self.mark, self.done = mark, threading.Event()
        self.peak_kib = self.seen = 0

    def run(self):
        while not self.done.wait(0.2):
            alive = _processes(self.mark)
            self.peak_kib = max(self.peak_kib, sum(alive.values()))
            self.seen = max(self.seen, len(alive))


def _rehearse(home):
    temporary, out, source = home / "temporary", home / "out", home / "source"
    temporary.mkdir()
    # a copy, since a run takes a while and refuses where its own source is edited meanwhile
    shutil.copytree(ROOT / "pp4", source / "pp4", ignore=shutil.ignore_patterns("__pycache__"))
    watch = _Watch(temporary)
    watch.start()
    argv = [sys.executable, "-m", "pp4", "pair-qualify", "--dry-run", "--json", "--out", str(out)]
    done = subprocess.run(
        argv,
        cwd=source,
        # whatever runs inside inherits this directory: that is how it is found again
        env={**os.environ, "TMPDIR": str(temporary)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    left = sorted(_processes(temporary))
    watch.done.set()
    watch.join()
    return Run(
        exit=done.returncode,
        source=str(source),
        out=str(out),
        stdout=done.stdout,
        stderr=done.stderr,
        files=sorted(path.name for path in out.iterdir()) if out.is_dir() else [],
        temporary=sorted(path.name for path in temporary.iterdir()),
        processes=left,
        seen=watch.seen,
        peak_kib=watch.peak_kib,
    )


@pytest.fixture(scope="session")
def rehearsed(tmp_path_factory, request):
    """The one rehearsal; workers of a parallel run share it through a file."""
    base = tmp_path_factory.getbasetemp()
    shared = (base if not hasattr(request.config, "workerinput") else base.parent) / "rehearsal"
    shared.mkdir(exist_ok=True)
    result = shared / "run.json"
    with FileLock(shared / "lock"):
        if not result.exists():
            home = shared / f"home-{time.monotonic_ns()}"
            home.mkdir()
            result.write_text(json.dumps(asdict(_rehearse(home))))
    return Run(**json.loads(result.read_text()))


# -- the same with arms that are small functions


def one_primed(rank):
    """One specialisation of a rank as if it had been compiled."""
    digests = {"ptx_sha256": "d" * 64, "cubin_sha256": "e" * 64}
    return Primed(rank=rank, key="k", target="sm_90", faults=(), primed_ns=1, **digests)


def introduce(context):
    """What a first arm records of the ranks, so that there is something to write down."""
    context.record.definition = "d" * 64
    context.record.versions = {"python": "3"}
    context.record.libraries = (Library(name="libc.so.6", sha256="c" * 64),)
    context.record.solo = tuple(one_primed(rank) for rank in (0, 1))
    return Finding(None)


def _as_expected(arm):
    """What an arm of the plan runs here: nothing, with the outcome that it has to have."""
    if arm.step.expected == "pass":
        return finds()
    return finds(Code(arm.step.expected.removeprefix("caught(").removesuffix(")")))


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """The directory for temporary files."""
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    return directory


@pytest.fixture
def rehearse(tmp_path, temporary, monkeypatch):
    """Rehearse with one pass arm and one control in each gate, some of them replaced.

    The arms of the plan, without which there is no receipt, come out as they should.
    """

    def run(*changed, out=None, settings=REHEARSAL, gates=None, progress=None):
        arms = {}
        for gate in gates or REHEARSED:
            number = gate.number
            first = introduce if number == 0 else finds()
            arms[number] = {
                "good": passing("good", first, gate=number),
                "control": catching("control", LEAK, finds(LEAK), gate=number),
                **{arm.step.arm: replace(arm, run=_as_expected(arm)) for arm in gate.arms},
            }
        for arm in changed:
            arms[arm.step.gate][arm.step.arm] = arm
        table = tuple(
            replace(gate, arms=tuple(arms[gate.number].values())) for gate in gates or REHEARSED
        )
        monkeypatch.setattr(rehearsal, "REHEARSED", table)
        return rehearsal.rehearse(out or tmp_path / "out", progress or Silent(), settings=settings)

    return run
