"""The end of a quarantine, on somebody's word, which is written down."""

import os
import shlex
import subprocess

import pytest

from pp4.errors import Code, Exit, RefusedError, UsageError
from pp4.hold.chained import read_chained
from pp4.hold.exclusion import Exclusion, open_exclusion
from pp4.receipts.canonical import shown
from tests.unit.hold.holds import (
    GPUS,
    NOBODY,
    as_nobody,
)
from tests.unit.hold.looking import BROKEN, A, B, end, killed_at, refused
from tests.unit.hold.written import (
    MARKED,
    dead,
    living,
    me,
    reused,
    snapshot,
    write_hold,
    zombie,
)
from tests.unit.processes import halt

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a host's directory")


def cleared_lines(exclusion, gpu=A):
    path = exclusion.directory / "gpu" / f"{gpu}.cleared.jsonl"
    return list(read_chained(path).lines)


def test_a_quarantine_ends_by_an_operators_word_that_is_written_down(exclusion):
    gone = dead("rank 1")
    exclusion.quarantine(GPUS, "a" * 16, [str(gone), "the group of rank 1 (pid 1)"])
    found = end(exclusion)
    assert (found.gpu, found.hold, found.operator, found.why) == (
        A,
        "a" * 16,
        "Ada",
        "rebooted the card",
    )
    assert found.at == "2026-03-01T00:00:00Z"
    assert found.survivors == (str(gone), "the group of rank 1 (pid 1)")
    exclusion.require_usable([A])
    assert refused(exclusion.require_usable, [B]).code is Code.QUARANTINED
    (line,) = cleared_lines(exclusion)
    assert found.record == exclusion.directory / "gpu" / f"{A}.cleared.jsonl"
    assert line["step"] == f"quarantine of {A}"
    assert line["detail"] == {
        "operator": "Ada",
        "why": "rebooted the card",
        "at": "2026-03-01T00:00:00Z",
        "user": os.geteuid(),
        "hold": "a" * 16,
        "survivors": [str(gone), "the group of rank 1 (pid 1)"],
        "fault": "",
        "boot_id": exclusion.boot_id,
    }
    exclusion.quarantine([A], "b" * 16, [])
    end(exclusion, why="again")
    assert [one["detail"]["hold"] for one in cleared_lines(exclusion)] == ["a" * 16, "b" * 16]


@pytest.mark.parametrize("text", ["", " ", "two\nlines", "\x1b[2J", "x" * 2001, "\udcff"])
@pytest.mark.parametrize("which", ["operator", "why"])
def test_nobody_and_no_reason_end_nothing(exclusion, which, text):
    exclusion.quarantine([A], "a" * 16, [])
    before = snapshot(exclusion.directory)
    with pytest.raises(UsageError) as caught:
        end(exclusion, **{which: text})
    assert (caught.value.refusal.code, caught.value.exit) == (Code.USAGE, Exit.USAGE)
    assert caught.value.refusal.where == f"pp4 hold clear --{which}"
    assert snapshot(exclusion.directory) == before


@pytest.mark.parametrize("gpu", [B, "", "GPU-1", "../gpu/x", f"{A}.lock", "\x00"])
def test_a_gpu_that_is_not_in_quarantine_is_refused_with_those_that_are(exclusion, gpu):
    before = snapshot(exclusion.directory)
    refusal = refused(end, exclusion, gpu, kind=UsageError)
    assert refusal.found == "no GPU in quarantine"
    assert snapshot(exclusion.directory) == before
    exclusion.quarantine([A], "a" * 16, [])
    refusal = refused(end, exclusion, gpu, kind=UsageError)
    assert (refusal.code, refusal.expected) == (Code.USAGE, f"a GPU in quarantine: {A}")
    assert exclusion.quarantine_path(A).exists()


def test_a_gpu_that_a_hold_has_is_not_cleared(exclusion):
    exclusion.quarantine([A], "a" * 16, [])
    write_hold(exclusion, "b" * 16, holder=me())
    with exclusion.locked([A]):
        refusal = refused(end, exclusion, kind=RefusedError)
    assert refusal.code is Code.HELD_BY
    assert "b" * 16 in refusal.found
    assert exclusion.quarantine_path(A).exists()
    assert cleared_lines(exclusion) == []


@pytest.mark.parametrize("stop", [False, True])
def test_a_survivor_that_is_seen_alive_keeps_the_quarantine(exclusion, stop):
    with living("rank 1") as survivor:
        exclusion.quarantine([A], "a" * 16, [str(survivor)])
        if stop:
            halt(survivor.pid)
        refusal = refused(end, exclusion, kind=RefusedError)
        assert refusal.code is Code.QUARANTINED
        state = "T (stopped)" if stop else "S (sleeping)"
        assert refusal.found == f"{survivor} in state {state}"
        assert refusal.next == f"ps -fp {survivor.pid}"
        assert exclusion.quarantine_path(A).exists()
        assert cleared_lines(exclusion) == []
        zombie(survivor)
        assert end(exclusion).survivors == (str(survivor),)
    assert not exclusion.quarantine_path(A).exists()


def test_a_survivor_that_only_its_books_or_its_mark_tell_keeps_it_too(exclusion):
    with living("rank 1") as registered, living(mark=MARKED) as marked:
        write_hold(exclusion, MARKED, gpus=[A], procs=[registered])
        exclusion.quarantine([A], MARKED, ["no process by its name"])
        refusal = refused(end, exclusion, kind=RefusedError)
        for owned in (registered, marked):
            assert f"(pid {owned.pid}, start {owned.start_token})" in refusal.found
        zombie(registered)
        assert f"pid {marked.pid}" in refused(end, exclusion, kind=RefusedError).found
        zombie(marked)
        end(exclusion)


def test_a_process_that_has_the_id_of_a_dead_one_does_not_keep_it(exclusion):
    exclusion.quarantine([A], "a" * 16, [str(reused())])
    write_hold(exclusion, "a" * 16, gpus=[A], procs=[reused(), dead()])
    end(exclusion)
    assert not exclusion.quarantine_path(A).exists()


def test_a_quarantine_of_an_earlier_boot_is_cleared_whoever_has_its_pids_now(exclusion):
    Exclusion(exclusion.directory, "private", "before").quarantine([A], "a" * 16, [str(me())])
    assert end(exclusion).survivors == (str(me()),)


def test_a_hold_of_an_earlier_boot_has_no_process_that_keeps_it(exclusion):
    write_hold(exclusion, "b" * 16, gpus=[A], boot="before", procs=[me("namesake")])
    exclusion.quarantine([A], "a" * 16, [])
    assert end(exclusion).hold == "a" * 16


@pytest.mark.parametrize("name", BROKEN)
def test_a_quarantine_that_cannot_be_read_can_be_cleared(exclusion, name):
    exclusion.quarantine_path(A).write_bytes(BROKEN[name])
    assert end(exclusion).hold == "unknown"
    assert not exclusion.quarantine_path(A).exists()
    (line,) = cleared_lines(exclusion)
    assert (line["detail"]["hold"], line["detail"]["fault"] != "") == ("unknown", True)


def test_a_link_in_the_place_of_a_quarantine_is_taken_away_and_not_what_it_names(
    tmp_path, exclusion
):
    (tmp_path / "precious").write_text("precious")
    exclusion.quarantine_path(A).symlink_to(tmp_path / "precious")
    end(exclusion)
    assert not os.path.lexists(exclusion.quarantine_path(A))
    assert (tmp_path / "precious").read_text() == "precious"


def test_a_record_that_was_changed_takes_no_more_lines(exclusion):
    for hold in ("a" * 16, "b" * 16):
        exclusion.quarantine([A], hold, [])
        end(exclusion)
    path = exclusion.directory / "gpu" / f"{A}.cleared.jsonl"
    path.write_bytes(path.read_bytes().replace(b"Ada", b"Bob", 1))
    changed = path.read_bytes()
    exclusion.quarantine([A], "c" * 16, [])
    refusal = refused(end, exclusion, kind=RefusedError)
    assert (refusal.code, refusal.where) == (Code.JOURNAL_CHAIN, shown(str(path)))
    assert exclusion.quarantine_path(A).exists()
    assert path.read_bytes() == changed
    subprocess.run(shlex.split(refusal.next), check=True)
    end(exclusion)
    assert [one["detail"]["hold"] for one in cleared_lines(exclusion)] == ["c" * 16]


def test_a_kill_at_any_step_leaves_no_end_without_its_record(exclusion):
    point = 1
    while True:
        before = len(cleared_lines(exclusion))
        exclusion.quarantine([A], "a" * 16, [])
        again = killed_at(lambda: end(exclusion), point, ("fsync", "rename", "unlink"))
        if not exclusion.quarantine_path(A).exists():
            assert len(cleared_lines(exclusion)) == before + 1
        if not again:
            break
        point += 1
    assert point > 4
    assert not exclusion.quarantine_path(A).exists()


@as_root
def test_another_user_goes_on_with_the_record(shared):
    exclusion = open_exclusion(shared / "host", shared / "state")
    exclusion.quarantine([A], "a" * 16, [])
    end(exclusion)
    exclusion.quarantine([A], "b" * 16, [])
    assert as_nobody(lambda: end(exclusion, operator="Bob").hold) == "b" * 16
    exclusion.quarantine([A], "c" * 16, [])
    end(exclusion)
    users = [one["detail"]["user"] for one in cleared_lines(exclusion)]
    assert users == [0, NOBODY, 0]
