"""A HOLD whose holder died with hops: not buried before their far ends are proven over."""

import json
import os
from dataclasses import replace

import pytest

from pp4.clock import SystemClock
from pp4.errors import Code, RefusedError
from pp4.hold import hop_ends, records, sweep
from pp4.hold.clearing import clear
from pp4.hold.guard import ENDED, GUARD
from pp4.hold.hop_books import Ended, read_hop, read_hops, write_book
from pp4.hold.hop_sweep import hops_left
from pp4.hold.local import open_local
from pp4.hold.processes import Owned
from pp4.transport.local import LocalTransport
from pp4.wire.holds import Open, Parent
from pp4.wire.hops import FarLogin, Recorded
from tests.unit.hold.holds import GPUS, NOBODY, held, pair_admission, private
from tests.unit.hold.written import dead, write_hold

ID, FAR, ORIGIN = "a" * 16, "b" * 16, "c" * 16
LOGIN = FarLogin(
    address="host.invalid", user="u", identity_file="/no/such/key", host_key="ssh-ed25519 AAAA"
)
UNPROVEN = "HOLD of unknown id of hop-engine at u@host.invalid:22, unproven"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Neither processes nor further hosts are waited for: none of them comes."""
    monkeypatch.setattr(sweep, "_SETTLE_S", 0.3)
    monkeypatch.setattr(hop_ends, "MORE_S", 0.0)


def abandoned(exclusion, **more):
    """A HOLD whose holder is dead; -> its directory."""
    directory = write_hold(exclusion, ID, **more)
    exclusion.raise_fence(GPUS, 1)
    return directory


def hop_of(directory, *, asked=True, ended=None):
    """Write the books of one hop."""
    parent = Parent(hold=ID, fence=1, hop=1, origin=ORIGIN)
    wanted = Open(
        command="pair-qualify kernels", source_digest="0" * 64, gpus=GPUS, coordinator="me",
        transport="ssh", ttl_s=0.5, bound_s=60.0, parent=parent,
    )  # fmt: skip
    write_book(directory, 1, Recorded(hop=1, label="hop-engine", login=LOGIN, asked=wanted))
    book = read_hop(directory, 1)
    if asked:
        book.say_asked()
    if ended:
        book.say_ended(Ended(how=ended))


def refused(root, **more):
    with pytest.raises(RefusedError) as raised, held(root, **more):
        pass
    return raised.value.refusal


def closed(directory):
    path = directory / "closed.json"
    return json.loads(path.read_text())["why"] if path.exists() else None


def test_a_far_end_that_is_not_proven_over_keeps_the_gpus_back(tmp_path):
    directory = abandoned(private(tmp_path))
    hop_of(directory)
    refusal = refused(tmp_path)
    assert refusal.code is Code.QUARANTINED
    assert UNPROVEN in refusal.found
    assert closed(directory) is None
    # no more by whoever asks again
    assert refused(tmp_path).code is Code.QUARANTINED
    for gpu in GPUS:
        clear(private(tmp_path), gpu, "op", "looked", SystemClock())
    with held(tmp_path):
        assert closed(directory) == "abandoned"


def test_an_operator_vouches_for_what_the_quarantine_named_and_for_no_more(tmp_path):
    guard = Owned(dead().pid, "1", f"{GUARD}a")
    directory = abandoned(private(tmp_path), procs=[guard])
    refused(tmp_path)
    for gpu in GPUS:
        clear(private(tmp_path), gpu, "op", "looked", SystemClock())
    # a hop that nobody had spoken of
    hop_of(directory)
    assert UNPROVEN in refused(tmp_path).found
    assert closed(directory) is None


def test_what_is_unproven_here_and_elsewhere_is_named_at_once(tmp_path):
    guard = Owned(dead().pid, "1", f"{GUARD}a")
    hop_of(abandoned(private(tmp_path), procs=[guard]))
    found = refused(tmp_path).found
    assert f"what {guard} had started" in found
    assert UNPROVEN in found


@pytest.mark.parametrize("books", [{"asked": False}, {"ended": "never"}, {"ended": "refused"}])
def test_what_was_never_asked_for_or_is_proven_over_keeps_nothing_back(tmp_path, books):
    directory = abandoned(private(tmp_path))
    hop_of(directory, **books)
    with held(tmp_path):
        assert closed(directory) == "abandoned"


def test_a_restart_of_this_host_says_nothing_of_a_further_one(tmp_path):
    directory = abandoned(private(tmp_path), boot="first")
    hop_of(directory)
    assert UNPROVEN in refused(tmp_path, exclusion=private(tmp_path, "second")).found
    # that quarantine is void after another restart, and is nobody's word for the further host
    third = private(tmp_path, "third")
    assert UNPROVEN in refused(tmp_path, exclusion=third).found
    assert closed(directory) is None
    for gpu in GPUS:
        clear(third, gpu, "op", "looked", SystemClock())
    with held(tmp_path, exclusion=third):
        assert closed(directory) == "host_reboot"


def test_a_book_that_cannot_be_read_proves_nothing(tmp_path):
    directory = abandoned(private(tmp_path))
    hop_of(directory)
    (directory / "hop-1.granted.json").write_text("{")
    assert "whose books cannot be read" in refused(tmp_path).found


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_only_its_user_can_prove_a_hop_over(tmp_path):
    guard = Owned(dead().pid, "1", f"{GUARD}hop-engine")
    exclusion = private(tmp_path)
    directory = abandoned(exclusion, procs=[guard])
    (directory / "work").mkdir()
    (directory / "work" / f"{GUARD}hop-engine{ENDED}").touch()
    # a book that leads to wherever its writer wants is not even read
    hop_of(directory, ended="never")
    os.chown(directory, NOBODY, NOBODY)
    assert f"only user {os.geteuid()} knew where" in refused(tmp_path).found


def test_books_that_are_gone_prove_nothing(tmp_path):
    exclusion = private(tmp_path)
    abandoned(exclusion, procs=[Owned(dead().pid, "1", f"{GUARD}hop-engine")])
    (record,) = records.read_records(exclusion.holds)
    elsewhere = {"journal": str(tmp_path / "gone" / "journal.jsonl")}
    moved = replace(record, registration=record.registration.model_copy(update=elsewhere))
    assert hops_left(moved) == (
        f"hop-engine of HOLD {ID}, unproven: only user {os.geteuid()} knew where",
    )


def test_of_a_child_no_gpu_is_asked_for_and_no_lock_kept(tmp_path):
    """The lock of children is held while one is opened, and the GPUs' are not taken at all."""
    exclusion = private(tmp_path)
    with (
        held(tmp_path) as own,
        child_of(tmp_path, exclusion) as child,
        exclusion.locked([f"{gpu}.{ORIGIN}" for gpu in GPUS]),
    ):
        assert (own.fence, child.fence) == (1, 5)
    assert read_hops(child.directory.parent) == ()


def child_of(root, exclusion):
    """A child of another host's HOLD."""
    parent = records.Parent(hold=ID, fence="5", hop=1, origin=ORIGIN)
    return open_local(
        pair_admission(), LocalTransport(), SystemClock(), gpus=GPUS, exclusion=exclusion,
        state_dir=root / "state", parent=parent,
    )  # fmt: skip


def test_a_void_quarantine_goes_under_the_locks_of_the_gpus_and_not_by_a_child(tmp_path):
    private(tmp_path, "before").quarantine(GPUS, "1" * 16, ["x"])
    after = private(tmp_path, "after")
    paths = [after.quarantine_path(gpu) for gpu in GPUS]
    with child_of(tmp_path, after):
        assert all(path.exists() for path in paths)
    with held(tmp_path, exclusion=after):
        assert not any(path.exists() for path in paths)


def test_an_earlier_version_reads_the_registration_of_whatever_is_no_child(tmp_path):
    with held(tmp_path) as hold:
        registered = json.loads((hold.public / "registration.json").read_text())
    assert "parent" not in registered
