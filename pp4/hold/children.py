"""Children: HOLDs of this host that belong to a HOLD of another one and run under its fence.

A child takes no GPU: its parent has them, on its own host, and nobody may open the next parent
before this one and all of its children are proven over.  What is kept here is who came last: for
each GPU of an origin the highest fence that was seen, and nothing is granted below it.

``python -m pp4.hold.children HOLD FENCE HOP ORIGIN GPU...`` says as JSON which child the hop of a
HOLD has opened here.  Where it has opened none, none can be opened for it from then on.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from pp4.clock import Clock, Deadline, SystemClock
from pp4.config import load_settings
from pp4.errors import Code, Exit, Pp4Error, Refusal, RefusedError, UsageError
from pp4.hold.durable import read_object, remove, replace_object, unwritable
from pp4.hold.exclusion import Exclusion, open_exclusion, require_gpus
from pp4.hold.records import Parent, Record, child_name, highest_granted, read_records
from pp4.hold.sweep import sweep
from pp4.receipts.canonical import shown
from pp4.wire.hops import Child

_LOCK_S = 30.0
"""How long another child of the same origin may be at its own beginning."""
_POLL_S = 0.05
_ID = re.compile(r"[0-9a-f]{16}", re.ASCII)
_NUMBER = re.compile(r"[1-9][0-9]{0,18}", re.ASCII)


def origin_of(exclusion: Exclusion) -> str:
    """The name of a directory of fences among all hosts; made when it is first asked for.

    Raises:
        RefusedError: ``EXCLUSION``: what is there is none; ``UNREADABLE``; ``UNWRITABLE``.
    """
    path = exclusion.directory / "fence" / ".origin"
    tree = read_object(path)
    if tree is None:
        mine = path.with_name(f".origin.{secrets.token_hex(8)}")
        replace_object(mine, {"origin": secrets.token_hex(8)}, 0o644)
        try:
            # of two who make it at once the first one wins
            with contextlib.suppress(FileExistsError):
                os.link(mine, path)
        except OSError as error:
            raise unwritable(path, error) from error
        finally:
            remove(mine)
        tree = read_object(path) or {}
    origin = tree.get("origin")
    if not isinstance(origin, str) or not _ID.fullmatch(origin):
        where, found = shown(str(path)), shown(tree)
        raise RefusedError(Refusal(Code.EXCLUSION, where, "the name of this directory", found))
    return origin


def lock_children(
    stack: contextlib.ExitStack, exclusion: Exclusion, gpus: Sequence[str], origin: str
) -> None:
    """Keep other children of these GPUs from beginning or being buried meanwhile.

    Raises:
        RefusedError: ``HELD_BY``: another one does not get to an end; ``EXCLUSION``.
    """
    deadline = Deadline.after(SystemClock(), _LOCK_S)
    names = [child_name(gpu, origin) for gpu in gpus]
    while True:
        try:
            stack.enter_context(exclusion.locked(names))
        except RefusedError as error:
            if error.refusal.code is not Code.HELD_BY or deadline.expired():
                raise
            time.sleep(_POLL_S)
        else:
            return


def inherited_fence(
    exclusion: Exclusion,
    gpus: Sequence[str],
    parent: Parent,
    records: Sequence[Record],
    clock: Clock,
) -> int:
    """Take over the fence of a parent; only under the lock of its children.

    Args:
        exclusion: where the child will be registered.
        gpus: the GPUs of the parent.
        parent: the HOLD on the other host, and the hop.
        records: every HOLD of this host.
        clock: for times of day in tombstones.

    Raises:
        RefusedError: ``STALE_FENCE``: a later parent was here, or the hop was given up; nothing
            is stored then.  ``EXISTS``: the hop has a child.  ``HELD_BY``, ``QUARANTINED``: a child
            of an earlier parent is not proven over.  ``FENCE_LOST``, ``UNWRITABLE``.
    """
    fence = int(parent.fence)
    names = [child_name(gpu, parent.origin) for gpu in gpus]
    seen = max(exclusion.highest_fence(one, highest_granted(records, one)) for one in names)
    if fence < seen:
        expected, found = f"a fence of at least {seen}", f"fence {fence} of {parent}"
        raise RefusedError(Refusal(Code.STALE_FENCE, "child", expected, found))
    if os.path.lexists(_given_up(exclusion, parent)):
        expected, found = "a hop that goes on", f"{parent}, which was given up"
        raise RefusedError(Refusal(Code.STALE_FENCE, "child", expected, found))
    known = child_of(records, parent)
    if known is not None:
        found = f"HOLD {known.registration.hold}"
        raise RefusedError(Refusal(Code.EXISTS, f"child of {parent}", "none yet", found))
    # its siblings, of the same parent, have the same fence and are left alone
    sweep(exclusion, names, [r for r in records if int(r.registration.fence) < fence], clock)
    if fence > seen:
        exclusion.raise_fence(names, fence)
    return fence


def child_of(records: Sequence[Record], parent: Parent) -> Record | None:
    """The child that one hop of a parent has opened as this user, None where there is none."""
    # whatever another user registers must not be taken for it
    same = (one for one in records if one.registration.parent == parent)
    return next((one for one in same if one.directory.stat().st_uid == os.geteuid()), None)


def _given_up(exclusion: Exclusion, parent: Parent) -> Path:
    return exclusion.directory / "fence" / f".{parent.origin}.{parent.hold}.{parent.hop}"


def find(exclusion: Exclusion, gpus: Sequence[str], parent: Parent) -> Child:
    """Say which child a hop has opened here; where there is none, see to it that none follows.

    Raises:
        RefusedError: as :func:`lock_children`; ``UNREADABLE``; ``UNWRITABLE``.
    """
    with contextlib.ExitStack() as stack:
        # whoever opens one has this lock from before it looks until it is registered
        lock_children(stack, exclusion, gpus, parent.origin)
        known = child_of(read_records(exclusion.holds), parent)
        if known is None:
            replace_object(_given_up(exclusion, parent), {"hold": parent.hold}, 0o644)
    hold = None if known is None else known.registration.hold
    return Child(boot_id=exclusion.boot_id, hold=hold, fence=int(parent.fence))


def _asked(arguments: Sequence[str]) -> tuple[Parent, tuple[str, ...]]:
    """Read the command line.

    Raises:
        UsageError: ``USAGE``.
        BadInputError: GPUs that are none.
    """
    hold, fence, hop, origin, *gpus = [*arguments, *[""] * (4 - len(arguments))]
    numbers = _NUMBER.fullmatch(fence) and _NUMBER.fullmatch(hop)
    if not (_ID.fullmatch(hold) and _ID.fullmatch(origin) and numbers):
        expected, found = "HOLD FENCE HOP ORIGIN GPU...", shown(" ".join(arguments))
        raise UsageError(Refusal(Code.USAGE, "children", expected, found))
    require_gpus(gpus)
    return Parent(hold=hold, fence=fence, hop=int(hop), origin=origin), tuple(gpus)


def main(arguments: Sequence[str]) -> int:
    """Print what is known of one child, or the refusal; -> exit code."""
    settings = load_settings()
    try:
        parent, gpus = _asked(arguments)
        exclusion = open_exclusion(settings.host_dir, settings.state_dir)
        told: object = find(exclusion, gpus, parent).model_dump(mode="json")
    except Pp4Error as error:
        told = {"refusal": error.refusal.as_dict()}
    sys.stdout.write(json.dumps(told))
    return int(Exit.DONE)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
