"""What this machine would run, by the way that a qualification goes."""

import json
from functools import partial

import pytest

from pp4.errors import Code, Pp4Error, Refusal, RefusedError
from pp4.wire.facts import PRODUCTION, Shape, read
from pp4.wire.machine import Machine
from pp4.worker import machine as module
from pp4.worker.compiling import Homes
from pp4.worker.device import Seats
from pp4.worker.gpus import read_gpus
from pp4.worker.libraries import fingerprints
from pp4.worker.owner import Owner
from pp4.worker.release import Release
from tests.unit.processes import running
from tests.unit.worker.nvml_double import Nvml, gpu, uuid
from tests.unit.worker.owners import COMPILED, ROOT, SHAPE

REPORT = read_gpus(Nvml(gpu(0), gpu(1)))
SEATS = Seats()


@pytest.fixture
def small(monkeypatch):
    """A shape that the interpreter takes a moment for; -> what an owner was asked to prime."""
    asked, real = [], Owner._prime
    # of the compiler, which runs in a process of its own
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(module, "PRODUCTION", Shape(**SHAPE))
    monkeypatch.setattr(
        Owner, "_prime", lambda self, given: asked.append(given) or real(self, given)
    )
    return asked


@pytest.fixture
def started(monkeypatch):
    """Ranks that an owner of this process started."""
    pids, real = [], Owner._start

    def start(self, given):
        found = real(self, given)
        pids.extend(end.pid for end in self.pair.ends)
        return found

    monkeypatch.setattr(Owner, "_start", start)
    return pids


def test_a_machine_says_its_gpus_libraries_and_four_kernels(tmp_path, small, started):
    found = module.look(REPORT, SEATS, Homes(tmp_path, COMPILED))
    assert [one.uuid for one in found.gpus] == [uuid(0), uuid(1)]
    assert {(one.driver, one.name) for one in found.gpus} == {("580.159.04", "NVIDIA H200")}
    names = [(one.name, one.rank) for one in found.kernels]
    assert names == [
        ("sampled_fused.pair", 0),
        ("sampled_fused.pair", 1),
        ("sampled_fused.solo", 0),
        ("sampled_fused.solo", 1),
    ]
    assert {one.target for one in found.kernels} == {"sm_90"}
    # both ranks have the same, and the pair's is not solo's
    assert len({(one.ptx_sha256, one.cubin_sha256) for one in found.kernels}) == 2
    assert found.kernels[0].cubin_sha256 == found.kernels[1].cubin_sha256
    assert {one.name for one in found.libraries} == {one.name for one in fingerprints()}
    assert found.boot_id
    # it is what crosses to whoever asked
    assert read(Machine, json.loads(found.model_dump_json())) == found
    # and nobody is left
    assert len(started) == 2
    assert not any(running(pid) for pid in started)
    assert list(tmp_path.glob("link-*")) == []
    # a record is believed as in a qualification, and nothing is primed beside the product
    assert [(one.recorded, one.controls) for one in small] == [(True, ())]


def test_what_is_told_is_of_the_shape_that_is_qualified_first():
    assert (PRODUCTION.vocab, PRODUCTION.split) == (129280, 64640)
    assert module.PRODUCTION is PRODUCTION


@pytest.mark.parametrize("verb", ["_start", "_prime", "_link", "_block"])
def test_a_step_that_is_refused_is_the_answer_and_leaves_nobody(
    tmp_path, small, started, monkeypatch, verb
):
    def refuse(self, given):
        raise RefusedError(Refusal(Code.UNPRIMED, verb, "a step", "none"))

    monkeypatch.setattr(Owner, verb, refuse)
    with pytest.raises(Pp4Error) as caught:
        module.look(REPORT, SEATS, Homes(tmp_path, COMPILED))
    assert (caught.value.refusal.code, caught.value.refusal.where) == (Code.UNPRIMED, verb)
    assert len(started) == (0 if verb == "_start" else 2)
    assert not any(running(pid) for pid in started)


def test_a_block_that_was_kept_is_no_answer(tmp_path, small, started, monkeypatch):
    """What did not run is nothing that this machine would run."""
    never = partial(Owner, rule=lambda blocks, stamps: Release(False, Code.RANKS_DIFFER))
    monkeypatch.setattr(module, "Owner", never)
    with pytest.raises(Pp4Error, match="RANKS_DIFFER"):
        module.look(REPORT, SEATS, Homes(tmp_path, COMPILED))
    assert not any(running(pid) for pid in started)


# -- the program ----------------------------------------------------------------------------


def said(capsys, monkeypatch, report, *arguments):
    monkeypatch.setattr(module, "read_gpus", report)
    code = module.main(arguments)
    return code, json.loads(capsys.readouterr().out)


def test_without_two_gpus_there_is_a_refusal(capsys, monkeypatch):
    one = read_gpus(Nvml(gpu(0)))
    code, found = said(capsys, monkeypatch, lambda: one)
    assert code == 3
    assert found["refusal"]["code"] == "NO_GPU_PAIR"
    assert found["refusal"]["found"].startswith("1 GPUs")


@pytest.mark.parametrize(("arguments", "seats"), [((), (0, 1)), ((uuid(2), uuid(1)), (2, 1))])
def test_it_runs_on_the_pair_that_was_named(capsys, monkeypatch, tmp_path, arguments, seats):
    three = read_gpus(Nvml(gpu(0), gpu(1), gpu(2)))
    asked = []

    def look(report, seats, homes):
        asked.append(seats.gpus)
        raise RefusedError(Refusal(Code.OCCUPANCY, "here", "room", "none"))

    monkeypatch.setattr(module, "look", look)
    monkeypatch.setenv("PP4_STATE_DIR", str(tmp_path))
    code, found = said(capsys, monkeypatch, lambda: three, *arguments)
    assert (code, found["refusal"]["code"]) == (3, "OCCUPANCY")
    assert asked == [tuple(uuid(index) for index in seats)]


def test_without_a_driver_there_is_a_refusal(capsys, monkeypatch):
    def gone():
        raise RefusedError(Refusal(Code.NO_GPU_PAIR, "driver", "NVML", "no driver"))

    code, found = said(capsys, monkeypatch, gone)
    assert (code, found["refusal"]["where"]) == (3, "driver")


def test_a_pair_is_looked_at_on_its_seats_with_the_cache_of_this_user(
    capsys, monkeypatch, tmp_path
):
    looked = []

    def look(report, seats, homes):
        looked.append((seats, homes.compiled, homes.pair.is_dir()))
        raise RefusedError(Refusal(Code.UNREADABLE, "rank", "a library", "gone"))

    monkeypatch.setattr(module, "look", look)
    code, found = said(capsys, monkeypatch, lambda: REPORT)
    assert (code, found["refusal"]["code"]) == (3, "UNREADABLE")
    compiled = tmp_path / "pp4-state" / "compiled"
    assert looked == [(Seats((uuid(0), uuid(1))), compiled, True)]
