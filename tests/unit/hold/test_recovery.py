"""What is said of a HOLD that ended badly, and that it is no more than what is known."""

import json
import os
import shutil
import signal
import subprocess
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pp4.clock import ManualClock, SystemClock
from pp4.errors import Code, Exit, RefusedError
from pp4.hold import sweep
from pp4.hold.exclusion import Exclusion, open_exclusion
from pp4.hold.recovery import recover, sealed
from pp4.hold.upkeep import clear
from pp4.receipts.canonical import parse
from pp4.receipts.digests import sha256_hex
from pp4.receipts.journal import first_break, head
from pp4.receipts.private import redact
from pp4.receipts.verify import verify_bytes
from tests.unit.hold.holds import (
    GPUS,
    ROOT,
    as_nobody,
    files,
    forked,
    held,
    private,
    write_modules,
)
from tests.unit.hold.written import MARKED, dead, living, me, reused, snapshot, write_hold, zombie
from tests.unit.processes import halt

A, B = GPUS
ID = "a" * 16
NOW = datetime(2026, 3, 1, tzinfo=UTC)
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a host's directory")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """A sweep that does not wait for what will not end."""
    monkeypatch.setattr(sweep, "_SETTLE_S", 0.3)


@pytest.fixture
def exclusion(tmp_path):
    return private(tmp_path)


def clock():
    return ManualClock(NOW)


def recovered(exclusion, hold=ID, at=None):
    """Recover a HOLD; -> the body, after its receipt was verified by a stranger's means."""
    body = recover(exclusion, hold, at or clock())
    raw = sealed(body)
    report = verify_bytes([("incident.json", raw)])
    assert report.failures == ()
    assert report.exit is Exit.DONE
    tree = parse(raw, "incident")
    assert {name: tree[name] for name in body} == json.loads(json.dumps(body))
    told = json.dumps({**redact(tree), "source": {}})
    assert not [gpu for gpu in GPUS if gpu in told]
    return body


def refused(exclusion, hold=ID):
    with pytest.raises(RefusedError) as caught:
        recover(exclusion, hold, clock())
    return caught.value.refusal


def told(owned, state):
    return {"pid": owned.pid, "start_token": owned.start_token, "state": state}


# -- how a HOLD is found to have ended ----------------------------------------------------------


def test_a_hold_with_a_tombstone_is_closed_and_nothing_is_touched(exclusion):
    directory = write_hold(exclusion, ID, fence=4, closed="2026-02-01T00:00:00Z", why="cancelled")
    before = snapshot(exclusion.directory)
    body = recovered(exclusion)
    assert snapshot(exclusion.directory) == before
    assert (body["kind"], body["hold_id"], body["fence"]) == ("incident", ID, "4")
    assert (body["state"], body["survivors"], body["unproven"]) == ("closed", [], [])
    assert body["tombstone_sha256"] == sha256_hex((directory / "closed.json").read_bytes())
    assert body["made_at"] == "2026-03-01T00:00:00Z"
    assert body["what"] == (
        "pair-qualify kernels, opened at 2026-01-01T00:00:00Z: closed (cancelled)"
    )
    lines = [json.loads(line) for line in (directory / "journal.jsonl").read_bytes().splitlines()]
    assert body["journal"] == lines
    assert body["journal_torn"] is False
    facts = body["facts"]
    assert (facts["why"], facts["closed_at"]) == ("cancelled", "2026-02-01T00:00:00Z")
    assert facts["tombstone_has_this_journal"] is True
    assert facts["journal_fault"] == ""
    names = {name: leaf["value"] for name, leaf in body["private"].items()}
    assert (names["gpu.0.uuid"], names["gpu.1.uuid"]) == GPUS
    assert names["host.boot_id"] == exclusion.boot_id


def test_a_coordinator_that_was_killed_gets_its_tombstone(tmp_path, exclusion, monkeypatch):
    modules = write_modules(tmp_path / "modules")

    def killed():
        with held(tmp_path) as hold:
            path = {"PYTHONPATH": f"{ROOT}:{modules}"}
            hold.start("waits", [], environment=path, label="waits")
            os.kill(os.getpid(), signal.SIGKILL)

    assert forked(killed) == -signal.SIGKILL
    (directory,) = (tmp_path / "state" / "holds").iterdir()
    # what it started ends with its input, and may take a moment
    monkeypatch.setattr(sweep, "_SETTLE_S", 60.0)
    body = recovered(exclusion, directory.name, SystemClock())
    assert (body["state"], body["facts"]["why"]) == ("closed", "abandoned")
    tombstone = (directory / "closed.json").read_bytes()
    assert body["tombstone_sha256"] == sha256_hex(tombstone)
    assert [line["event"] for line in body["journal"]] == ["process"]
    assert body["facts"]["registered_processes"][0].startswith("waits (pid ")
    assert body["facts"]["deadline_passed"] is False
    # said again, it is the same end
    again = recovered(exclusion, directory.name, SystemClock())
    assert (directory / "closed.json").read_bytes() == tombstone
    assert again["facts"] == body["facts"]
    with held(tmp_path) as hold:
        assert hold.fence == 2


def test_a_survivor_puts_its_gpus_into_quarantine_and_is_named(tmp_path, exclusion):
    modules = write_modules(tmp_path / "modules")

    def killed():
        with held(tmp_path) as hold:
            path = {"PYTHONPATH": f"{ROOT}:{modules}"}
            hold.start("silent", [], environment=path, label="silent")
            os.kill(os.getpid(), signal.SIGKILL)

    assert forked(killed) == -signal.SIGKILL
    (directory,) = (tmp_path / "state" / "holds").iterdir()
    line = json.loads((directory / "procs.jsonl").read_bytes())
    pid = line["detail"]["pid"]
    try:
        for _ in range(2):
            body = recovered(exclusion, directory.name)
            assert (body["state"], body["tombstone_sha256"]) == ("quarantined", None)
            (survivor,) = body["survivors"]
            assert (survivor["pid"], survivor["start_token"]) == (
                pid,
                line["detail"]["start_token"],
            )
            assert body["unproven"] == []
            assert body["facts"]["gpus_in_quarantine"] == 2
        with pytest.raises(RefusedError, match="QUARANTINED"):
            clear(exclusion, A, "Ada", "idle", clock())
    finally:
        os.kill(pid, signal.SIGKILL)


def test_a_quarantine_outlasts_its_survivors_until_an_operator_ends_it(exclusion):
    with living("rank 0") as survivor:
        write_hold(exclusion, ID, procs=[survivor])
        assert recovered(exclusion)["survivors"] == [told(survivor, "S (sleeping)")]
        zombie(survivor)
        body = recovered(exclusion)
    assert (body["state"], body["survivors"], body["unproven"]) == ("quarantined", [], [])
    assert not (files(exclusion.directory.parent, ID) / "closed.json").exists()
    for gpu in GPUS:
        clear(exclusion, gpu, "Ada", "idle", clock())
    assert recovered(exclusion)["state"] == "closed"


def test_a_stopped_survivor_is_told_with_its_state(exclusion):
    with living() as survivor:
        halt(survivor.pid)
        write_hold(exclusion, ID, procs=[survivor])
        assert recovered(exclusion)["survivors"] == [told(survivor, "T (stopped)")]


def test_dead_ones_zombies_and_namesakes_are_no_survivors(exclusion):
    with living("zombie") as gone:
        zombie(gone)
        write_hold(exclusion, ID, procs=[gone, dead(), reused()])
        body = recovered(exclusion)
    assert (body["state"], body["survivors"]) == ("closed", [])
    assert len(body["facts"]["registered_processes"]) == 3


def test_a_process_in_no_book_is_a_survivor_by_its_mark(exclusion):
    write_hold(exclusion, MARKED)
    with living(mark=MARKED) as marked:
        assert recovered(exclusion, MARKED)["survivors"] == [told(marked, "S (sleeping)")]


def test_a_hold_of_an_earlier_boot_ends_with_it(exclusion):
    write_hold(exclusion, ID, boot="before", holder=me(), procs=[me("namesake")])
    exclusion.quarantine([A], "b" * 16, ["somebody else's"])
    body = recovered(exclusion)
    assert (body["state"], body["facts"]["why"]) == ("closed", "host_reboot")
    assert body["facts"]["same_boot"] is False
    assert "deadline_passed" not in body["facts"]


def test_what_a_quarantine_names_without_a_pid_is_unproven(exclusion):
    write_hold(exclusion, ID, survivors=["x"])
    gone, group = dead("rank 0"), f"the group of rank 0 of {A} (pid 4711)"
    exclusion.quarantine(GPUS, ID, [str(gone), group])
    body = recovered(exclusion)
    assert body["state"] == "quarantined"
    assert body["unproven"] == ["the group of rank 0 of gpu.0 (pid 4711)"]


def test_of_another_namespace_nothing_is_proven(exclusion):
    write_hold(exclusion, ID, pids="pid:[1]", procs=[dead()])
    body = recovered(exclusion)
    assert body["state"] == "quarantined"
    assert "processes of another pid namespace" in body["unproven"]


def test_a_quarantine_of_another_hold_is_said(exclusion):
    write_hold(exclusion, ID, survivors=[])
    exclusion.quarantine([B], "b" * 16, ["x"])
    body = recovered(exclusion)
    assert body["state"] == "quarantined"
    assert body["unproven"] == [f"its GPUs are in quarantine for HOLD {'b' * 16}"]
    assert body["facts"]["gpus_in_quarantine"] == 1


def test_a_quarantine_that_cannot_be_read_is_one(exclusion):
    write_hold(exclusion, ID)
    exclusion.quarantine_path(A).write_bytes(b"{")
    body = recovered(exclusion)
    assert body["state"] == "quarantined"
    assert body["unproven"][0].startswith("a quarantine that cannot be read: ")


def test_a_hold_that_has_not_ended_is_left_alone(tmp_path, exclusion):
    with held(tmp_path) as hold:
        before = snapshot(exclusion.directory)
        refusal = refused(exclusion, hold.hold_id)
        assert refusal.code is Code.HELD_BY
        assert f"HOLD {hold.hold_id}, fence 1" in refusal.found
        assert snapshot(exclusion.directory) == before
    assert recovered(exclusion, hold.hold_id)["facts"]["why"] == "done"


def test_a_holder_that_lost_its_lock_and_lives_is_left_alone(exclusion):
    directory = write_hold(exclusion, ID, holder=me())
    assert refused(exclusion).code is Code.HELD_BY
    assert not (directory / "closed.json").exists()


def test_a_lock_of_another_hold_leaves_the_end_unknown(exclusion):
    directory = write_hold(exclusion, ID)
    with exclusion.locked([B]):
        body = recovered(exclusion)
    assert (body["state"], body["tombstone_sha256"]) == ("unknown", None)
    assert body["unproven"] == ["nothing was swept: another HOLD has the lock of a GPU"]
    assert not (directory / "closed.json").exists()


@pytest.fixture
def small_disk(tmp_path):
    """A file system of its own with little room."""
    disk = tmp_path / "disk"
    disk.mkdir()
    argv = ["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "tmpfs", str(disk)]
    if shutil.which("mount") is None or subprocess.run(argv, capture_output=True).returncode:
        pytest.skip("may not mount a file system here")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


@pytest.mark.parametrize(("survivors", "state"), [(None, "unknown"), ([], "closing")])
def test_a_full_disk_takes_no_tombstone_and_leaves_the_end_open(small_disk, survivors, state):
    exclusion = private(small_disk)
    directory = write_hold(exclusion, ID, survivors=survivors)
    with (small_disk / "ballast").open("wb", buffering=0) as file:
        while file.write(bytes(4096)) and os.statvfs(small_disk).f_bavail:
            pass
    body = recovered(exclusion)
    assert (body["state"], body["tombstone_sha256"]) == (state, None)
    assert body["unproven"] == ["the end could not be recorded: No space left on device"]
    assert not (directory / "closed.json").exists()
    (small_disk / "ballast").unlink()
    assert recovered(exclusion)["state"] == "closed"


class BuriedMeanwhile(Exclusion):
    """Locks that come only after somebody else wrote the tombstone."""

    @contextmanager
    def locked(self, gpus):
        write_hold(self, ID, closed="2026-02-01T00:00:00Z", why="cancelled")
        with super().locked(gpus):
            yield


def test_a_tombstone_that_came_first_is_not_written_over(exclusion):
    write_hold(exclusion, ID)
    later = BuriedMeanwhile(exclusion.directory, "private", exclusion.boot_id)
    body = recovered(later)
    assert (body["state"], body["facts"]["why"]) == ("closed", "cancelled")


@as_root
def test_another_users_hold_is_proven_and_not_written(shared):
    exclusion = open_exclusion(shared / "host", shared / "state")
    directory = write_hold(exclusion, ID, state_dir=shared / "state")
    (shared / "state").chmod(0o700)
    body = as_nobody(lambda: recover(exclusion, ID, clock()))
    assert (body["state"], body["journal"]) == ("unknown", [])
    assert body["unproven"] == [
        "everything is proven dead, and only user 0 can write the tombstone"
    ]
    assert body["facts"]["journal_fault"] == "Permission denied"
    assert not (directory / "closed.json").exists()
    assert verify_bytes([("incident", sealed(body))]).failures == ()


# -- journals ------------------------------------------------------------------------------------


def test_a_torn_last_line_is_dropped_and_said(exclusion):
    directory = write_hold(exclusion, ID)
    path = directory / "journal.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"sequence":2,"st')
    body = recovered(exclusion)
    assert (body["journal_torn"], len(body["journal"])) == (True, 2)
    assert body["facts"]["journal_fault"] == ""
    assert body["facts"]["tombstone_has_this_journal"] is True


def test_at_every_byte_a_cut_journal_gives_its_whole_lines(exclusion):
    directory = write_hold(exclusion, ID, closed="2026-02-01T00:00:00Z")
    path = directory / "journal.jsonl"
    whole = path.read_bytes()
    for size in range(0, len(whole) + 1, 7):
        path.write_bytes(whole[:size])
        body = recover(exclusion, ID, clock())
        assert len(body["journal"]) == whole[:size].count(b"\n")
        assert body["journal_torn"] is (size > 0 and whole[size - 1 : size] != b"\n")
        assert body["facts"]["journal_fault"] == ""


BAD_LINES = {
    "changed": lambda raw: raw.replace(b"data-pattern", b"data-Pattern", 1) + raw,
    "no JSON": lambda raw: raw + b"{\n",
    "a number": lambda raw: raw + b"5\n",
    "deep": lambda raw: raw + b"[" * 100_000 + b"\n",
    "empty": lambda raw: raw + b"\n\n",
    "no text": lambda raw: raw + b"\xff\n",
    "repeated": lambda raw: raw + raw,
}


@pytest.mark.parametrize("name", BAD_LINES)
def test_lines_that_do_not_follow_are_left_out_and_said(exclusion, name):
    directory = write_hold(exclusion, ID, closed="2026-02-01T00:00:00Z")
    path = directory / "journal.jsonl"
    path.write_bytes(BAD_LINES[name](path.read_bytes()))
    body = recovered(exclusion)
    assert body["state"] == "closed"
    assert first_break(body["journal"]) is None
    assert body["facts"]["journal_fault"].startswith("line 2: ")
    assert body["facts"]["tombstone_has_this_journal"] is (name != "changed")


def test_a_line_that_no_receipt_holds_ends_the_journal(exclusion):
    directory = write_hold(exclusion, ID, closed="2026-02-01T00:00:00Z")
    path = directory / "journal.jsonl"
    first = path.read_bytes().splitlines()[0]
    line = {**json.loads(first), "sequence": 1, "previous": head([json.loads(first)])}
    line["event"] = "No Word"
    path.write_bytes(first + b"\n" + json.dumps(line).encode() + b"\n")
    body = recovered(exclusion)
    assert len(body["journal"]) == 1
    assert body["facts"]["journal_fault"].startswith("line 1: event: ")


def test_a_journal_that_is_gone_or_a_pipe_is_none(exclusion):
    directory = write_hold(exclusion, ID, closed="2026-02-01T00:00:00Z")
    path = directory / "journal.jsonl"
    path.unlink()
    body = recovered(exclusion)
    assert (body["journal"], body["facts"]["tombstone_has_this_journal"]) == ([], False)
    os.mkfifo(path)
    assert recovered(exclusion)["facts"]["journal_fault"] == "something that is not a file"


def test_a_journal_whose_name_is_none_is_none(exclusion):
    directory = write_hold(exclusion, ID, closed="2026-02-01T00:00:00Z")
    tree = json.loads((directory / "registration.json").read_text())
    tree["journal"] = "/tmp/\x00"
    (directory / "registration.json").write_text(json.dumps(tree))
    assert recovered(exclusion)["facts"]["journal_fault"] == "embedded null byte"


# -- records that cannot be read ----------------------------------------------------------------


@pytest.mark.parametrize("raw", [b"", b"{", b"{}", b"[]", b"5\n", b"\xff"])
def test_a_tombstone_that_is_none_closes_nothing(exclusion, raw):
    directory = write_hold(exclusion, ID, closed="2026-02-01T00:00:00Z")
    (directory / "closed.json").write_bytes(raw)
    body = recovered(exclusion)
    assert (body["state"], body["tombstone_sha256"]) == ("unknown", None)
    assert body["unproven"][0].startswith("the tombstone cannot be read: ")
    assert (directory / "closed.json").read_bytes() == raw


def test_the_tombstone_of_another_fence_closes_nothing(exclusion):
    directory = write_hold(exclusion, ID, fence=1, closed="2026-02-01T00:00:00Z")
    write_hold(exclusion, "b" * 16, fence=2, closed="2026-02-01T00:00:00Z")
    shutil.copy(exclusion.holds / ("b" * 16) / "closed.json", directory / "closed.json")
    body = recovered(exclusion)
    assert body["state"] == "unknown"
    assert body["unproven"] == [f"the tombstone is of HOLD {'b' * 16}, fence 2"]


def test_books_that_were_changed_prove_nothing(exclusion):
    directory = write_hold(exclusion, ID, procs=[dead()])
    path = directory / "procs.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"pid":', b'"pid":1') + b'{"sequence":7}\n')
    body = recovered(exclusion)
    assert body["state"] == "quarantined"
    assert any(text.startswith("procs.jsonl: line 1: ") for text in body["unproven"])


def test_a_registration_that_is_none_is_refused(exclusion):
    directory = write_hold(exclusion, ID)
    (directory / "registration.json").write_bytes(b"{}")
    assert refused(exclusion).code is Code.UNREADABLE


def test_other_records_that_cannot_be_read_do_not_matter(exclusion):
    write_hold(exclusion, ID)
    other = write_hold(exclusion, "b" * 16)
    (other / "registration.json").write_bytes(b"{}")
    assert recovered(exclusion)["state"] == "closed"


# -- ids ----------------------------------------------------------------------------------------


def test_an_id_that_nobody_has_is_refused_with_the_nearest(exclusion):
    assert refused(exclusion).found == f"{ID}, and no HOLD at all"
    for number, name in enumerate(("0123456789abcdef", "fedcba9876543210", "f" * 16)):
        opened = f"2026-01-0{number + 1}T00:00:00Z"
        write_hold(exclusion, name, fence=number + 1, opened=opened)
    refusal = refused(exclusion, "0123456789abcdee")
    assert (refusal.code, refusal.found) == (Code.UNKNOWN_HOLD, "0123456789abcdee")
    assert "0123456789abcdef" in refusal.expected
    assert "f" * 16 not in refusal.expected
    assert refusal.next == "pp4 hold status"


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../holds/" + ID, ID + "\n", ID.upper(), "\x00", "a" * 5000]
)
def test_only_an_id_becomes_a_path(exclusion, name):
    write_hold(exclusion, ID, closed="2026-02-01T00:00:00Z")
    assert refused(exclusion, name).code is Code.UNKNOWN_HOLD


def test_a_registration_cannot_lead_elsewhere(tmp_path, exclusion):
    directory = write_hold(exclusion, ID)
    tree = json.loads((directory / "registration.json").read_text())
    tree["gpus"] = [A, "../../outside"]
    (directory / "registration.json").write_text(json.dumps(tree))
    assert refused(exclusion).code is Code.UNREADABLE
    assert not Path(tmp_path / "outside.lock").exists()


def test_another_boot_is_another_exclusion(exclusion):
    write_hold(exclusion, ID, procs=[me("lives on, at this boot")])
    later = Exclusion(exclusion.directory, "private", "later")
    assert recovered(later)["facts"]["why"] == "host_reboot"
