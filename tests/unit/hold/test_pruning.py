"""Old records go, and nothing that is still needed."""

import os
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pp4.errors import BadInputError, Code
from pp4.hold.exclusion import Exclusion, open_exclusion
from pp4.hold.places import own_directory
from pp4.hold.records import highest_granted, read_records
from pp4.hold.restoring import keep, settle
from pp4.hold.upkeep import prune
from pp4.wire.holds import HostCommand
from tests.unit.hold.holds import (
    GPUS,
    NOBODY,
    as_nobody,
    private,
)
from tests.unit.hold.looking import BROKEN, DAY, NOW, A, B, clock, end, killed_at, refused
from tests.unit.hold.written import (
    reused,
    snapshot,
    write_hold,
)

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a host's directory")


def closed_days_ago(days):
    return (NOW - days * DAY).strftime("%Y-%m-%dT%H:%M:%SZ")


def pruned(exclusion, days=30, dry_run=False, state_dir=None):
    found = prune(exclusion, state_dir or exclusion.directory, days * DAY, clock(), dry_run)
    return sorted(path.name for path in found)


def left(exclusion):
    return sorted(path.name for path in exclusion.holds.iterdir())


def test_what_is_over_for_long_goes_and_the_rest_stays(exclusion):
    write_hold(exclusion, "1" * 16, fence=1, closed=closed_days_ago(31))
    write_hold(exclusion, "2" * 16, fence=2, closed=closed_days_ago(30))
    write_hold(exclusion, "3" * 16, fence=3)
    write_hold(exclusion, "4" * 16, fence=4, survivors=[])
    write_hold(exclusion, "5" * 16, fence=5, boot="before")
    write_hold(exclusion, "6" * 16, fence=6, closed=closed_days_ago(-1))
    write_hold(exclusion, "7" * 16, fence=7, closed=closed_days_ago(99))
    exclusion.raise_fence(GPUS, 7)
    exclusion.quarantine([A], "4" * 16, [])
    before = snapshot(exclusion.directory)
    assert pruned(exclusion, dry_run=True) == ["1" * 16]
    assert snapshot(exclusion.directory) == before
    assert pruned(exclusion) == ["1" * 16]
    gone = exclusion.holds / ("1" * 16)
    with_locks = {exclusion.lock_path(gpu): b"" for gpu in GPUS}
    expected = {p: v for p, v in before.items() if p != gone and gone not in p.parents}
    assert snapshot(exclusion.directory) == {**expected, **with_locks}
    assert pruned(exclusion) == []


def test_a_lost_fence_is_noticed_after_everything_old_is_gone(exclusion):
    for fence in range(1, 6):
        write_hold(exclusion, f"{fence}" * 16, fence=fence, closed=closed_days_ago(99))
    exclusion.raise_fence(GPUS, 5)
    assert len(pruned(exclusion)) == 4
    exclusion.fence_path(A).unlink()
    records = read_records(exclusion.holds)
    refusal = refused(exclusion.highest_fence, A, highest_granted(records, A))
    assert refusal.code is Code.FENCE_LOST
    assert '"fence":"5"' in refusal.next


THIRD = A.replace("1", "3")
ages = st.one_of(st.none(), st.integers(0, 60))
some_holds = st.lists(
    st.tuples(ages, st.sampled_from([[A], [B], [A, B], [B, THIRD]]), st.integers(1, 9)), max_size=8
)


@given(some_holds, st.integers(0, 60))
def test_whatever_goes_the_highest_fence_of_each_gpu_stays(tmp_path_factory, holds, days):
    exclusion = private(tmp_path_factory.mktemp("prune"))
    holder = reused()
    for number, (age, gpus, fence) in enumerate(holds):
        closed = None if age is None else closed_days_ago(age)
        write_hold(
            exclusion, f"{number:016x}", gpus=gpus, fence=fence, holder=holder, closed=closed
        )
    granted = {gpu: highest_granted(read_records(exclusion.holds), gpu) for gpu in (A, B, THIRD)}
    would = pruned(exclusion, days, dry_run=True)
    gone = pruned(exclusion, days)
    assert gone == would
    after = read_records(exclusion.holds)
    assert {gpu: highest_granted(after, gpu) for gpu in granted} == granted
    for number, (age, gpus, fence) in enumerate(holds):
        highest = any(granted[gpu] == fence for gpu in gpus)
        old = age is not None and age > days
        assert (f"{number:016x}" in gone) == (old and not highest)
    assert sorted([*gone, *left(exclusion)]) == [f"{n:016x}" for n in range(len(holds))]


def test_a_hold_that_a_quarantine_names_stays(exclusion):
    write_hold(exclusion, "1" * 16, fence=1, closed=closed_days_ago(99))
    write_hold(exclusion, "2" * 16, fence=2, closed=closed_days_ago(99))
    exclusion.quarantine([B], "1" * 16, ["x"])
    assert pruned(exclusion) == []
    end(exclusion, B)
    assert pruned(exclusion) == ["1" * 16]


def test_a_hold_whose_host_was_not_put_back_stays(exclusion):
    directory = write_hold(exclusion, "a" * 16, fence=1, closed=closed_days_ago(99))
    write_hold(exclusion, "b" * 16, fence=2, closed=closed_days_ago(99))
    keep(directory, [HostCommand(argv=("true",), limit_s=5.0)])
    assert pruned(exclusion) == []
    assert settle(directory) == ("true: done",)
    assert pruned(exclusion) == ["a" * 16]


def test_a_hold_whose_gpus_are_held_goes_the_next_time(exclusion):
    write_hold(exclusion, "1" * 16, fence=1, closed=closed_days_ago(99))
    write_hold(exclusion, "2" * 16, fence=2, closed=closed_days_ago(99))
    with exclusion.locked([B]):
        assert pruned(exclusion) == []
        assert left(exclusion) == ["1" * 16, "2" * 16]
    assert pruned(exclusion) == ["1" * 16]


class Watched(Exclusion):
    """Locks that see, at their end, what the next holder would read."""

    @contextmanager
    def locked(self, gpus):
        with super().locked(gpus):
            yield
            SEEN.append([record.directory.name for record in read_records(self.holds)])


SEEN = []


def test_under_the_locks_a_hold_goes_in_one_step(exclusion):
    """Whoever reads records has a lock, and must not meet a HOLD without its tombstone."""
    write_hold(exclusion, "1" * 16, fence=1, closed=closed_days_ago(99))
    write_hold(exclusion, "2" * 16, fence=2, closed=closed_days_ago(99))
    SEEN.clear()
    assert pruned(Watched(exclusion.directory, "private", exclusion.boot_id)) == ["1" * 16]
    assert SEEN == [["2" * 16]]


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("file", ["registration.json", "closed.json"])
def test_what_cannot_be_read_stays(exclusion, name, file):
    directory = write_hold(exclusion, "1" * 16, fence=1, closed=closed_days_ago(99))
    write_hold(exclusion, "2" * 16, fence=2, closed=closed_days_ago(99))
    (directory / file).write_bytes(BROKEN[name])
    assert pruned(exclusion) == []
    assert left(exclusion) == ["1" * 16, "2" * 16]


def test_no_link_is_followed(tmp_path, exclusion):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("precious")
    old = write_hold(exclusion, "1" * 16, fence=1, closed=closed_days_ago(99))
    write_hold(exclusion, "2" * 16, fence=2, closed=closed_days_ago(99))
    (old / "work").mkdir()
    (old / "work" / "link").symlink_to(tmp_path / "precious")
    (old / "link").symlink_to(tmp_path / "precious")
    (exclusion.holds / "linked").symlink_to(old)
    assert pruned(exclusion) == ["1" * 16]
    assert (tmp_path / "precious" / "file").read_text() == "precious"
    assert left(exclusion) == ["2" * 16, "linked"]


@as_root
def test_of_a_host_a_user_removes_its_own_with_their_journals(shared):
    exclusion = open_exclusion(shared / "host", shared / "state")
    own_directory(shared / "state")
    for number in (1, 2, 3):
        old = closed_days_ago(99)
        write_hold(
            exclusion, f"{number}" * 16, fence=number, closed=old, state_dir=shared / "state"
        )
    os.chown(exclusion.holds / ("2" * 16), NOBODY, NOBODY)
    assert as_nobody(lambda: pruned(exclusion, dry_run=True, state_dir=Path("/nowhere"))) == [
        "2" * 16
    ]
    found = prune(exclusion, shared / "state", 30 * DAY, clock())
    name = "1" * 16
    assert found == (shared / "state" / "holds" / name, exclusion.holds / name)
    assert not any(path.exists() for path in found)
    assert left(exclusion) == ["2" * 16, "3" * 16]
    assert as_nobody(lambda: pruned(exclusion, state_dir=Path("/nowhere"))) == ["2" * 16]


def test_a_kill_at_any_step_leaves_no_hold_that_looks_open(exclusion):
    write_hold(exclusion, "f" * 16, fence=99, closed=closed_days_ago(99))
    point = 1
    while True:
        old = write_hold(exclusion, "1" * 16, closed=closed_days_ago(99), survivors=[])
        (old / "work").mkdir(exist_ok=True)
        (old / "work" / "file").touch()
        again = killed_at(lambda: pruned(exclusion), point, ("fsync", "unlink", "rmdir"))
        assert all(record.closed for record in read_records(exclusion.holds))
        # what a kill has left goes with the next one, but for an empty directory
        pruned(exclusion)
        assert not old.exists() or list(old.iterdir()) == []
        if not again:
            break
        point += 1
    assert point > 5
    assert not old.exists()


def test_a_span_has_to_be_one(exclusion):
    with pytest.raises(BadInputError):
        pruned(exclusion, -1)
    write_hold(exclusion, "1" * 16, closed=closed_days_ago(99))
    assert prune(exclusion, exclusion.directory, timedelta.max, clock()) == ()
