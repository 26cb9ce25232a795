"""What the coordinator sees by itself: of real processes and files, owners that ended included."""

import mmap
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from pp4.hold.processes import Owned, start_token
from pp4.qualify.gates import looking
from tests.unit.qualify.gpus import UUIDS, gpu

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


def test_ranks_are_those_that_run_in_the_order_of_their_start(tmp_path, holder):
    me = os.getpid()
    assert looking.rank_pids(books(tmp_path)) == []
    assert looking.rank_pids(books(tmp_path, (me, "owner-3"))) == []
    ranks = ((holder.pid, "owner-3-pair-1-rank-0"), (me, "owner-3-pair-1-rank-1"))
    hold = books(tmp_path, (os.getppid(), "owner-3"), *ranks)
    assert looking.rank_pids(hold) == [holder.pid, me]
    assert looking.rank_pids(books(tmp_path, *ranks[::-1])) == [me, holder.pid]
    holder.kill()
    holder.wait()
    assert looking.rank_pids(hold) == [me]


def test_binaries_are_counted_in_every_cache(tmp_path):
    assert looking.compiled(tmp_path / "compiled") == 0
    for place in ("rank-0/triton/a", "rank-1/b"):
        (tmp_path / "compiled" / place).mkdir(parents=True)
        (tmp_path / "compiled" / place / "kernel.cubin").write_bytes(b"x")
        (tmp_path / "compiled" / place / "kernel.ptx").write_bytes(b"x")
    assert looking.compiled(tmp_path / "compiled") == 2


# -- what the driver says ---------------------------------------------------------------------


def test_the_facts_of_gpus_have_no_names_and_say_what_is_not_told():
    known = gpu(0, memory_used_bytes=5, temperature_c=40, slowed_by=("gpu_idle", "sw_power_cap"))
    facts = looking.facts([known, gpu(1)])
    assert facts["source"] == "nvml"
    assert facts["memory_used_bytes"][0] == "5"
    assert facts["temperature_c"] == ("40", "not told")
    assert facts["slowed_by"] == ("gpu_idle sw_power_cap", "not told")
    assert not any(UUIDS[0] in str(value) for value in facts.values())


@pytest.mark.parametrize(
    ("member", "fact", "nothing"),
    [("slowed_by", "slowed_by", ""), ("processes", "processes", "0")],
)
def test_nothing_is_another_answer_than_none(member, fact, nothing):
    given, untold = (looking.facts([gpu(0, **{member: one})])[fact][0] for one in ((), None))
    assert (str(given), untold) == (nothing, "not told")
