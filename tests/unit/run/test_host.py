"""What of a host is visible, and that nobody else uses the pair while it is asked."""

import json
import sys
from types import SimpleNamespace

import pytest

from pp4.errors import Code, RefusedError
from pp4.run import host, receipt
from pp4.run import machine as asking
from pp4.wire.gpus import GpuReport
from tests.unit.hold.holds import private
from tests.unit.qualify.gpus import UUIDS, gpu, report

THREE = report(gpu(0), gpu(1), gpu(2))


@pytest.mark.parametrize(
    ("names", "indices"),
    [
        (None, [0, 1, 2]),
        (("0", "1", "2"), [0, 1, 2]),
        (("2", "0", "1"), [0, 1, 2]),
        (UUIDS, [0, 1]),
        (UUIDS[::-1], [0, 1]),
        ((UUIDS[1],), [1]),
        # a beginning, as CUDA takes it too
        (("GPU-0a1b2c3d",), [0, 1, 2]),
        (("GPU-ffff",), []),
        ((), []),
    ],
)
def test_what_the_environment_leaves_visible(names, indices):
    found = host.visible(THREE, names)
    assert [one.index for one in found.gpus] == indices
    ways = {(a, b) for a in indices for b in indices if a != b}
    assert {(way.source, way.target) for way in found.p2p} == ways


@pytest.mark.parametrize("names", [("0",), ("1", "2"), ("MIG-1",), (UUIDS[0], "1"), ("-1",)])
def test_a_setting_that_may_mean_other_gpus_is_refused(names):
    """CUDA may count otherwise than the driver does."""
    with pytest.raises(RefusedError) as caught:
        host.visible(THREE, names)
    assert caught.value.refusal.code is Code.BAD_SETTING
    assert caught.value.refusal.where == "CUDA_VISIBLE_DEVICES"


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """A machine of two GPUs that answers; -> settings, and who holds the locks."""
    text = "import json, sys; print(json.dumps({'said': sys.argv[1:]}))"
    monkeypatch.setattr(asking, "PROGRAM", (sys.executable, "-c", text))
    monkeypatch.setattr(host, "look_at_gpus", lambda: report(gpu(0), gpu(1)))
    exclusion = private(tmp_path)
    monkeypatch.setattr(host, "open_exclusion", lambda host_dir, state_dir: exclusion)
    return SimpleNamespace(host_dir=tmp_path / "none", state_dir=tmp_path / "state"), exclusion


def test_a_machine_is_asked_under_the_locks_of_its_pair(asked, monkeypatch):
    settings, exclusion = asked
    seen = []
    real = asking.ask_machine

    def ask(*, gpus):
        with pytest.raises(RefusedError) as caught, exclusion.locked([UUIDS[0]]):
            pass
        seen.append(caught.value.refusal.code)
        assert gpus == UUIDS
        return real(gpus=gpus)

    monkeypatch.setattr(host, "ask_machine", ask)
    # what runs there has the pair by name: the driver tells it of every GPU
    assert host.facts_of_this_machine(settings) == {"said": list(UUIDS)}
    assert seen == [Code.HELD_BY]
    # and they are let go
    with exclusion.locked(UUIDS):
        pass


def test_a_run_is_told_first_what_is_not_installed(monkeypatch, capsys):
    """Before anything is held, by the command that wants the run."""
    monkeypatch.setattr(receipt, "find_spec", lambda name: None if name == "torch" else object())
    monkeypatch.setattr(host, "look_at_gpus", lambda: pytest.fail("looked"))
    assert host.main(["pp4 solo-qualify"]) == 0
    refusal = json.loads(capsys.readouterr().out)["refusal"]
    assert (refusal["code"], refusal["where"]) == (Code.MISSING_PACKAGE, "pp4 solo-qualify")
    monkeypatch.setattr(receipt, "find_spec", lambda name: object())
    monkeypatch.setattr(host, "look_at_gpus", lambda: report(gpu(0)))
    assert host.main(["pp4 solo-qualify"]) == 0
    assert GpuReport.model_validate_json(capsys.readouterr().out) == report(gpu(0))


@pytest.mark.parametrize("held", UUIDS)
def test_gpus_in_use_are_not_asked(asked, monkeypatch, held):
    settings, exclusion = asked
    monkeypatch.setattr(host, "ask_machine", lambda **_: pytest.fail("asked"))
    with exclusion.locked([held]), pytest.raises(RefusedError) as caught:
        host.facts_of_this_machine(settings)
    assert caught.value.refusal.code is Code.HELD_BY


def test_where_no_pair_is_visible_no_gpu_is_used(asked, monkeypatch):
    """There may be one that a setting hides, and nobody has its locks."""
    settings, _ = asked
    monkeypatch.setattr(host, "look_at_gpus", lambda: report(gpu(0)))
    monkeypatch.setattr(host, "ask_machine", lambda **_: pytest.fail("asked"))
    with pytest.raises(RefusedError) as caught:
        host.facts_of_this_machine(settings)
    assert caught.value.refusal.code is Code.NO_GPU_PAIR
    assert caught.value.refusal.found.startswith("1 GPUs")
