"""Does the grant of a HOLD that was handed over allow this worker to run?"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final, NoReturn

from pp4.clock import Clock
from pp4.errors import Code, Pp4Error, Refusal, RefusedError
from pp4.receipts.canonical import parse, read_file, shown
from pp4.wire.holds import Granted
from pp4.wire.serving import Serve

_REGISTRATION: Final = "registration.json"
_TOMBSTONES: Final = ("closing.json", "closed.json")


def require_grant(granted: Granted, serve: Serve, boot_id: str, clock: Clock) -> None:
    """Refuse a grant that does not cover this worker here and now.

    Args:
        granted: of an open HOLD.
        serve: the settings.
        boot_id: of the running system.
        clock: whose boot time the deadline is of.

    Raises:
        RefusedError: ``SUBJECT_MISMATCH``, another boot or other GPUs; ``WRONG_KIND``, a HOLD of
            names for real GPUs; ``DEADLINE``.
    """
    where = f"HOLD {shown(granted.hold, 40)}"
    if granted.boot_id != boot_id:
        _refuse(Code.SUBJECT_MISMATCH, where, f"a HOLD of this boot, {boot_id}", granted.boot_id)
    if serve.device == "gpu":
        if granted.rehearsal:
            _refuse(Code.WRONG_KIND, where, "a HOLD of GPUs", "one of a rehearsal")
        other = [gpu for gpu in serve.gpus if gpu not in granted.gpus]
        if other:
            expected = f"GPUs that it holds: {', '.join(granted.gpus) or 'none'}"
            _refuse(Code.SUBJECT_MISMATCH, where, expected, ", ".join(other))
    require_time(granted, clock)


def require_time(granted: Granted, clock: Clock) -> None:
    """Refuse a HOLD whose deadline has passed.

    Raises:
        RefusedError: ``DEADLINE``.
    """
    late_ns = clock.boottime_ns() - granted.deadline_boottime_ns
    if late_ns >= 0:
        where, found = f"HOLD {shown(granted.hold, 40)}", f"{late_ns / 1e9:g} s past it"
        _refuse(Code.DEADLINE, where, "a HOLD before its deadline", found)


def require_registered(granted: Granted, source_digest: str) -> None:
    """Refuse a grant that its host does not know, or whose HOLD is closing, closed or abandoned.

    What the host wrote down is read, no lock is looked at: the supervisor that has them is looked
    for, and ends this worker, a step's, with the HOLD.

    Args:
        granted: what was handed over.
        source_digest: of the source that runs.

    Raises:
        RefusedError: ``UNKNOWN_HOLD``; ``STALE_FENCE``.
    """
    where, public = f"HOLD {shown(granted.hold, 40)}", Path(granted.public)
    for name in _TOMBSTONES:
        if (public / name).exists():
            _refuse(Code.UNKNOWN_HOLD, where, "an open HOLD", f"{name} in {shown(str(public))}")
    path = public / _REGISTRATION
    try:
        tree = parse(read_file(path), shown(str(path)))
    except Pp4Error as error:
        _refuse(Code.UNKNOWN_HOLD, where, "its registration", error.refusal.found)
    written = tree if isinstance(tree, dict) else {}
    if written.get("fence") != str(granted.fence):
        expected, found = f"fence {granted.fence}", f"fence {shown(written.get('fence'), 40)}"
        _refuse(Code.STALE_FENCE, where, expected, found)
    wanted = {
        "hold": granted.hold,
        "boot_id": granted.boot_id,
        "nonce_sha256": hashlib.sha256(granted.nonce.encode()).hexdigest(),
        "deadline_boottime_ns": str(granted.deadline_boottime_ns),
        "gpus": list(granted.gpus),
        "source_digest": source_digest,
    }
    unlike = [name for name, value in wanted.items() if written.get(name) != value]
    if unlike:
        found = f"another {', another '.join(unlike)}"
        _refuse(Code.UNKNOWN_HOLD, where, f"what {shown(str(path))} says", found)
    holder = written.get("coordinator")
    holder = holder if isinstance(holder, dict) else {}
    if not _runs(holder.get("pid"), holder.get("start_token")):
        # the kernel has let go of its locks: the GPUs may be somebody else's by now
        found = f"none under process id {shown(holder.get('pid'), 40)}"
        _refuse(Code.UNKNOWN_HOLD, where, "the supervisor that holds its locks", found)


def _runs(pid: object, start_token: object) -> bool:
    """Whether the very process runs that had this start token; a zombie holds nothing."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (OSError, ValueError):
        return False
    # the name in parentheses may hold any bytes; the state is field 3, the token field 22
    state, *fields = stat.rpartition(b")")[2].split()
    return state not in (b"Z", b"X") and fields[18].decode() == start_token


def _refuse(code: Code, where: str, expected: str, found: str) -> NoReturn:
    raise RefusedError(Refusal(code, where, expected, found, next="pp4 hold status"))
