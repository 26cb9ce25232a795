"""What the coordinator sees by itself: of real processes and files, owners that ended included."""

import mmap
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from pp4.hold.processes import Owned, start_token
from pp4.qualify.gates import looking

HOLDING = """\
import mmap, sys
with open(sys.argv[1], "r+b") as file:
    kept = mmap.mmap(file.fileno(), 0)
print("ready", flush=True)
sys.stdin.read()
"""


def books(directory, *processes):
    """A HOLD with this directory and these processes in its books."""
    owned = [Owned(pid, start_token(pid) or "gone", label) for pid, label in processes]
    return SimpleNamespace(
        directory=directory, running=lambda: tuple(one for one in owned if one.alive())
    )


@pytest.fixture
def workspace(tmp_path):
    """A workspace of an owner that is not the current one."""
    path = tmp_path / "careless-owner-2" / "link-1-rank-0"
    path.parent.mkdir()
    path.write_bytes(b"\0" * mmap.PAGESIZE)
    return path


@pytest.fixture
def holder(workspace):
    """A process that maps it."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDING, str(workspace)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        process.stdout.readline()
        yield process
        process.kill()


def test_workspaces_of_every_owner_are_seen(tmp_path, workspace):
    assert looking.workspaces_on_disk(books(tmp_path)) == ("careless-owner-2/link-1-rank-0",)
    workspace.unlink()
    assert looking.workspaces_on_disk(books(tmp_path)) == ()


def test_a_workspace_is_seen_where_it_is_mapped_with_or_without_a_name(tmp_path, workspace, holder):
    hold = books(tmp_path, (os.getpid(), "owner-1"), (holder.pid, "owner-1-pair-1-rank-0"))
    assert looking.workspaces_mapped(hold) == ("owner-1-pair-1-rank-0",)
    workspace.unlink()
    assert looking.workspaces_mapped(hold) == ("owner-1-pair-1-rank-0",)
    holder.kill()
    holder.wait()
    assert looking.workspaces_mapped(hold) == ()


def test_a_workspace_of_another_hold_is_not_ours(tmp_path, holder):
    (tmp_path / "other").mkdir()
    hold = books(tmp_path / "other", (holder.pid, "owner-1-pair-1-rank-0"))
    assert looking.workspaces_mapped(hold) == ()


def test_shared_objects_are_those_of_the_process():
    own = looking.shared_objects(os.getpid())
    assert own
    assert own == looking.shared_objects(os.getpid())
    child = os.fork()
    if child == 0:
        import time

        time.sleep(60)
        os._exit(0)
    try:
        assert looking.shared_objects(child) == own
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
    assert looking.shared_objects(child) == ""


def test_another_program_maps_other_objects(holder):
    assert looking.shared_objects(holder.pid) not in ("", looking.shared_objects(os.getpid()))


def test_the_owner_is_the_products_and_no_rank(tmp_path):
    me = os.getpid()
    assert looking.owner_pid(books(tmp_path)) == 0
    assert looking.owner_pid(books(tmp_path, (me, "careless-owner-2"))) == 0
    assert looking.owner_pid(books(tmp_path, (me, "owner-3"))) == me
    parent = os.getppid()
    ranks = ((parent, "owner-3-pair-1-rank-0"), (parent, "owner-3-pair-1-rank-1"))
    assert looking.owner_pid(books(tmp_path, *ranks)) == 0
    assert looking.owner_pid(books(tmp_path, *ranks, (me, "owner-3"))) == me


def test_binaries_are_counted_in_every_cache(tmp_path):
    assert looking.compiled(books(tmp_path)) == 0
    for place in ("compiled/rank-0/triton/a", "owner-1/compile-rank-1/b"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "kernel.cubin").write_bytes(b"x")
        (tmp_path / place / "kernel.ptx").write_bytes(b"x")
    assert looking.compiled(books(tmp_path)) == 2
