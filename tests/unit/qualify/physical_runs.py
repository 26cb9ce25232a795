"""Whole runs on GPUs that a test makes up: arms are small functions, all else is the product's own.

The HOLD is a real one below a temporary directory, the receipt is built and stored for good.  Only
is it this very process that holds and runs the step, in the place of a supervisor and a process of
its own, which would not see what a test makes up.
"""

import json
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace

from pp4.config import Settings
from pp4.config.hold_file import local_hold_file
from pp4.errors import Code
from pp4.hold.local import open_local
from pp4.hold.supervisor import _admission, _granted
from pp4.qualify import far, held, physical, whole_worker
from pp4.qualify.arms import Finding
from pp4.qualify.context import Context
from pp4.qualify.gates import FULL, PHYSICAL, SOLO
from pp4.qualify.progress import Silent
from pp4.qualify.wanted import Wanted
from pp4.receipts.plan_checks import floors_of
from pp4.run import host
from pp4.transport.local import LocalTransport
from pp4.wire.facts import Library, Primed, read
from tests.unit.hold.holds import private
from tests.unit.qualify.gpus import gpu, report
from tests.unit.qualify.whole_runs import SOLO_KERNELS, frozen, whole_run

PAIR_FLOORS, FULL_FLOORS, SOLO_FLOORS = (
    floors_of(kind, scope)
    for kind, scope in (("qualification", "kernels"), ("qualification", "full"), ("solo", "solo"))
)
WORKER_FACTS = {
    "checkpoint_sha256": whole_run().checkpoint_sha256,
    "input_set_sha256": frozen().input_set_sha256,
}
QUIET = 4 << 20
LIBRARIES = ("libcuda.so.570.86.15", "libcudart.so.12", "libtorch_cuda.so")


def two_gpus():
    """Two GPUs on which nothing runs."""
    return [gpu(index, memory_used_bytes=QUIET, vbios="96.00") for index in (0, 1)]


def _primed(rank, mark):
    digests = {"ptx_sha256": mark * 64, "cubin_sha256": "e" * 64}
    return Primed(rank=rank, key=mark, target="sm_90", faults=(), primed_ns=1, **digests)


def introduce(context):
    """What the first arms record of the ranks."""
    record = context.record
    record.definition = "d" * 64
    record.versions = {"python": "3"}
    record.libraries = tuple(Library(name=name, sha256="c" * 64) for name in LIBRARIES)
    record.primed = tuple(_primed(rank, "d") for rank in (0, 1))
    record.solo = tuple(_primed(rank, "f") for rank in (0, 1))
    if not context.settings.solo:
        record.whole = whole_run()
        record.worker = whole_worker.identity_of(context, record.whole, SOLO_KERNELS)
    record.baseline = context.gpus()
    return Finding(None)


def _as_expected(arm, floors):
    step = arm.step
    code = None
    if step.expected != "pass":
        code = Code(step.expected.removeprefix("caught(").removesuffix(")"))
    facts = WORKER_FACTS if step.name == "gate-6/worker-equals-archive" else {}
    return lambda context: Finding(code, facts, floors.get(step.name, 1))


def table(gates, floors, changed):
    """The gates of a plan whose arms come out as they should, some of them replaced."""
    first = True
    made = []
    for gate in gates:
        arms = []
        for arm in gate.arms:
            small = introduce if first else _as_expected(arm, floors)
            first = False
            arms.append(replace(arm, run=changed.pop(arm.step.name, small)))
        made.append(replace(gate, arms=tuple(arms)))
    assert not changed, "arms that the plan does not have"
    return tuple(made)


@dataclass
class Lab:
    """Two GPUs and a directory; runs start here.

    Attributes:
        root: everything that a run may write.
        report: what the driver says before the run.
        now: what it says of the HOLD's GPUs while the run goes on; an error where it is one.
        worker: what becomes of a worker; an error where it is one, a good run where None.
        wholes: with what numbers workers were run.
    """

    root: Path
    monkeypatch: object
    report: object
    now: object = None
    worker: object = None
    wholes: list = field(default_factory=list)

    @property
    def out(self):
        """Directory of receipts."""
        return self.root / "out"

    @property
    def machine(self):
        """Settings of this user, on a host without a directory for all."""
        return Settings(
            debug=False, color=False, state_dir=self.root / "state", host_dir=self.root / "none"
        )

    def files(self):
        """Names in the directory of receipts."""
        return sorted(path.name for path in self.out.iterdir()) if self.out.is_dir() else []

    def tombstones(self):
        """What became of every HOLD."""
        found = (self.root / "state" / "holds").glob("*/closed.json")
        return [json.loads(path.read_text()) for path in found]

    def pair(self, changed=None, floors=None, progress=None, **more):
        """Qualify the pair."""
        gates = table(PHYSICAL, PAIR_FLOORS if floors is None else floors, changed or {})
        return self._run(physical.PAIR, gates, Wanted("pair", **more), progress or Silent())

    def full(self, changed=None, **more):
        """Qualify the pair with its worker."""
        gates = table(FULL, FULL_FLOORS, changed or {})
        return self._run(physical.FULL, gates, Wanted("full", **more), Silent())

    def solo(self, changed=None, gpu=None, **more):
        """Qualify one GPU, and record its worker."""
        gates = table(SOLO, SOLO_FLOORS, changed or {})
        return self._run(physical.SOLO, gates, Wanted("solo", gpu=gpu, **more), Silent())

    def _worker(self, context, whole, *, solo):
        """What the worker of one GPU does, after the gates."""
        assert solo
        self.wholes.append(whole)
        if isinstance(self.worker, Exception):
            raise self.worker
        devices = context.settings.devices * 2
        return self.worker or whole_run("solo", frozen=frozen(devices=devices, batches=(8,)))

    def _run(self, kind, gates, wanted, progress):
        kinds = {**physical.KINDS, wanted.work: replace(kind, gates=gates)}
        self.monkeypatch.setattr(physical, "KINDS", kinds)
        file, state_dir = local_hold_file(self.machine), self.machine.state_dir
        return held.qualify_on_host(file, wanted, self.out, progress, state_dir=state_dir)


def _through_json(tree):
    """What the other side reads."""
    return json.loads(json.dumps(tree))


class _Window:
    """A HOLD of this process, with the step in it."""

    def __init__(self, hold, asked, watcher):
        self.granted = _granted(hold, asked, Path(asked.state_dir))
        self.tombstone = None
        self._step = SimpleNamespace(hold=hold, tell=lambda item: watcher.told(_through_json(item)))

    def quieten(self):
        """Nothing: no test here has commands of the host."""

    def run(self, label, module, arguments):
        assert (label, module) == ("gates", far.MODULE)
        gates = read(far.Gates, _through_json(arguments))
        return _through_json(far.run(self.granted, gates, self._step))


@contextmanager
def _open_here(place, program, asked, clock, watcher, option):
    """As :func:`pp4.hold.window.open_window`, without anybody else."""
    window, state_dir = None, Path(asked.state_dir)
    try:
        with open_local(
            _admission(asked),
            LocalTransport(asked.transport),
            clock,
            gpus=asked.gpus,
            # one of this user's own, whoever runs the tests: for all of a host it would be root's
            exclusion=private(state_dir.parent),
            state_dir=state_dir,
            bound_s=asked.bound_s,
            asked_by=asked.coordinator,
        ) as hold:
            window = _Window(hold, asked, watcher)
            yield window
    finally:
        path = window and hold.public / "closed.json"
        if path and path.exists():
            window.tombstone = json.loads(path.read_text())


def lab(root, monkeypatch):
    """A place for runs, with two good GPUs in it."""
    gpus = two_gpus()
    made = Lab(root, monkeypatch, report(*gpus))

    def seen(context):
        if isinstance(made.now, Exception):
            raise made.now
        by_uuid = {one.uuid: one for one in made.now or gpus}
        return tuple(by_uuid[uuid] for uuid in context.hold.gpus)

    for module in (far, host):
        monkeypatch.setattr(module, "look_at_gpus", lambda: made.report)
    monkeypatch.setattr(held, "_gpus_there", lambda place, command: host.look_for_run(command))
    monkeypatch.setattr(held, "open_window", _open_here)
    monkeypatch.setattr(
        far, "InnerHold", lambda admitted, clock, granted, step: nullcontext(step.hold)
    )
    monkeypatch.setattr(Context, "gpus", seen)
    monkeypatch.setattr(whole_worker, "run", made._worker)
    return made
