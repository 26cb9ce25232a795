"""What a HOLD leaves on the disk: registration, processes, tombstone; written once, read later."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, StringConstraints, ValidationError

from pp4.errors import Code, Refusal, RefusedError
from pp4.hold import durable
from pp4.hold.processes import Owned
from pp4.receipts.canonical import shown
from pp4.receipts.envelope import U64, Count, Model, Moment, Sha256, Text

M = TypeVar("M", bound=BaseModel)
GPU = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,127}", re.ASCII)
"""What may be the name of a GPU and becomes the name of a file."""


class Coordinator(Model):
    """The process that holds."""

    pid: Count
    start_token: Text
    pid_namespace: Text
    uid: Count


class Parent(Model):
    """The HOLD of another host that a child belongs to; see :class:`pp4.wire.holds.Parent`."""

    hold: Text
    fence: U64
    hop: Count
    # it becomes a part of names of files
    origin: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")]

    def __str__(self) -> str:
        return f"HOLD {self.hold}, hop {self.hop}"


class Registration(Model):
    """``registration.json``: who was granted what, until when; boot times in nanoseconds.

    The GPUs of a child are names: its parent has them, on its own host.
    """

    hold: Text
    command: Text
    fence: U64
    gpus: tuple[Text, ...]
    coordinator: Coordinator
    nonce_sha256: Sha256
    source_digest: Text
    transport: Text
    asked_by: Text | None = None
    exclusion: Text
    boot_id: Text
    opened_at: Moment
    opened_boottime_ns: U64
    deadline_boottime_ns: U64
    journal: Text
    parent: Parent | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Names under which its locks and fences lie.

        Those of a child are its parent's: of a host of its own, and none of this host's GPUs.
        """
        if self.parent is None:
            return self.gpus
        return tuple(child_name(gpu, self.parent.origin) for gpu in self.gpus)


class Tombstone(Model):
    """``closed.json``: the HOLD is over and every process of it is proven dead.

    Attributes:
        why: ``done``, ``failed``, ``cancelled``, ``deadline``, or, where the coordinator could not
            write it itself, ``abandoned`` or ``host_reboot``.
        journal_head: hash of the journal's last durable line, None where it cannot be read.
        survivors: always empty; while one is left there is no tombstone.
        restored: how each restore command of the HOLD file ended.
        closed_by: pid of the coordinator that wrote it.
    """

    hold: Text
    fence: U64
    gpus: tuple[Text, ...]
    why: Text
    journal_head: Sha256 | None
    survivors: tuple[Text, ...]
    restored: tuple[Text, ...] = ()
    boot_id: Text
    closed_at: Moment
    closed_by: Count


@dataclass(frozen=True, slots=True)
class Record:
    """One HOLD as its files tell it.

    Attributes:
        directory: ``holds/<id>``.
        registration: what was granted.
        closing: whether its end had begun.
        kept_back: whether it was found with survivors before, and its GPUs put in quarantine.
        closed: whether it has a tombstone.
    """

    directory: Path
    registration: Registration
    closing: bool
    kept_back: bool
    closed: bool

    @property
    def coordinator(self) -> Owned:
        """The process that held it."""
        found = self.registration.coordinator
        return Owned(found.pid, found.start_token, f"coordinator of HOLD {self.registration.hold}")


def child_name(gpu: str, origin: str) -> str:
    """The name of a lock and of a fence that children share; no GPU has a dot in its name."""
    return f"{gpu}.{origin}"


def write(path: Path, model: Model) -> None:
    """Write one of the models durably, for every user to read.

    Raises:
        RefusedError: ``UNWRITABLE``.
    """
    tree = model.model_dump(mode="json")
    if tree.get("parent", "") is None:
        # an earlier pp4 reads every registration of its host, and knows no children
        del tree["parent"]
    durable.replace_object(path, tree)


def read_model(path: Path, model: type[M]) -> M | None:
    """Read a file that a HOLD has written, None where there is none.

    Raises:
        RefusedError: ``UNREADABLE``, it is something else; ``EXCLUSION``, a symbolic link.
    """
    raw = durable.read(path)
    if raw is None:
        return None
    try:
        return model.model_validate_json(raw)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise unreadable(path, f"{place}: {first['msg']}") from error


def read_records(holds: Path) -> list[Record]:
    """Read every HOLD that got as far as a registration.

    Raises:
        RefusedError: ``UNREADABLE``: a registration is not one; it might be of a GPU that is asked
            for.
    """
    try:
        with os.scandir(holds) as entries:
            names = sorted(e.name for e in entries if e.is_dir(follow_symlinks=False))
    except OSError as error:
        raise unreadable(holds, error.strerror or str(error)) from error
    found = (_record(holds / name) for name in names)
    return [record for record in found if record is not None]


def _record(directory: Path) -> Record | None:
    path = directory / "registration.json"
    registration = read_model(path, Registration)
    if registration is None:
        # nothing is started before the registration is there
        return None
    odd = [gpu for gpu in registration.gpus if not GPU.fullmatch(gpu)]
    if odd:
        # paths are made of these names, and any user may write a registration
        raise unreadable(path, f"gpus: {odd}")
    closing, closed = directory / "closing.json", directory / "closed.json"
    return Record(
        directory,
        registration,
        closing=os.path.lexists(closing),
        kept_back=_has_survivors(closing),
        closed=os.path.lexists(closed),
    )


def _has_survivors(path: Path) -> bool:
    try:
        tree = durable.read_object(path)
    except RefusedError:
        return False
    return tree is not None and bool(tree.get("survivors"))


def highest_granted(records: Sequence[Record], name: str) -> int | None:
    """Return the highest fence in any registration of a GPU, None where there is none.

    Args:
        records: every HOLD.
        name: one of :attr:`Registration.names`.
    """
    fences = [int(r.registration.fence) for r in records if name in r.registration.names]
    return max(fences, default=None)


def unreadable(path: Path, found: str) -> RefusedError:
    """The refusal of a file, or a directory, that is none of a HOLD."""
    again = f"ls -l {shlex.quote(str(path))}"
    expected = "what a HOLD of pp4 writes"
    return RefusedError(
        Refusal(Code.UNREADABLE, shown(str(path)), expected, shown(found), next=again)
    )
