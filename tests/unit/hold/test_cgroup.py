"""A cgroup for a step where there can be one, and never an error where there cannot."""

import os
import signal

import pytest

from pp4.clock import Deadline, SystemClock
from pp4.hold import cgroup
from pp4.hold.cgroup import Leaf, leaves, make_leaf
from tests.unit.hold.families import HOLD, ended, finished, gathered, owned
from tests.unit.processes import within

FILES = {
    "cgroup.procs": f"1\n{os.getpid()}\n",
    "cgroup.kill": "",
    "cgroup.events": "populated 0\nfrozen 0\n",
    "cgroup.type": "domain\n",
}


def soon(seconds=60.0):
    return Deadline.after(SystemClock(), seconds)


def fake(path, **changed):
    """Make a directory that looks like a cgroup; files named with None are left out."""
    path.mkdir(parents=True, exist_ok=True)
    for name, text in {**FILES, **changed}.items():
        if text is not None:
            (path / name).write_text(text)
    return path


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A cgroup of this process in a file system that is none."""
    membership = tmp_path / "membership"
    membership.write_text("1:name=systemd:/x\n0::/user.slice/run-7.scope\n")
    monkeypatch.setattr(cgroup, "_MEMBERSHIP", membership)
    return fake(tmp_path / "root" / "user.slice" / "run-7.scope")


@pytest.fixture
def root(home, tmp_path):
    return tmp_path / "root"


@pytest.fixture
def filled(monkeypatch):
    """Have new directories filled, as the kernel does it."""
    mkdir = cgroup.Path.mkdir
    changed = {}

    def fill(path, mode=0o777, **more):
        mkdir(path, mode, **more)
        for name, text in {**FILES, **changed}.items():
            if text is not None:
                (path / name).write_text(text)

    monkeypatch.setattr(cgroup.Path, "mkdir", fill)
    return changed


# -- where one can be made -------------------------------------------------------------------------


def test_a_leaf_is_made_below_the_cgroup_of_this_process(home, root, filled):
    assert make_leaf("feed", "gate-3", root=root) == Leaf(home / "pp4-feed-gate-3")
    assert leaves("feed", root=root) == (Leaf(home / "pp4-feed-gate-3"),)
    assert leaves("fee", root=root) == ()


@pytest.mark.parametrize(
    ("label", "name"),
    [("../../x", "pp4-feed-.._.._x"), ("a b\n", "pp4-feed-a_b_"), ("é", "pp4-feed-_")],
)
def test_a_label_is_never_a_path(home, root, filled, label, name):
    assert make_leaf("feed", label, root=root) == Leaf(home / name)


def test_a_long_label_is_cut(home, root, filled):
    leaf = make_leaf("feed", "x" * 1000, root=root)
    assert leaf is not None
    assert leaf.path.name == "pp4-feed-" + "x" * 191


def test_a_leaf_that_is_there_is_somebody_elses(home, root, filled):
    fake(home / "pp4-feed-gate-3")
    assert make_leaf("feed", "gate-3", root=root) is None
    assert (home / "pp4-feed-gate-3").is_dir()


@pytest.mark.parametrize("missing", ["cgroup.procs", "cgroup.kill", "cgroup.events"])
def test_a_kernel_that_cannot_kill_a_cgroup_is_left_alone(home, root, filled, monkeypatch, missing):
    filled[missing] = None
    removed = []
    monkeypatch.setattr(cgroup.Path, "rmdir", lambda path: removed.append(path.name))
    assert make_leaf("feed", "gate-3", root=root) is None
    assert removed == ["pp4-feed-gate-3"]


@pytest.mark.parametrize(("kind", "made"), [("threaded", False), ("domain threaded", True)])
def test_a_cgroup_of_threads_only_is_left_alone(home, root, filled, kind, made):
    filled["cgroup.type"] = kind + "\n"
    assert (make_leaf("feed", "gate-3", root=root) is not None) == made


def test_a_plain_directory_is_no_cgroup_and_is_left_as_it_was(home, root):
    assert make_leaf("feed", "gate-3", root=root) is None
    assert sorted(path.name for path in home.iterdir()) == sorted(FILES)


@pytest.mark.parametrize("members", ["", "1\n2\n", "1{pid}\n", None])
def test_a_cgroup_that_this_process_is_not_in_is_not_its_own(home, root, filled, members):
    (home / "cgroup.procs").unlink()
    if members is not None:
        (home / "cgroup.procs").write_text(members)
    assert make_leaf("feed", "gate-3", root=root) is None
    assert leaves("feed", root=root) == ()


@pytest.mark.parametrize(
    "text", ["", "1:name=systemd:/user.slice/run-7.scope\n", "0::/../user.slice\n", "0::/gone\n"]
)
def test_a_membership_that_leads_nowhere_gives_none(home, root, filled, monkeypatch, text):
    cgroup._MEMBERSHIP.write_text(text)
    assert make_leaf("feed", "gate-3", root=root) is None


def test_without_the_kernels_files_there_is_none(home, root, filled, monkeypatch, tmp_path):
    monkeypatch.setattr(cgroup, "_MOUNTS", tmp_path / "no such file")
    assert make_leaf("feed", "gate-3") is None
    cgroup._MEMBERSHIP.unlink()
    assert make_leaf("feed", "gate-3", root=root) is None
    assert leaves("feed", root=root) == ()


def test_the_mount_is_found_among_others(home, root, filled, monkeypatch, tmp_path):
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "31 24 0:27 / /sys/fs/cgroup rw shared:9 - tmpfs tmpfs rw\n"
        "40 31 0:37 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"
        f"41 31 0:38 / {root} rw,relatime shared:1 master:2 - cgroup2 cgroup2 rw\n"
    )
    monkeypatch.setattr(cgroup, "_MOUNTS", mounts)
    assert make_leaf("feed", "gate-3") == Leaf(home / "pp4-feed-gate-3")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
@pytest.mark.parametrize("what", ["directory", "cgroup.procs"])
def test_a_cgroup_that_was_not_delegated_is_left_alone(home, root, filled, what):
    path = home if what == "directory" else home / what
    path.chmod(0o555 if what == "directory" else 0o444)
    try:
        assert make_leaf("feed", "gate-3", root=root) is None
    finally:
        path.chmod(0o755)


# -- a leaf ----------------------------------------------------------------------------------------


def test_killing_and_entering_are_one_write_each(tmp_path):
    leaf = Leaf(fake(tmp_path / "leaf", **{"cgroup.procs": ""}))
    leaf.enter()
    assert leaf.kill()
    assert (leaf.path / "cgroup.procs").read_text() == "0\n"
    assert (leaf.path / "cgroup.kill").read_text() == "1\n"


def test_a_leaf_that_is_gone_is_empty_and_nothing_fails(tmp_path):
    leaf = Leaf(tmp_path / "gone")
    leaf.enter()
    assert not leaf.kill()
    assert leaf.empty()
    assert leaf.remove(soon())


def test_a_leaf_that_says_nothing_is_not_empty(tmp_path):
    leaf = Leaf(fake(tmp_path / "leaf", **{"cgroup.events": None}))
    assert not leaf.empty()
    (leaf.path / "cgroup.events").write_text("populated 1\nfrozen 0\n")
    assert not leaf.empty()
    (leaf.path / "cgroup.events").write_text("populated 0\nfrozen 0\n")
    assert leaf.empty()


def test_a_leaf_in_which_something_lives_is_waited_for_and_stays(tmp_path):
    leaf = Leaf(fake(tmp_path / "leaf", **{"cgroup.events": "populated 1\n"}))
    assert not leaf.remove(soon(0.05))
    assert leaf.path.is_dir()


class _Emptying(Leaf):
    """A leaf that is empty when it is asked for the third time."""

    __slots__ = ()
    answers = ()

    def empty(self):
        return self.answers.pop(0)


def test_a_leaf_is_removed_as_soon_as_nothing_lives_in_it(tmp_path, monkeypatch):
    leaf = _Emptying(tmp_path / "leaf")
    (leaf.path / "inner" / "most").mkdir(parents=True)
    monkeypatch.setattr(_Emptying, "answers", [False, False, True])
    assert leaf.remove(soon())
    assert _Emptying.answers == []
    assert not leaf.path.exists()


# -- a real one ------------------------------------------------------------------------------------


@pytest.fixture
def delegated():
    """Skip where this process may not make a cgroup."""
    leaf = make_leaf(HOLD, f"probe-{os.getpid()}")
    if leaf is None:
        pytest.skip("no cgroup of version 2 is delegated to this process")
    assert leaf.remove(soon())


@pytest.fixture
def family(tmp_path):
    with gathered(tmp_path) as made:
        yield made


WHERE = 'print(open("/proc/self/cgroup").read().split("0::")[1].split()[0], flush=True)\n'


def test_the_kernel_kills_whatever_is_inside(delegated, family):
    leaf = make_leaf(HOLD, f"kill-{os.getpid()}")
    script = "deaf()\nif detach():\n    born('daemon')\n    wait()\nborn('child')\n"
    process = family.script(script + WHERE + "wait()", preexec_fn=leaf.enter)
    assert process.stdout.readline().decode().strip().endswith(leaf.path.name)
    daemon, child = family.named("daemon"), family.named("child")
    assert not leaf.empty()
    assert leaf in leaves(HOLD)
    assert not leaf.remove(soon(0.0))
    assert leaf.kill()
    assert within(lambda: not (daemon.alive() or child.alive()))
    assert process.wait() == -signal.SIGKILL
    assert leaf.remove(soon())
    assert not leaf.path.exists()
    assert leaf not in leaves(HOLD)


def test_a_leaf_with_leaves_is_removed_whole(delegated):
    leaf = make_leaf(HOLD, f"nested-{os.getpid()}")
    (leaf.path / "a" / "b").mkdir(parents=True)
    assert leaf.remove(soon())
    assert not leaf.path.exists()


def test_a_guard_runs_its_step_in_a_leaf_and_removes_it(delegated, family):
    label = f"step-{os.getpid()}"
    process = family.guarded(WHERE + "os.read(0, 1)", label=label)
    path = process.stdout.readline().decode().strip()
    assert path.endswith(f"/pp4-{HOLD}-{label}")
    mine = [leaf.path.name for leaf in leaves(HOLD)]
    assert f"pp4-{HOLD}-{label}" in mine
    assert finished(process)[0] == 0
    assert f"pp4-{HOLD}-{label}" not in [leaf.path.name for leaf in leaves(HOLD)]


def test_a_guard_whose_program_does_not_start_leaves_no_leaf(delegated, family):
    label = f"absent-{os.getpid()}"
    assert ended(family.guard("/no such program", label=label))[0] == 127
    assert f"pp4-{HOLD}-{label}" not in [leaf.path.name for leaf in leaves(HOLD)]


def test_what_a_killed_guard_leaves_is_found_by_its_leaf(delegated, family):
    label = f"left-{os.getpid()}"
    process = family.guarded("deaf()\nborn('child')\nwait()", label=label)
    child = family.named("child")
    guard = owned(process.pid)
    guard.signal(signal.SIGKILL)
    process.wait()
    left = [leaf for leaf in leaves(HOLD) if leaf.path.name.endswith(label)]
    assert [leaf.empty() for leaf in left] == [False]
    assert left[0].kill()
    assert within(lambda: not child.alive())
    assert left[0].remove(soon())
