"""Locks, fences and quarantine on real files: what excludes nobody is refused."""

import json
import os
import stat
import subprocess
from pathlib import Path

import pytest
from filelock import UnixFileLock
from hypothesis import given
from hypothesis import strategies as st

from pp4.clock import SystemClock
from pp4.errors import BadInputError, Code, RefusedError
from pp4.hold import places
from pp4.hold.clearing import clear
from pp4.hold.exclusion import Exclusion, open_exclusion, require_gpus
from pp4.receipts.canonical import shown
from tests.unit.hold.holds import GPUS, NOBODY, as_nobody, fence_on_disk, forked, private

A, B = GPUS
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a host's directory")


@pytest.fixture
def exclusion(tmp_path):
    return private(tmp_path)


def refused(action, *given):
    with pytest.raises(RefusedError) as caught:
        action(*given)
    return caught.value.refusal


def take(exclusion, gpus):
    with exclusion.locked(gpus):
        return "taken"


def tried(exclusion, gpus):
    """Take locks in another process; -> what came of it."""

    def action():
        try:
            return take(exclusion, gpus)
        except RefusedError as error:
            return str(error.refusal.code)

    return forked(action)


# -- the directory -----------------------------------------------------------------------------


@as_root
def test_root_makes_the_directory_of_the_host_for_every_user(tmp_path):
    mask = os.umask(0o077)
    try:
        exclusion = open_exclusion(tmp_path / "lib" / "host", tmp_path / "state", boot="b")
    finally:
        os.umask(mask)
    assert exclusion == Exclusion(tmp_path / "lib" / "host", "host", "b")
    found = {path.name: stat.S_IMODE(path.stat().st_mode) for path in exclusion.directory.iterdir()}
    assert found == {"gpu": 0o777, "fence": 0o777, "holds": 0o1777}
    assert stat.S_IMODE(exclusion.directory.stat().st_mode) == 0o755
    assert not (tmp_path / "state").exists()
    assert open_exclusion(tmp_path / "lib" / "host", tmp_path / "state", boot="b") == exclusion


@as_root
def test_a_user_without_a_directory_of_the_host_gets_a_private_one(shared):
    (shared / "home").mkdir()
    os.chown(shared / "home", NOBODY, NOBODY)
    state = shared / "home" / "state"

    def action():
        exclusion = open_exclusion(shared / "host", state)
        return [exclusion.kind, str(exclusion.directory), take(exclusion, GPUS)]

    assert as_nobody(action) == ["private", str(state), "taken"]
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    assert not (shared / "host").exists()


@as_root
def test_users_of_one_host_exclude_each_other_and_share_fences(shared):
    exclusion = open_exclusion(shared / "host", shared / "state")

    def attempt():
        theirs = open_exclusion(shared / "host", shared / "theirs")
        try:
            with theirs.locked([A]):
                fence = theirs.highest_fence(A, None) + 1
                theirs.raise_fence([A], fence)
                return [theirs.kind, fence]
        except RefusedError as error:
            return [theirs.kind, str(error.refusal.code)]

    with exclusion.locked([A]):
        exclusion.raise_fence([A], 1)
        assert as_nobody(attempt) == ["host", "HELD_BY"]
    assert as_nobody(attempt) == ["host", 2]
    with exclusion.locked([A]):
        assert exclusion.highest_fence(A, None) == 2
        exclusion.raise_fence([A], 3)
    assert as_nobody(attempt) == ["host", 4]
    lock = exclusion.lock_path(A)
    lock.unlink()
    assert as_nobody(attempt) == ["host", 5]
    assert lock.stat().st_uid == NOBODY
    assert take(exclusion, [A]) == "taken"


@as_root
@pytest.mark.parametrize(
    ("name", "owner", "mode"),
    [
        ("", NOBODY, 0o755),
        ("", 0, 0o775),
        ("", 0, 0o757),
        ("gpu", NOBODY, 0o777),
        ("fence", NOBODY, 0o777),
        ("holds", NOBODY, 0o1777),
        ("holds", 0, 0o777),
    ],
)
def test_another_owner_or_a_directory_that_anyone_changes_is_refused(tmp_path, name, owner, mode):
    host = tmp_path / "host"
    open_exclusion(host, tmp_path / "state")
    os.chown(host / name, owner, -1)
    (host / name).chmod(mode)
    refusal = refused(open_exclusion, host, tmp_path / "state")
    assert refusal.code is Code.EXCLUSION
    assert refusal.where == str(host / name)
    assert not (tmp_path / "state").exists()
    subprocess.run(refusal.next, shell=True, check=True)
    assert open_exclusion(host, tmp_path / "state").kind == "host"


@as_root
def test_a_directory_that_somebody_could_exchange_is_refused(tmp_path):
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", NOBODY, NOBODY)
    refusal = refused(open_exclusion, tmp_path / "theirs" / "host", tmp_path / "state")
    assert (refusal.code, refusal.where) == (Code.EXCLUSION, str(tmp_path / "theirs"))


@as_root
def test_a_user_who_may_not_write_below_is_told(shared):
    open_exclusion(shared / "host", shared / "state")
    (shared / "host" / "gpu").chmod(0o755)

    def action():
        try:
            return open_exclusion(shared / "host", shared / "theirs").kind
        except RefusedError as error:
            return [str(error.refusal.code), error.refusal.next]

    assert as_nobody(action) == ["EXCLUSION", f"chmod 0777 {shared}/host/gpu"]
    assert not (shared / "theirs").exists()


@as_root
@pytest.mark.parametrize("name", ["", "gpu", "fence", "holds"])
def test_a_link_in_place_of_a_directory_is_refused(tmp_path, name):
    host = tmp_path / "host"
    open_exclusion(host, tmp_path / "state")
    path = host / name if name else host
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    refusal = refused(open_exclusion, host, tmp_path / "state")
    assert (refusal.code, refusal.found) == (Code.EXCLUSION, "a symbolic link")
    assert refusal.where == str(path)


@as_root
def test_a_dangling_link_is_not_a_missing_directory(tmp_path):
    (tmp_path / "host").symlink_to(tmp_path / "nowhere")
    assert refused(open_exclusion, tmp_path / "host", tmp_path / "state").code is Code.EXCLUSION
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("mode", [0o770, 0o707])
def test_a_private_directory_that_others_may_write_is_refused(tmp_path, mode):
    (tmp_path / "state").mkdir()
    (tmp_path / "state").chmod(mode)
    refusal = refused(places.own_directory, tmp_path / "state")
    assert refusal.code is Code.EXCLUSION
    assert refusal.next == f"chmod go-w {tmp_path}/state"


def test_a_file_in_place_of_a_directory_is_refused(tmp_path):
    (tmp_path / "state").write_text("mine")
    refusal = refused(places.own_directory, tmp_path / "state")
    assert (refusal.code, refusal.expected) == (Code.EXCLUSION, "a directory")


def test_a_place_where_none_can_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("mine")
    refusal = refused(places.own_directory, tmp_path / "file" / "state")
    assert refusal.code is Code.UNWRITABLE


@pytest.mark.parametrize("magic", [0x6969, 0xFF534D42, 0x65735546, 0x01021997, 0x12345678])
def test_a_file_system_of_a_network_or_an_unknown_one_is_refused(tmp_path, monkeypatch, magic):
    monkeypatch.setattr(places, "file_system", lambda _: magic)
    refusal = refused(places.own_directory, tmp_path / "state")
    assert refusal.code is Code.EXCLUSION
    assert refusal.found == f"file system type 0x{magic:x}"
    assert refusal.next == "export PP4_STATE_DIR=/absolute/path"


@pytest.mark.parametrize("path", ["/", "/tmp", "/proc", "/sys"])
def test_the_kind_of_file_system_is_the_one_that_the_kernel_names(path):
    argv = ["stat", "-f", "-c", "%t", path]
    said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    assert places.file_system(Path(path)) == int(said, 16)


def test_a_path_that_is_not_there_has_no_file_system(tmp_path):
    with pytest.raises(FileNotFoundError):
        places.file_system(tmp_path / "none")


def test_a_boot_without_a_name_is_refused(tmp_path):
    refusal = refused(lambda: open_exclusion(tmp_path / "h", tmp_path / "s", boot="unknown"))
    assert refusal.code is Code.UNREADABLE
    assert list(tmp_path.iterdir()) == []


# -- locks -------------------------------------------------------------------------------------


def test_a_lock_keeps_other_processes_out_until_it_is_let_go(exclusion):
    with exclusion.locked(GPUS):
        assert tried(exclusion, [A]) == "HELD_BY"
        assert tried(exclusion, [B]) == "HELD_BY"
    assert tried(exclusion, GPUS) == "taken"


def test_a_lock_keeps_this_process_out_too(exclusion):
    with exclusion.locked([A]):
        assert refused(take, exclusion, [A]).code is Code.HELD_BY
    assert take(exclusion, [A]) == "taken"


def test_a_file_alone_means_nothing(exclusion):
    exclusion.lock_path(A).write_text(str(os.getpid()))
    assert tried(exclusion, GPUS) == "taken"


def test_both_or_none(exclusion):
    with exclusion.locked([B]):
        refusal = refused(take, exclusion, GPUS)
        assert (refusal.code, refusal.where) == (Code.HELD_BY, B)
        assert tried(exclusion, [A]) == "taken"


def test_locks_are_taken_in_the_order_of_the_uuids(exclusion, monkeypatch):
    taken = []
    real = UnixFileLock.acquire

    def acquire(self, *given, **more):
        taken.append(Path(self.lock_file).name)
        return real(self, *given, **more)

    monkeypatch.setattr(UnixFileLock, "acquire", acquire)
    for gpus in ([A, B], [B, A]):
        take(exclusion, gpus)
    assert taken == [f"{A}.lock", f"{B}.lock"] * 2


def test_no_child_inherits_a_lock(exclusion):
    with exclusion.locked([A]):
        listed = subprocess.run(
            ["ls", "-l", "/proc/self/fd"], capture_output=True, text=True, close_fds=False
        )
    assert listed.returncode == 0
    assert ".lock" not in listed.stdout


def test_a_link_in_place_of_a_lock_is_refused(exclusion, tmp_path):
    for target in (tmp_path / "victim", tmp_path / "nowhere"):
        exclusion.lock_path(A).unlink(missing_ok=True)
        exclusion.lock_path(A).symlink_to(target)
        refusal = refused(take, exclusion, [A])
        assert (refusal.code, refusal.found) == (Code.EXCLUSION, "a symbolic link")
        assert not target.exists()


def test_something_else_in_place_of_a_lock_is_refused(exclusion):
    os.mkfifo(exclusion.lock_path(A))
    exclusion.lock_path(B).mkdir()
    for gpu in GPUS:
        assert refused(take, exclusion, [gpu]).code is Code.EXCLUSION


@pytest.mark.parametrize(
    "gpus",
    [
        [],
        [A, A],
        [A, B, A[:-1] + "3"],
        ["GPU-1"],
        [A.replace("0", "A")],
        ["../../etc/passwd"],
        [f"{A}\n"],
        [f"{A}/../{B}"],
        ["MIG-" + A[4:]],
    ],
)
def test_gpus_are_one_or_two_uuids_in_one_spelling(gpus):
    with pytest.raises(BadInputError):
        require_gpus(gpus)


def test_one_and_two_gpus_are_fine():
    require_gpus([B])
    require_gpus([B, A])


# -- fences ------------------------------------------------------------------------------------


def test_a_gpu_that_was_never_granted_has_no_fence(exclusion):
    assert exclusion.highest_fence(A, None) == 0


@given(fences=st.lists(st.integers(1, 10**18), min_size=1, max_size=4))
def test_a_fence_is_read_back_as_it_was_written(fences, tmp_path_factory):
    exclusion = private(tmp_path_factory.mktemp("fences"))
    for fence in fences:
        exclusion.raise_fence([A], fence)
        assert exclusion.highest_fence(A, fence) == fence
        assert [path.name for path in (exclusion.directory / "fence").iterdir()] == [A]


BROKEN = {
    "empty": b"",
    "torn": b'{"fence":"12","gp',
    "not text": b"\xff\xfe",
    "a number": b"12",
    "other gpu": json.dumps({"fence": "12", "gpu": B}).encode(),
    "no fence": json.dumps({"gpu": A}).encode(),
    "negative": json.dumps({"fence": "-12", "gpu": A}).encode(),
    "not whole": json.dumps({"fence": "1e9", "gpu": A}).encode(),
    "not ascii": json.dumps({"fence": "\u0661\u0662", "gpu": A}).encode(),
    "behind": json.dumps({"fence": "6", "gpu": A}).encode(),
    "twice": b'{"fence":"12","fence":"13","gpu":"' + A.encode() + b'"}',
}


@pytest.mark.parametrize("name", [*BROKEN, "missing", "a directory"])
def test_a_lost_fence_is_refused_with_the_command_that_repairs_it(exclusion, name):
    path = exclusion.fence_path(A)
    if name == "a directory":
        path.mkdir()
    elif name != "missing":
        path.write_bytes(BROKEN[name])
    refusal = refused(exclusion.highest_fence, A, 7)
    # a long path is cut where a person reads it, and whole in the command
    assert (refusal.code, refusal.where) == (Code.FENCE_LOST, shown(str(path)))
    assert str(path) in refusal.next
    if name == "a directory":
        path.rmdir()
    subprocess.run(refusal.next, shell=True, check=True)
    assert exclusion.highest_fence(A, 7) == 7


@pytest.mark.parametrize("name", sorted(set(BROKEN) - {"behind"}))
def test_a_broken_fence_of_a_gpu_without_a_registration_is_refused_too(exclusion, name):
    exclusion.fence_path(A).write_bytes(BROKEN[name])
    refusal = refused(exclusion.highest_fence, A, None)
    assert refusal.code is Code.FENCE_LOST
    subprocess.run(refusal.next, shell=True, check=True)
    assert exclusion.highest_fence(A, None) == 0


def test_the_repair_works_where_the_path_has_quotes_and_spaces(tmp_path):
    exclusion = private(tmp_path / 'it\'s a "place" $HOME')
    refusal = refused(exclusion.highest_fence, A, 3)
    subprocess.run(refusal.next, shell=True, check=True)
    assert exclusion.highest_fence(A, 3) == 3


def test_a_link_in_place_of_a_fence_is_refused_and_not_followed(exclusion, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text(json.dumps({"fence": "12", "gpu": A}))
    exclusion.fence_path(A).symlink_to(victim)
    assert refused(exclusion.highest_fence, A, None).code is Code.EXCLUSION


def test_a_pipe_in_place_of_a_fence_blocks_nobody(exclusion):
    os.mkfifo(exclusion.fence_path(A))
    assert refused(exclusion.highest_fence, A, None).code is Code.FENCE_LOST


@pytest.mark.parametrize("failing", range(1, 5))
def test_a_fence_that_may_not_be_durable_is_refused(exclusion, monkeypatch, failing):
    exclusion.raise_fence(GPUS, 1)
    calls = []
    real = os.fsync

    def fsync(descriptor):
        calls.append(descriptor)
        if len(calls) == failing:
            raise OSError(5, "Input/output error")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    assert refused(exclusion.raise_fence, GPUS, 2).code is Code.UNWRITABLE
    # never lower than before, and no half file
    assert {fence_on_disk(exclusion, gpu) for gpu in GPUS} <= {1, 2}
    assert len(list((exclusion.directory / "fence").iterdir())) == 2


# -- quarantine --------------------------------------------------------------------------------


def test_a_quarantine_keeps_its_gpu_back_until_it_is_taken_away(exclusion):
    exclusion.require_usable(GPUS)
    exclusion.quarantine([B], "h1", ["rank (pid 5, start 7)"])
    exclusion.require_usable([A])
    refusal = refused(exclusion.require_usable, GPUS)
    assert (refusal.code, refusal.where) == (Code.QUARANTINED, B)
    assert "pid 5" in refusal.found
    assert "h1" in refusal.found
    # the command that it names is that of an operator, and its own tests are elsewhere
    assert refusal.next == f"pp4 hold clear --operator NAME --why TEXT {B}"
    clear(exclusion, B, "somebody", "looked at it", SystemClock())
    exclusion.require_usable(GPUS)


def test_a_quarantine_is_void_after_the_machine_has_restarted(tmp_path):
    private(tmp_path, "before").quarantine([A], "h1", ["x"])
    after = private(tmp_path, "after")
    after.require_usable([A])
    after.drop_void([A])
    assert not after.quarantine_path(A).exists()


def test_only_a_void_quarantine_is_dropped(exclusion):
    exclusion.quarantine([A], "h1", ["x"])
    exclusion.drop_void([A])
    assert refused(exclusion.require_usable, [A]).code is Code.QUARANTINED


@pytest.mark.parametrize("text", ["", "{}", '{"boot_id":null}', '{"boot_id":7}', "[]"])
def test_a_quarantine_that_cannot_be_read_is_not_void(exclusion, text):
    exclusion.quarantine_path(A).write_text(text)
    assert refused(exclusion.require_usable, [A]).code is Code.QUARANTINED
