"""Create-only, atomic, durable; whatever fails, the directory is as it was."""

import errno
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from pp4.errors import Code, RefusedError
from pp4.receipts import store
from pp4.receipts.store import write_new
from tests.unit.receipts import samples

RAW = samples.sample("solo")


def refusal_of(path, data=RAW):
    with pytest.raises(RefusedError) as caught:
        write_new(path, data)
    return caught.value.refusal


def test_a_receipt_is_written_whole_and_alone(tmp_path):
    write_new(tmp_path / "r.json", RAW)
    assert (tmp_path / "r.json").read_bytes() == RAW
    assert os.listdir(tmp_path) == ["r.json"]
    assert (tmp_path / "r.json").stat().st_nlink == 1


@pytest.mark.parametrize("make", ["file", "directory", "dangling link", "pipe"])
def test_whatever_has_the_name_stays(tmp_path, make):
    path = tmp_path / "r.json"
    {
        "file": lambda: path.write_bytes(b"old"),
        "directory": path.mkdir,
        "dangling link": lambda: path.symlink_to("nowhere"),
        "pipe": lambda: os.mkfifo(path),
    }[make]()
    before = path.lstat()
    assert refusal_of(path).code is Code.EXISTS
    assert path.lstat().st_ino == before.st_ino
    assert os.listdir(tmp_path) == ["r.json"]
    if make == "file":
        assert path.read_bytes() == b"old"


def test_a_missing_directory_is_not_made(tmp_path):
    refusal = refusal_of(tmp_path / "none" / "r.json")
    assert (refusal.code, refusal.found) == (Code.UNWRITABLE, "No such file or directory")
    assert os.listdir(tmp_path) == []


def test_a_file_in_place_of_the_directory(tmp_path):
    (tmp_path / "d").write_bytes(b"")
    refusal = refusal_of(tmp_path / "d" / "r.json")
    assert (refusal.code, refusal.found) == (Code.UNWRITABLE, "Not a directory")


@pytest.mark.parametrize("name", ["a\0b", "x" * 300])
def test_a_name_that_no_file_can_have(tmp_path, name):
    assert refusal_of(tmp_path / name).code is Code.UNWRITABLE
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc")
def test_a_file_system_that_takes_no_files(tmp_path):
    assert refusal_of(Path("/proc/self/r.json")).code is Code.UNWRITABLE


def exit_code_as_nobody(step):
    """Run a step in a child that is not root, for whom modes mean something."""
    child = os.fork()
    if child == 0:
        code = 9
        try:
            if os.geteuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            code = step()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_read_only_directory():
    # Not below tmp_path, whose parents nobody else may enter.
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        directory.chmod(0o555)

        def step():
            try:
                write_new(directory / "r.json", RAW)
            except RefusedError as error:
                told = (error.refusal.code, error.refusal.found)
                return 0 if told == (Code.UNWRITABLE, "Permission denied") else 7
            return 8

        assert exit_code_as_nobody(step) == 0
        assert os.listdir(directory) == []


@pytest.mark.parametrize("target", ["file", "directory"])
def test_a_flush_that_fails_takes_the_receipt_back(tmp_path, monkeypatch, target):
    real = os.fsync
    calls = []

    def failing(descriptor):
        calls.append(descriptor)
        if len(calls) == (1 if target == "file" else 2):
            raise OSError(errno.EIO, "planted")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", failing)
    refusal = refusal_of(tmp_path / "r.json")
    assert (refusal.code, refusal.found) == (Code.UNWRITABLE, "planted")
    assert os.listdir(tmp_path) == []


def test_both_the_file_and_its_directory_are_flushed_in_that_order(tmp_path, monkeypatch):
    flushed = []
    real = os.fsync

    def watching(descriptor):
        flushed.append(os.path.isdir(f"/proc/self/fd/{descriptor}"))
        assert (tmp_path / "r.json").exists() == flushed[-1]
        real(descriptor)

    monkeypatch.setattr(os, "fsync", watching)
    write_new(tmp_path / "r.json", RAW)
    assert flushed == [False, True]


def test_a_receipt_that_cannot_be_taken_back_is_named(tmp_path, monkeypatch):
    path = tmp_path / "r.json"

    def failing(directory):
        # From here on the name belongs to a directory, which unlink refuses even for root.
        path.rename(tmp_path / "moved")
        path.mkdir()
        raise OSError(errno.EIO, "planted")

    monkeypatch.setattr(store, "_flush_directory", failing)
    refusal = refusal_of(path)
    assert refusal.code is Code.UNWRITABLE
    assert refusal.left == f"{path}, perhaps not durable"


def test_a_link_that_fails_leaves_nothing(tmp_path, monkeypatch):
    def failing(source, target):
        raise OSError(errno.EPERM, "no hard links here")

    monkeypatch.setattr(os, "link", failing)
    refusal = refusal_of(tmp_path / "r.json")
    assert (refusal.code, refusal.found) == (Code.UNWRITABLE, "no hard links here")
    assert os.listdir(tmp_path) == []


WRITER = """
import resource, signal, sys
from pathlib import Path
from pp4.errors import RefusedError
from pp4.receipts.store import write_new
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
try:
    write_new(Path(sys.argv[1]), b"x" * 5000)
except RefusedError as error:
    sys.exit(0 if error.refusal.code == "UNWRITABLE" else 7)
sys.exit(8)
"""


def test_a_file_size_limit_in_the_midst_of_writing(tmp_path):
    argv = [sys.executable, "-c", WRITER, str(tmp_path / "r.json")]
    path = os.pathsep.join(entry for entry in sys.path if entry)
    done = subprocess.run(
        argv, env={**os.environ, "PYTHONPATH": path}, capture_output=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert os.listdir(tmp_path) == []


def test_of_many_writers_one_wins_and_its_bytes_are_whole(tmp_path):
    path = tmp_path / "r.json"
    start = threading.Barrier(8)
    outcomes, refusals = [], []

    def write(number):
        data = bytes([65 + number]) * 100_000
        start.wait(timeout=60)
        try:
            write_new(path, data)
            outcomes.append(data)
        except RefusedError as error:
            refusals.append(error.refusal.code)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert len(outcomes) == 1
    assert refusals == [Code.EXISTS] * 7
    assert path.read_bytes() == outcomes[0]
    assert os.listdir(tmp_path) == ["r.json"]


def test_an_interrupt_while_writing_leaves_nothing(tmp_path, monkeypatch):
    def interrupted(descriptor):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_new(tmp_path / "r.json", RAW)
    assert os.listdir(tmp_path) == []
