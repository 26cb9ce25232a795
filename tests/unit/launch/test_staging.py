"""Whatever happens in the middle, the output is not there; what a killed run leaves is swept."""

import errno
import os
import resource
import shutil
import signal
import subprocess
import sys

import pytest

from pp4.errors import Code, RefusedError, WrongError
from pp4.launch import prepare as module
from pp4.launch import staging as building
from pp4.launch.staging import ENDING, PREFIX, staging
from tests.unit.launch.subjects import ENGINE, ROOT, RUNNER

HALTED = """
import os, sys, time
from pathlib import Path
from pp4.launch.prepare import prepare

def halt():
    print("built", flush=True)
    sys.stdin.read()

os.sync = halt
prepare(Path(sys.argv[1]), None, Path(sys.argv[2]))
"""


def halted(subject):
    """A run that has built everything and stops before it is published."""
    argv = [sys.executable, "-c", HALTED, str(subject.manifest), str(subject.out)]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    pipe = subprocess.PIPE
    run = subprocess.Popen(argv, env=env, stdin=pipe, stdout=pipe, text=True)
    assert run.stdout.readline() == "built\n"
    return run


def remains(place):
    return sorted(one.name for one in place.iterdir() if one.name.startswith(PREFIX))


def test_a_killed_run_leaves_a_name_that_says_so_and_the_next_takes_it_away(subject):
    with halted(subject) as run:
        (left,) = remains(subject.place)
        assert left.startswith(f"{PREFIX}out.")
        assert left.endswith(ENDING)
        # another run leaves it alone for as long as its own lives
        other = subject.prepare()
        assert (other.swept, remains(subject.place)) == ((), [left])
        shutil.rmtree(subject.out)
        run.send_signal(signal.SIGKILL)
        run.wait(60)
    assert not subject.out.exists()
    assert remains(subject.place) == [left]
    assert subject.prepare().swept == (left,)
    assert remains(subject.place) == []


def test_who_comes_second_refuses_and_leaves_what_is_there(subject):
    with halted(subject) as run:
        subject.prepare()
        before = (subject.out / RUNNER).stat()
        run.communicate(timeout=60)
    assert run.returncode == 1
    assert (subject.out / RUNNER).stat() == before
    assert remains(subject.place) == []


def test_what_others_have_beside_it_is_left_alone(subject):
    names = (f"{PREFIX}other.0{ENDING}", f"{PREFIX}out.0", f"{PREFIX}out.1{ENDING}")
    for name in names[:2]:
        (subject.place / name).mkdir()
    (subject.place / names[2]).touch()
    (subject.place / f"{PREFIX}out.2{ENDING}").symlink_to(subject.source)
    assert subject.prepare().swept == ()
    assert len(remains(subject.place)) == 4
    assert (subject.source / RUNNER).exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a directory away")
def test_what_another_user_left_is_left_alone(subject):
    left = subject.place / f"{PREFIX}out.3{ENDING}"
    left.mkdir()
    os.chown(left, 65_534, 65_534)
    assert subject.prepare().swept == ()
    assert left.exists()


# -- faults of the disk -------------------------------------------------------------------------


def test_a_file_that_grows_too_large_for_the_disk(subject):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((subject.source / RUNNER).stat().st_size - 1, hard))
    try:
        refusal = subject.refusal()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (refusal.code, refusal.where) == (Code.UNWRITABLE, f"{subject.out}/{RUNNER}")
    assert refusal.found == os.strerror(errno.EFBIG)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a disk")
@pytest.mark.parametrize("option", ["size=16k", "size=1m,ro"])
def test_a_disk_that_is_full_or_read_only(subject, option):
    disk = subject.place / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", option, "tmpfs", str(disk)]
    done = subprocess.run(mount, capture_output=True, text=True, timeout=60)
    if done.returncode:
        pytest.skip(f"no disk may be mounted here: {done.stderr.strip()}")
    try:
        subject.out = disk / "out"
        refusal = subject.refusal()
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True, timeout=60)
    assert refusal.code is Code.UNWRITABLE
    assert refusal.where.startswith(f"{subject.out}")


def failing(number):
    def fail(*_):
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize("name", ["rename", "fsync", "symlink", "mkdir", "scandir", "readlink"])
def test_whatever_the_system_refuses_nothing_is_left(subject, monkeypatch, name):
    (subject.source / "link").symlink_to("start.sh")
    subject.pin()
    monkeypatch.setattr(os, name, failing(errno.EIO))
    with pytest.raises(RefusedError) as raised:
        subject.prepare()
    monkeypatch.undo()
    assert raised.value.refusal.code in (Code.UNWRITABLE, Code.UNREADABLE)
    assert not subject.out.exists()
    assert remains(subject.place) == []


def test_a_stop_after_the_name_was_given_takes_it_back(subject, monkeypatch):
    def stop(*_):
        assert subject.out.exists()
        raise KeyboardInterrupt

    monkeypatch.setattr(building, "_flush", stop)
    with pytest.raises(KeyboardInterrupt):
        subject.prepare()
    assert not subject.out.exists()
    assert remains(subject.place) == []


def test_what_cannot_be_taken_away_is_named(subject, monkeypatch):
    subject.write("more.py", "")  # not the reviewed tree
    monkeypatch.setattr(shutil, "rmtree", failing(errno.EIO))
    with pytest.raises(RefusedError) as raised:
        subject.prepare()
    (left,) = remains(subject.place)
    assert left in raised.value.refusal.left
    assert raised.value.refusal.code is Code.NOT_REVIEWED


def test_a_name_that_somebody_takes_in_between(tmp_path):
    out = tmp_path / "out"

    def publish(make):
        with staging(out) as one:
            make()
            one.publish()

    for make in (out.touch, lambda: (out.mkdir(), (out / "file").touch())):
        with pytest.raises(RefusedError) as raised:
            publish(make)
        assert raised.value.refusal.code is Code.EXISTS
        assert remains(tmp_path) == []
        out.unlink() if out.is_file() else shutil.rmtree(out)


def test_what_somebody_else_put_there_is_not_taken_for_ours(tmp_path):
    out = tmp_path / "out"

    def publish():
        with staging(out) as one:
            one.place.rmdir()
            out.mkdir()
            (out / "theirs").touch()
            one.publish()

    with pytest.raises(RefusedError) as raised:
        publish()
    assert raised.value.refusal.code is Code.UNWRITABLE
    assert (out / "theirs").exists()


def test_a_source_that_changes_while_it_is_staged(subject, monkeypatch):
    def late(tree):
        subject.write(RUNNER, "mtp = None\n")
        return frozenset()

    monkeypatch.setattr(module, "want_switches_off", late)
    assert subject.refusal().code is Code.NOT_REVIEWED
    monkeypatch.undo()


def test_bytes_that_the_disk_gives_back_otherwise(subject, monkeypatch):
    write = module.write

    def spoilt(place, one):
        write(place, one)
        if one.path == ENGINE:
            (place.place / ENGINE).write_text("ABI = 'other'\n")

    monkeypatch.setattr(module, "write", spoilt)
    with pytest.raises(WrongError) as raised:
        subject.prepare()
    assert raised.value.refusal.code is Code.DIGEST_MISMATCH
    assert raised.value.refusal.where == f"{subject.out}/{ENGINE}"
    assert not subject.out.exists()
    assert remains(subject.place) == []
