"""Which shared objects a process maps, but for what a compiler has built for it."""

import mmap
import os
import subprocess
import sys

import pytest

from pp4.run.mapped import shared_objects

HOLDING = """\
import mmap, sys
with open(sys.argv[1], "r+b") as file:
    kept = mmap.mmap(file.fileno(), 0)
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def outside(tmp_path):
    """A directory of which nothing is mapped."""
    path = tmp_path / "compiled"
    path.mkdir()
    return path


def test_shared_objects_are_those_of_the_process(outside):
    own = shared_objects(os.getpid(), outside)
    assert own
    assert own == shared_objects(os.getpid(), outside)
    child = os.fork()
    if child == 0:
        import time

        time.sleep(60)
        os._exit(0)
    try:
        assert shared_objects(child, outside) == own
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
    assert shared_objects(child, outside) == ""


def test_another_program_maps_other_objects(tmp_path, outside):
    (tmp_path / "file").write_bytes(b"\0" * mmap.PAGESIZE)
    with mapping(tmp_path / "file") as process:
        process.stdout.readline()
        theirs = shared_objects(process.pid, outside)
        process.kill()
    assert theirs not in ("", shared_objects(os.getpid(), outside))


def mapping(path):
    """A process that maps a file, and says so."""
    return subprocess.Popen(
        [sys.executable, "-c", HOLDING, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


def test_what_a_compiler_built_for_each_rank_is_left_out(outside):
    """Ranks compile launchers of their own; those differ, and the libraries must not."""
    found = []
    for rank, place in ((0, outside / "rank-0"), (1, outside / "rank-1")):
        place.mkdir()
        (place / "launcher.so").write_bytes(bytes([rank]) * mmap.PAGESIZE)
        with mapping(place / "launcher.so") as process:
            process.stdout.readline()
            within = shared_objects(process.pid, outside)
            found.append((within, shared_objects(process.pid, outside / "elsewhere")))
            process.kill()
    assert found[0][0] == found[1][0] != ""
    # in any other place it is one library more, and another one
    assert len({found[0][0], found[0][1], found[1][1]}) == 3


def test_a_directory_that_only_begins_alike_is_not_left_out(tmp_path, outside):
    beside = tmp_path / "compiled-elsewhere"
    beside.mkdir()
    (beside / "odd.so").write_bytes(b"x" * mmap.PAGESIZE)
    with mapping(beside / "odd.so") as process:
        process.stdout.readline()
        seen = shared_objects(process.pid, outside)
        assert seen != shared_objects(process.pid, beside)
        process.kill()
