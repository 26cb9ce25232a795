"""A HOLD of GPUs of this machine, in the process that holds: that of a supervisor.

What others must know of it (registration, processes, tombstone) lies in ``holds/<id>`` of the
exclusion's directory, what is its user's alone (journal, work) in ``holds/<id>`` of the state
directory; where the exclusion is private these are the same.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from pp4.clock import Clock, Deadline, SystemClock
from pp4.errors import BadInputError, Code, Pp4Error, Refusal, RefusedError, UncleanError
from pp4.hold import processes
from pp4.hold.children import inherited_fence, lock_children
from pp4.hold.durable import flush_directory, unwritable
from pp4.hold.exclusion import Exclusion, require_gpus
from pp4.hold.interruption import ended, undisturbed
from pp4.hold.journal import Journal
from pp4.hold.local_hold import LocalHold
from pp4.hold.open import Grant, OpenHold
from pp4.hold.places import own_directory
from pp4.hold.records import (
    Coordinator,
    Parent,
    Record,
    Registration,
    highest_granted,
    read_records,
    write,
)
from pp4.hold.sweep import held_by, moment, sweep
from pp4.receipts.admission import Admission, Command
from pp4.transport.interface import Transport

BOUND_S = 5400.0
"""Longest life of a HOLD in seconds."""
_RESERVE = 16 << 20
_NAME_S = 2.0
_POLL_S = 0.02


@contextlib.contextmanager
def open_local(
    admission: Admission,
    transport: Transport,
    clock: Clock,
    *,
    gpus: Sequence[str],
    exclusion: Exclusion,
    state_dir: Path,
    bound_s: float = BOUND_S,
    rehearsal: bool = False,
    asked_by: str | None = None,
    parent: Parent | None = None,
) -> Iterator[OpenHold]:
    """Hold one GPU or two of this machine; at the end prove that nothing is left, and let go.

    Args:
        admission: the evidence that opens it.
        transport: the way to this machine.
        clock: where deadlines come from; the bound counts its boot time.
        gpus: UUIDs, rank 0 first; locks are taken in the order of the UUIDs whatever this is.
        exclusion: the locks, fences and registrations.
        state_dir: this user's journals.
        bound_s: seconds after which nothing starts any more, at most 5400.
        rehearsal: whether the GPUs are held as names only, and the admission is a rehearsal's.
        asked_by: the coordinator, where that is somebody else; for people.
        parent: the HOLD of another host that this one is a child of: the GPUs are that one's.

    Raises:
        BadInputError: GPUs or bound out of their domain.
        RefusedError: ``HELD_BY`` with the HOLD, since when, and its process; ``QUARANTINED``;
            ``FENCE_LOST``; ``EXCLUSION``; ``WRONG_KIND``: an admission that opens no HOLD;
            ``UNWRITABLE``, ``UNREADABLE``; of a child, ``STALE_FENCE`` and ``EXISTS``.  Nothing
            was started then.
        UncleanError: ``SURVIVOR``: something that was started is still alive, its GPUs are in
            quarantine; ``UNWRITABLE``: the end could not be recorded, or the work not removed.
    """
    _require(admission, gpus, bound_s, rehearsal)
    for directory in (state_dir, state_dir / "holds"):
        own_directory(directory)
    for directory in (state_dir, exclusion.directory):
        _require_room(directory)
    with contextlib.ExitStack() as stack:
        if parent is None:
            _lock(stack, exclusion, gpus, clock)
        else:
            lock_children(stack, exclusion, gpus, parent.origin)
        grant = _grant(exclusion, gpus, clock, bound_s, parent)
        hold: LocalHold | None = None
        why = "cancelled"
        try:
            # a signal in between would leave a registration that nobody takes back
            with undisturbed():
                hold = _register(
                    admission, transport, clock, grant, exclusion, state_dir, asked_by, parent
                )
            if parent is not None:
                # what it has from here on is its parent's
                stack.close()
            yield hold
            why = "done"
        except Exception:
            why = "failed"
            raise
        finally:
            if hold is not None:
                ended(partial(hold.close, why), again=why != "cancelled")


def _require(admission: Admission, gpus: Sequence[str], bound_s: float, rehearsal: bool) -> None:
    rehearses = admission.command is Command.REHEARSAL
    if admission.command is Command.WORKER_ON or rehearses is not rehearsal:
        expected = "the admission of a command that opens a HOLD"
        raise RefusedError(Refusal(Code.WRONG_KIND, "HOLD", expected, str(admission.command)))
    require_gpus(gpus)
    if not 0 < bound_s <= BOUND_S:
        raise BadInputError.of("bound_s", f"above 0 and at most {BOUND_S:g} s", f"{bound_s} s")


def _require_room(directory: Path) -> None:
    """Refuse before the start what would fail in the middle."""
    try:
        status = os.statvfs(directory)
    except OSError as error:
        raise unwritable(directory, error) from error
    free = status.f_bavail * status.f_frsize
    if free < _RESERVE:
        where = str(directory)
        expected = f"at least {_RESERVE} bytes free for journals and records"
        raise RefusedError(Refusal(Code.UNWRITABLE, where, expected, f"{free} bytes free"))


def _lock(
    stack: contextlib.ExitStack, exclusion: Exclusion, gpus: Sequence[str], clock: Clock
) -> None:
    """Take both locks, or say who has the one that is taken."""
    try:
        stack.enter_context(exclusion.locked(gpus))
    except RefusedError as error:
        if error.refusal.code is not Code.HELD_BY:
            raise
        raise _named(exclusion, error, clock) from error


def _named(exclusion: Exclusion, error: RefusedError, clock: Clock) -> RefusedError:
    """Name the holder; one that is just opening gets a moment to register."""
    gpu = error.refusal.where
    deadline = Deadline.after(SystemClock(), _NAME_S)
    while not deadline.expired():
        try:
            records = read_records(exclusion.holds)
        except Pp4Error:
            break
        for record in records:
            found = record.registration
            open_here = not record.closed and found.boot_id == exclusion.boot_id
            # of two, the one whose coordinator died waits for a sweep
            if open_here and gpu in found.names and record.coordinator.alive():
                return held_by(record, gpu, clock)
        time.sleep(_POLL_S)
    return RefusedError(replace(error.refusal, found="a lock whose holder has not registered yet"))


def _next_fence(
    exclusion: Exclusion, gpus: Sequence[str], records: Sequence[Record], clock: Clock
) -> int:
    """Take a fence that was never granted, after proof that nobody else's work is left."""
    exclusion.drop_void(gpus)
    sweep(exclusion, gpus, records, clock)
    fence = 1 + max(exclusion.highest_fence(gpu, highest_granted(records, gpu)) for gpu in gpus)
    exclusion.raise_fence(gpus, fence)
    return fence


def _grant(
    exclusion: Exclusion,
    gpus: Sequence[str],
    clock: Clock,
    bound_s: float,
    parent: Parent | None,
) -> Grant:
    """Grant GPUs whose locks are held, or a child that needs none."""
    exclusion.require_usable(gpus)
    records = read_records(exclusion.holds)
    if parent is None:
        fence = _next_fence(exclusion, gpus, records, clock)
    else:
        fence = inherited_fence(exclusion, gpus, parent, records, clock)
    return Grant(
        hold_id=secrets.token_hex(8),
        fence=fence,
        nonce=secrets.token_hex(16),
        exclusion=exclusion.kind,
        boot_id=exclusion.boot_id,
        gpus=tuple(gpus),
        opened_at=clock.wall(),
        deadline=Deadline.after(clock, bound_s),
    )


def _register(
    admission: Admission,
    transport: Transport,
    clock: Clock,
    grant: Grant,
    exclusion: Exclusion,
    state_dir: Path,
    asked_by: str | None,
    parent: Parent | None = None,
) -> LocalHold:
    """Write the registration, then open the journals.

    Raises:
        RefusedError: ``UNWRITABLE``; nothing of the HOLD is left but its fence.
    """
    public = exclusion.holds / grant.hold_id
    own = state_dir / "holds" / grant.hold_id
    with contextlib.ExitStack() as undo:
        for directory in (public, own):
            undo.callback(shutil.rmtree, directory, ignore_errors=True)
        try:
            _make(public, 0o755)
            if own != public:
                _make(own, 0o700)
            _make(own / "work", 0o700)
            registered = _registration(admission, transport, grant, own, asked_by, parent)
            write(public / "registration.json", registered)
            books = Journal(public / "procs.jsonl")
            undo.callback(books.close)
            # for every user, whatever the umask
            (public / "procs.jsonl").chmod(0o644)
            journal = Journal(own / "journal.jsonl")
        except UncleanError as error:
            # nothing was started that could still run
            raise RefusedError(replace(error.refusal, left="nothing")) from error
        except OSError as error:
            raise unwritable(public, error) from error
        undo.pop_all()
    return LocalHold(admission, transport, clock, grant, own / "work", journal, books, exclusion)


def _make(directory: Path, mode: int) -> None:
    try:
        directory.mkdir(0o700)
        directory.chmod(mode)
        flush_directory(directory.parent)
    except OSError as error:
        raise unwritable(directory, error, "a new directory") from error


def _registration(
    admission: Admission,
    transport: Transport,
    grant: Grant,
    own: Path,
    asked_by: str | None,
    parent: Parent | None,
) -> Registration:
    deadline = grant.deadline
    if deadline is None or grant.boot_id is None:
        raise ValueError("a HOLD of GPUs has a deadline and a boot")
    token = processes.start_token(os.getpid())
    if token is None:
        where = f"/proc/{os.getpid()}/stat"
        raise RefusedError(Refusal(Code.UNREADABLE, where, "this process's start token", "none"))
    return Registration(
        hold=grant.hold_id,
        command=str(admission.command),
        fence=str(grant.fence),
        gpus=grant.gpus,
        coordinator=Coordinator(
            pid=os.getpid(),
            start_token=token,
            pid_namespace=processes.namespace(),
            uid=os.geteuid(),
        ),
        nonce_sha256=hashlib.sha256(grant.nonce.encode()).hexdigest(),
        source_digest=admission.source_digest,
        transport=transport.name,
        asked_by=asked_by,
        exclusion=grant.exclusion,
        boot_id=grant.boot_id,
        opened_at=moment(grant.opened_at),
        opened_boottime_ns=str(deadline.start_ns),
        deadline_boottime_ns=str(deadline.start_ns + deadline.limit_ns),
        journal=str(own / "journal.jsonl"),
        parent=parent,
    )
