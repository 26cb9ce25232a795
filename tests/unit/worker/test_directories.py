"""Directories of a worker: made for this user alone, and refused where others may write."""

import os
import signal
import stat
import subprocess
import sys

import pytest

from pp4.config import file_systems
from pp4.errors import Code, RefusedError
from pp4.wire.serving import settings_of
from pp4.worker.directories import AGAIN, of_this_run, prepare, prepare_socket
from tests.unit.processes import LONG


def settings(tmp_path):
    return settings_of(
        {
            "checkpoint": "/c",
            "device": "reference",
            "socket": str(tmp_path / "a" / "s"),
            "state": str(tmp_path / "a"),
            "compiled": str(tmp_path / "b" / "c"),
        }
    )


def refused(serve):
    with pytest.raises(RefusedError) as caught:
        prepare(serve)
    return caught.value.refusal


def test_they_are_made_for_this_user_alone(tmp_path):
    before = os.umask(0)
    try:
        prepare(settings(tmp_path))
    finally:
        os.umask(before)
    for path in (tmp_path / "a", tmp_path / "b" / "c"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    # and again, as they are
    prepare(settings(tmp_path))


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777])
@pytest.mark.parametrize("name", ["a", "b/c"])
def test_one_that_others_may_write_is_refused(tmp_path, name, mode):
    prepare(settings(tmp_path))
    (tmp_path / name).chmod(mode)
    refusal = refused(settings(tmp_path))
    assert refusal.code is Code.EXCLUSION
    assert refusal.next == f"chmod go-w {tmp_path / name}"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a directory away")
def test_somebody_elses_is_refused(tmp_path):
    prepare(settings(tmp_path))
    os.chown(tmp_path / "a", 12345, 12345)
    refusal = refused(settings(tmp_path))
    assert (refusal.code, refusal.found) == (Code.EXCLUSION, "owner 12345")


def test_a_file_in_its_place_is_refused(tmp_path):
    (tmp_path / "a").touch()
    assert refused(settings(tmp_path)).code is Code.UNWRITABLE


def test_a_network_is_refused_before_anything_is_made(tmp_path, monkeypatch):
    monkeypatch.setattr(file_systems, "file_system", lambda _: 0x6969)
    refusal = refused(settings(tmp_path))
    assert (refusal.code, refusal.next) == (Code.BAD_SETTING, AGAIN)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("mode", "mend"), [(0o770, "chmod go-w {}"), (0o1777, "--socket PATH")])
def test_nobody_is_told_to_change_a_directory_that_is_everybodys(tmp_path, mode, mend):
    """As /tmp is: whoever followed that would take it from all others."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a").chmod(mode)
    with pytest.raises(RefusedError) as caught:
        prepare_socket(settings(tmp_path))
    refusal = caught.value.refusal
    assert refusal.code is Code.EXCLUSION
    assert refusal.next.startswith(mend.format(tmp_path / "a"))


KILLED = """
import os, signal, sys
from pathlib import Path
from pp4.worker.directories import of_this_run
with of_this_run(Path(sys.argv[1])) as path:
    (path / "link-1-rank-0").touch()
    if (rank := os.fork()) == 0:
        signal.pause()
    print(path, rank, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_worker_left_is_taken_away_once_its_ranks_are_gone(tmp_path):
    argv = [sys.executable, "-c", KILLED, str(tmp_path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as killed:
        left, rank = killed.stdout.readline().split()
        killed.wait(LONG)
        with of_this_run(tmp_path) as first:
            assert set(map(str, tmp_path.iterdir())) == {left, str(first)}
            os.kill(int(rank), signal.SIGKILL)
            # its end closes what it has inherited
            assert killed.stdout.read() == ""
            with of_this_run(tmp_path) as second:
                assert set(tmp_path.iterdir()) == {first, second}
    assert list(tmp_path.iterdir()) == []


def test_a_state_where_nothing_can_be_made(tmp_path):
    with pytest.raises(RefusedError) as caught, of_this_run(tmp_path / "nowhere"):
        pass
    assert caught.value.refusal.code is Code.UNWRITABLE
