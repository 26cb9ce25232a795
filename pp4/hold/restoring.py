"""Restore commands of a HOLD, kept on the host until they have been run.

Whoever dies in between leaves them behind; the next supervisor of the same user, or ``pp4 hold
recover``, runs them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from pp4.hold import durable
from pp4.hold.around import run_each
from pp4.hold.trees import orphans_let_go
from pp4.receipts.canonical import dump
from pp4.wire.holds import HostCommand

_NAME = "restore.json"


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


def settle(directory: Path) -> tuple[str, ...]:
    """Run what is kept, once; -> how each command ended.

    Raises:
        RefusedError: what is kept cannot be read, or not be removed after it was run.
    """
    path = directory / _NAME
    tree = durable.read_object(path)
    if tree is None:
        return ()
    # what they start again is to live on: it is no part of the HOLD
    with orphans_let_go():
        told = run_each(_read(tree), directory)
    durable.remove(path)
    return told


def _read(tree: dict[str, object]) -> tuple[HostCommand, ...]:
    rows = tree.get("restore")
    if not isinstance(rows, list):
        return ()
    try:
        return tuple(
            HostCommand(argv=tuple(row["argv"]), limit_s=float(row["limit_s"])) for row in rows
        )
    except (KeyError, TypeError, ValueError, ValidationError):
        # nobody else can write there; what a disk has spoiled is no command
        return ()


def settle_lost(holds: Path, closed: Path) -> tuple[str, ...]:
    """Run what earlier HOLDs of this user, which are over, have left; -> how each command ended.

    Args:
        holds: directories of this user's HOLDs.
        closed: directories of registrations and tombstones.
    """
    told: tuple[str, ...] = ()
    for path in sorted(holds.glob(f"*/{_NAME}")):
        hold = path.parent.name
        if (closed / hold / "closed.json").exists():
            told += settle(path.parent)
    return told
