"""Restore commands of a HOLD, kept on the host until they have been run.

Whoever dies in between leaves them behind; the next supervisor of the same user, or ``pp4 hold
recover``, runs them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import ValidationError

from pp4.clock import Deadline, SystemClock
from pp4.errors import Code, Refusal, RefusedError
from pp4.hold import durable
from pp4.hold.around import run_each
from pp4.hold.exclusion import Exclusion
from pp4.hold.interruption import undisturbed
from pp4.hold.trees import orphans_let_go
from pp4.receipts.canonical import dump, shown
from pp4.wire.holds import HostCommand

_NAME = "restore.json"
_MORE_S = 30.0
"""How much longer than the commands may take somebody else may be at them."""
_POLL_S = 0.05


def keep(directory: Path, commands: Sequence[HostCommand]) -> None:
    """Keep commands before the host is changed.

    Args:
        directory: of the HOLD, this user's own.
        commands: what puts the host back; where there are none, nothing is kept.

    Raises:
        RefusedError: ``UNWRITABLE``.
    """
    if commands:
        tree = [{"argv": list(one.argv), "limit_s": str(one.limit_s)} for one in commands]
        durable.replace(directory / _NAME, dump({"restore": tree}), 0o600)


def pending(directory: Path) -> bool:
    """Whether commands are kept in the directory of a HOLD that nobody has run."""
    return os.path.lexists(directory / _NAME)


def settle(directory: Path) -> tuple[str, ...]:
    """Run what is kept, once, whoever else comes for it; -> how each command ended.

    A signal that asks for an end waits for theirs, which their limits bound: one that was cut short
    leaves a service half started, and may be run again by nobody for long.

    Raises:
        RefusedError: what is kept cannot be read, or not be removed after it was run.
        TimedOutError: ``STEP_TIMEOUT``, somebody else is at it for longer than it may take.
    """
    path = directory / _NAME
    tree = durable.read_object(path)
    if tree is None:
        return ()
    commands = _read(path, tree)
    limit_s = sum(one.limit_s for one in commands) + _MORE_S
    with _alone(path, Deadline.after(SystemClock(), limit_s)), undisturbed():
        if durable.read_object(path) is None:
            # whoever was at it has run it
            return ()
        # what they start again is to live on: it is no part of the HOLD
        with orphans_let_go():
            told = run_each(commands, directory)
        durable.remove(path)
    return told


@contextlib.contextmanager
def _alone(path: Path, deadline: Deadline) -> Iterator[None]:
    """Keep others from a file that is there, which needs no room on the disk for another one."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        yield
        return
    try:
        while not _locked(descriptor):
            deadline.require(str(path), left="commands that somebody else runs")
            time.sleep(_POLL_S)
        yield
    finally:
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        # a file system without locks: twice does less harm than never
        return True
    return True


def _read(path: Path, tree: dict[str, object]) -> tuple[HostCommand, ...]:
    try:
        return tuple(
            HostCommand(argv=tuple(row["argv"]), limit_s=float(row["limit_s"]))
            for row in tree["restore"]  # type: ignore[attr-defined]
        )
    except (KeyError, TypeError, ValueError, ValidationError) as error:
        where, expected = str(path), "restore commands as a HOLD has kept them"
        again = f"put the host back by hand, then: rm {shlex.quote(where)}"
        refusal = Refusal(Code.UNREADABLE, shown(where), expected, "something else", next=again)
        raise RefusedError(refusal) from error


def settle_lost(holds: Path, exclusion: Exclusion, held: Sequence[str] = ()) -> tuple[str, ...]:
    """Run what earlier HOLDs of this user, which are over, have left; -> how each command ended.

    Under the locks of their GPUs: what is started again must not meet somebody else's HOLD.  Where
    another one has them, the commands stay for later, which is said.

    Args:
        holds: directories of this user's HOLDs.
        exclusion: the locks, and where registrations and tombstones are.
        held: GPUs whose locks this process has.

    Raises:
        RefusedError, TimedOutError: as :func:`settle`.
    """
    told: tuple[str, ...] = ()
    for path in sorted(holds.glob(f"*/{_NAME}")):
        public = exclusion.holds / path.parent.name
        if not (public / "closed.json").exists():
            continue
        with contextlib.ExitStack() as stack:
            try:
                gpus = [gpu for gpu in _gpus(public) if gpu not in held]
                if gpus:
                    stack.enter_context(exclusion.locked(gpus))
            except RefusedError as error:
                if error.refusal.code is not Code.HELD_BY:
                    raise
                told += (f"HOLD {public.name}: later, since {error.refusal.where} is held",)
                continue
            told += settle(path.parent)
    return told


def _gpus(public: Path) -> list[str]:
    """The GPUs of a HOLD as its registration names them."""
    gpus = (durable.read_object(public / "registration.json") or {}).get("gpus")
    return [str(gpu) for gpu in gpus] if isinstance(gpus, list) else []
