"""Every branch of the doctor but the GPUs, and the real probes."""

import sys
from pathlib import Path

import pytest

from pp4.config import SWITCHES
from pp4.doctor import Answer, PathFacts, Status, SystemProbes, diagnose
from pp4.doctor.state import filesystem
from pp4.errors import Exit
from tests.unit.machine import HOST, MOUNTS, SETTINGS, SHM, STATE, TEMP, Machine, check


def test_a_good_machine_is_ok_even_when_strict():
    diagnosis = diagnose(Machine(), SETTINGS, strict=True)
    assert [(c.name, c.status) for c in diagnosis.checks if c.status is not Status.OK] == []
    assert diagnosis.exit is Exit.DONE
    assert all(c.found and c.needed_for and not c.todo for c in diagnosis.checks)


def test_the_dictionary_has_every_check():
    diagnosis = diagnose(Machine(), SETTINGS, strict=False)
    record = diagnosis.as_dict()
    assert (record["strict"], record["exit"]) == (False, 0)
    assert [c["name"] for c in record["checks"]] == [c.name for c in diagnosis.checks]


@pytest.mark.parametrize(
    ("change", "name", "status", "found"),
    [
        ({"version": (3, 10, 14)}, "python", Status.FAIL, "3.10.14"),
        ({"system": ("Darwin", "arm64")}, "platform", Status.MISSING, "Darwin arm64"),
        ({"packages": {"triton": "3.6.0"}}, "torch", Status.MISSING, "not installed"),
        ({"packages": {"torch": "2.10.1"}}, "torch", Status.FAIL, "2.10.1"),
        ({"packages": {"torch": "2.11.0"}}, "torch", Status.OK, "2.11.0"),
        ({"packages": {}}, "triton", Status.MISSING, "not installed"),
        ({"packages": {"triton": "3.5.1"}}, "triton", Status.FAIL, "3.5.1"),
        ({"packages": {"triton": "4"}}, "triton", Status.OK, "4"),
        ({"programs": {"ssh"}}, "ssh-keygen", Status.MISSING, "not found"),
        ({"programs": set()}, "ssh", Status.MISSING, "not found"),
        ({"programs": set()}, "gpus", Status.MISSING, "no nvidia-smi"),
        ({"programs": set()}, "peer access", Status.MISSING, "not asked: there is no driver"),
        ({"free": {TEMP: 0}}, "temporary space", Status.WARN, "0 MiB free at /tmp"),
        ({"free": {TEMP: None}}, "temporary space", Status.FAIL, "/tmp does not answer"),
        ({"free": {STATE: 1 << 20}}, "state space", Status.WARN, "1 MiB free at /home/u/st"),
        ({"free": {SHM: 8 << 20}}, "shared memory", Status.WARN, "8 MiB free at /dev/shm"),
        ({"paths": {}}, "shared memory", Status.MISSING, "no /dev/shm"),
    ],
)
def test_machine(change, name, status, found):
    seen = check(Machine(**change), name)
    assert (seen.status, seen.found) == (status, found)
    assert bool(seen.todo) is (status is not Status.OK)


@pytest.mark.parametrize(
    ("facts", "mounts", "status"),
    [
        (None, MOUNTS, Status.OK),
        (PathFacts("symlink", 1000, 0o777), MOUNTS, Status.FAIL),
        (PathFacts("other", 1000, 0o700), MOUNTS, Status.FAIL),
        (PathFacts("directory", 0, 0o700), MOUNTS, Status.FAIL),
        (PathFacts("directory", 1000, 0o702), MOUNTS, Status.FAIL),
        (PathFacts("directory", 1000, 0o750), MOUNTS, Status.WARN),
        (PathFacts("directory", 1000, 0o700), MOUNTS.replace("ext4", "nfs4"), Status.FAIL),
        (PathFacts("directory", 1000, 0o700), MOUNTS.replace("ext4", "fuse.sshfs"), Status.FAIL),
    ],
)
def test_state_directory(facts, mounts, status):
    paths = {STATE: facts} if facts else {}
    seen = check(Machine(paths=paths, files={"/proc/self/mountinfo": mounts}), "state directory")
    assert seen.status is status


@pytest.mark.parametrize(
    ("facts", "status"),
    [
        (None, Status.MISSING),
        (PathFacts("directory", 0, 0o755), Status.OK),
        (PathFacts("directory", 1000, 0o755), Status.OK),
        (PathFacts("directory", 7, 0o755), Status.FAIL),
        (PathFacts("directory", 0, 0o777), Status.FAIL),
    ],
)
def test_host_directory(facts, status):
    seen = check(Machine(paths={HOST: facts} if facts else {}), "host directory")
    assert seen.status is status


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/u", "nfs4"),
        ("/home/u/st/x", "tmpfs"),
        ("/home/user", "ext4"),
        ("/mnt/a b/c", "xfs"),
        ("/", "ext4"),
    ],
)
def test_the_longest_mount_point_decides_and_the_last_of_equal_ones(path, kind):
    mounts = (
        "1 0 8:1 / / rw - rootfs none rw\n"
        "2 0 8:1 / / rw shared:1 - ext4 /dev/sda rw\n"
        "3 2 0:9 / /home/u rw - nfs4 s:/h rw\n"
        "4 3 0:10 / /home/u/st rw - tmpfs tmpfs rw\n"
        "5 2 0:11 / /mnt/a\\040b rw master:2 - xfs /dev/sdb rw\n"
        "nonsense\n6 2 - \n"
    )
    assert filesystem(mounts, Path(path)) == kind


def test_no_mountinfo_is_unknown_and_not_a_guess():
    assert filesystem("", Path("/x")) == "unknown"


@pytest.mark.parametrize(
    ("broken", "strict", "exit_code"),
    [
        ({"programs": set()}, False, Exit.DONE),
        ({"programs": set()}, True, Exit.REFUSED),
        ({"version": (3, 9, 0)}, False, Exit.REFUSED),
        ({"free": {TEMP: 0}}, False, Exit.DONE),
        ({"free": {TEMP: 0}}, True, Exit.REFUSED),
    ],
)
def test_exit(broken, strict, exit_code):
    assert diagnose(Machine(**broken), SETTINGS, strict=strict).exit is exit_code


def test_the_real_probes_answer_and_never_raise(tmp_path):
    probes = SystemProbes()
    assert probes.python() >= (3, 11)
    assert probes.package("pytest")
    assert probes.package("no-such-distribution-of-pp4") is None
    assert probes.which("no-such-program-of-pp4") is None
    assert probes.ask(["/no/such/program"]).problem == "No such file or directory"
    assert probes.ask(["sh", "-c", "echo a; echo b >&2; exit 3"]).problem == "status 3: b"
    assert probes.ask(["sh", "-c", "cat; echo a"]) == Answer(True, "a\n")
    # others write to this disk meanwhile
    apart = probes.free_bytes(tmp_path / "not" / "there") - probes.free_bytes(tmp_path)
    assert abs(apart) < 1 << 30
    assert probes.read(tmp_path) is None
    assert probes.names(tmp_path / "gone") == ()


def test_a_program_that_hangs_is_given_up(monkeypatch):
    monkeypatch.setattr("pp4.doctor.probes.ASK_TIMEOUT_S", 0.05)
    problem = SystemProbes().ask(["sleep", "600"]).problem
    assert problem == "no answer within 0.05 s"


def test_real_facts(tmp_path):
    probes = SystemProbes()
    (tmp_path / "d").mkdir(mode=0o700)
    (tmp_path / "l").symlink_to(tmp_path / "d")
    (tmp_path / "f").write_text("x")
    assert probes.facts(tmp_path / "d") == PathFacts("directory", probes.user(), 0o700)
    assert probes.facts(tmp_path / "l").kind == "symlink"
    assert probes.facts(tmp_path / "f").kind == "other"
    assert probes.facts(tmp_path / "gone") is None
    assert probes.real(tmp_path / "l") == probes.real(tmp_path / "d")
    assert probes.names(tmp_path) == ("d", "f", "l")


def test_what_the_rehearsal_demands_is_looked_for():
    machine = Machine(packages={"torch": "2.13.0", "triton": "3.7.1"})
    checks = diagnose(machine, SETTINGS, strict=False).checks
    (numpy,) = [one for one in checks if one.name == "numpy"]
    assert (numpy.status, numpy.found) == (Status.MISSING, "not installed")


def test_a_program_is_not_told_of_the_switches(monkeypatch):
    monkeypatch.setenv(SWITCHES[0], "1")
    answer = SystemProbes().ask([sys.executable, "-c", "import os; print(*os.environ)"])
    assert answer.ok
    assert SWITCHES[0] not in answer.out.split()
