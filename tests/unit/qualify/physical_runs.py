"""Whole runs on GPUs that a test makes up: arms are small functions, all else is the product's own.

The HOLD is a real one below a temporary directory, the receipt is built and stored for good.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path

from pp4.config import Settings
from pp4.errors import Code
from pp4.qualify import physical
from pp4.qualify.arms import Finding
from pp4.qualify.context import Context
from pp4.qualify.gates import PHYSICAL, SOLO
from pp4.qualify.progress import Silent
from pp4.receipts.plan_checks import FLOORS
from pp4.wire.facts import Library, Primed
from tests.unit.hold.holds import private
from tests.unit.qualify.gpus import gpu, report

PAIR_FLOORS, SOLO_FLOORS = FLOORS["qualification"], FLOORS["solo"]
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
    return Finding(None)


def _as_expected(arm, floors):
    step = arm.step
    code = None
    if step.expected != "pass":
        code = Code(step.expected.removeprefix("caught(").removesuffix(")"))
    return lambda context: Finding(code, {}, floors.get(step.name, 1))


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
    """

    root: Path
    monkeypatch: object
    report: object
    now: object = None

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
        self.monkeypatch.setattr(physical, "PAIR", replace(physical.PAIR, gates=gates))
        return physical.qualify_pair(self.out, progress or Silent(), self.machine, **more)

    def solo(self, changed=None, gpu=None):
        """Qualify one GPU."""
        gates = table(SOLO, SOLO_FLOORS, changed or {})
        self.monkeypatch.setattr(physical, "SOLO", replace(physical.SOLO, gates=gates))
        return physical.qualify_solo(self.out, Silent(), self.machine, gpu)


def lab(root, monkeypatch):
    """A place for runs, with two good GPUs in it."""
    gpus = two_gpus()
    made = Lab(root, monkeypatch, report(*gpus))

    def seen(context):
        if isinstance(made.now, Exception):
            raise made.now
        by_uuid = {one.uuid: one for one in made.now or gpus}
        return tuple(by_uuid[uuid] for uuid in context.hold.gpus)

    monkeypatch.setattr(physical, "look_at_gpus", lambda: made.report)
    monkeypatch.setattr(Context, "gpus", seen)

    def exclusion(host_dir, state_dir):
        assert (host_dir, state_dir) == (made.machine.host_dir, made.machine.state_dir)
        return private(root)

    # one of this user's own, whoever runs the tests: for all of a host it would be root's
    monkeypatch.setattr(physical, "open_exclusion", exclusion)
    return made
