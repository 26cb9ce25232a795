"""A disk that is full or read-only, for real: a small tmpfs under the state directory."""

import os
import subprocess

import pytest

from pp4.clock import SystemClock
from pp4.errors import Code, Pp4Error, RefusedError, UncleanError
from pp4.hold.clearing import clear
from pp4.hold.exclusion import open_exclusion
from tests.faults.windows import DRILLS, GPUS, gone, tokens, tombstone, until, window

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a disk")


@pytest.fixture
def disk(tmp_path):
    """Mounts a disk of some size at the state directory of the host."""
    state = tmp_path / "state"
    state.mkdir(mode=0o700)

    def mount(size, *options):
        told = ",".join([f"size={size}", "mode=0700", *options])
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", told, "tmpfs", str(state)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            pytest.skip(f"no disk may be mounted here: {done.stderr.strip()}")
        return state

    yield mount
    subprocess.run(["umount", "-l", str(state)], capture_output=True, check=False)


@pytest.mark.parametrize("options", [("1m",), ("64m", "ro")])
def test_a_disk_without_room_is_refused_before_anything_is_held(disk, tmp_path, options):
    disk(*options)
    with pytest.raises(RefusedError) as raised, window(tmp_path):
        pass
    assert raised.value.refusal.code is Code.UNWRITABLE
    assert not list((tmp_path / "host" / "holds").glob("*/registration.json"))


def test_work_that_fills_the_disk_is_ended_and_taken_away(disk, tmp_path):
    disk("20m")
    with pytest.raises(Pp4Error), window(tmp_path) as one:
        one.run("drill", DRILLS, {"fill": "work", "start": ["plain", "setsid"], "then": "late"})
    assert one.tombstone == tombstone(tmp_path, one.granted.hold)
    assert one.tombstone["why"] == "failed"
    assert gone(tokens(*one.watching.items[0]["pids"]))
    with window(tmp_path) as again:
        assert again.granted.fence == one.granted.fence + 1


def test_a_disk_that_somebody_else_fills_leaves_no_claim_and_no_process(disk, tmp_path):
    state = disk("20m")
    with pytest.raises(Pp4Error) as raised, window(tmp_path, host_dir=str(state / "shared")) as one:
        one.run("drill", DRILLS, {"fill": str(state), "start": ["setsid"], "then": "late"})
    assert isinstance(raised.value, UncleanError)
    assert raised.value.refusal.next.startswith("pp4 hold recover ")
    known = tokens(*one.watching.items[0]["pids"])
    until(lambda: gone(known))
    assert tombstone(tmp_path, one.granted.hold) is None
    (state / "fill").unlink()
    # not even the guard's word that nothing is left could be written: an operator has to look
    with (
        pytest.raises(RefusedError) as raised,
        window(tmp_path, host_dir=str(state / "shared")),
    ):
        pass
    assert raised.value.refusal.code is Code.QUARANTINED
    exclusion = open_exclusion(state / "shared", state)
    for gpu in GPUS:
        clear(exclusion, gpu, "somebody", "made room, and looked", SystemClock())
    with window(tmp_path, host_dir=str(state / "shared")) as again:
        assert again.granted.fence == one.granted.fence + 1
    assert tombstone(tmp_path, one.granted.hold)["why"] == "abandoned"
