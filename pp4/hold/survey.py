"""What is seen of HOLDs, GPUs and processes by somebody who only looks.

Nothing here takes a lock to keep it, writes a file or ends a process, and one record that cannot be
read hides no other.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pp4.errors import Code, Pp4Error, Refusal, RefusedError
from pp4.hold import durable, processes
from pp4.hold.chained import processes_in, read_chained
from pp4.hold.exclusion import Exclusion
from pp4.hold.processes import COOKIE, Owned
from pp4.hold.records import GPU, Record, Registration, Tombstone, read_model, unreadable
from pp4.receipts.canonical import shown

# a registration is its user's own file, and the names in it become paths
_NAMED = re.compile(r"(?P<label>.*) \(pid (?P<pid>[0-9]{1,9}), start (?P<start>[0-9]{1,20})\)")
_MARK = f"{COOKIE}=".encode()
_ENDS = (".lock", ".quarantine")
_LONG = 400


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A record that is there and cannot be read.

    Attributes:
        path: the file.
        found: why not.
    """

    path: Path
    found: str


@dataclass(frozen=True, slots=True)
class Quarantine:
    """What keeps a GPU from being given out.

    Attributes:
        gpu: its UUID.
        hold: the HOLD whose processes could not be proven dead, ``unknown`` where it is not told.
        survivors: those processes, as the HOLD or a sweep named them.
        void: whether it is of an earlier boot, so that the next HOLD takes it away.
        fault: why it cannot be read, empty where it can; it keeps people out all the same.
    """

    gpu: str
    hold: str
    survivors: tuple[str, ...]
    void: bool
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Sighting:
    """What can be said of the processes of a HOLD.

    Attributes:
        alive: those that are seen, in its books or marked with its id.
        unproven: texts about what is neither seen nor proven dead.
    """

    alive: tuple[Owned, ...]
    unproven: tuple[str, ...]


def registrations(holds: Path) -> tuple[list[Record], list[Unreadable]]:
    """Read every HOLD that got as far as a registration, and name those that cannot be read.

    Args:
        holds: the directory with one directory for each HOLD; none there is as good as empty.
    """
    try:
        with os.scandir(holds) as entries:
            names = sorted(e.name for e in entries if e.is_dir(follow_symlinks=False))
    except FileNotFoundError:
        return [], []
    except OSError as error:
        return [], [Unreadable(holds, shown(error.strerror or str(error)))]
    found: list[Record] = []
    faults: list[Unreadable] = []
    for name in names:
        try:
            record = registered(holds / name)
        except Pp4Error as error:
            faults.append(Unreadable(holds / name / "registration.json", error.refusal.found))
            continue
        if record is not None:
            found.append(record)
    return found, faults


def registered(directory: Path) -> Record | None:
    """Read one HOLD, None where there is no registration.

    Raises:
        RefusedError: ``UNREADABLE`` or ``EXCLUSION``: the registration is not one.
    """
    registration = read_model(directory / "registration.json", Registration)
    if registration is None:
        return None
    odd = [gpu for gpu in registration.gpus if not GPU.fullmatch(gpu)]
    if odd:
        raise unreadable(directory / "registration.json", f"gpus: {odd}")
    closing = closing_of(directory)
    return Record(
        directory,
        registration,
        closing=os.path.lexists(directory / "closing.json"),
        kept_back=bool(closing.get("survivors")),
        closed=os.path.lexists(directory / "closed.json"),
    )


def closing_of(directory: Path) -> Mapping[str, object]:
    """Return what a HOLD wrote down when its end began; nothing where that cannot be read."""
    try:
        return durable.read_object(directory / "closing.json") or {}
    except Pp4Error:
        return {}


def tombstone_of(directory: Path) -> Tombstone | None:
    """Read the tombstone of a HOLD, None where there is none.

    Raises:
        RefusedError: ``UNREADABLE`` or ``EXCLUSION``: it is not one.
    """
    return read_model(directory / "closed.json", Tombstone)


def quarantine_of(exclusion: Exclusion, gpu: str) -> Quarantine | None:
    """Read what keeps a GPU back, None where nothing does."""
    try:
        tree = durable.read_object(exclusion.quarantine_path(gpu))
    except Pp4Error as error:
        return Quarantine(gpu, "unknown", (), void=False, fault=error.refusal.found)
    if tree is None:
        return None
    hold, survivors, boot = (tree.get(name) for name in ("hold", "survivors", "boot_id"))
    whole = isinstance(hold, str) and isinstance(survivors, list) and isinstance(boot, str)
    return Quarantine(
        gpu,
        shown(hold) if isinstance(hold, str) else "unknown",
        tuple(shown(one, _LONG) for one in survivors) if isinstance(survivors, list) else (),
        # without the name of its boot it is void at no boot
        void=isinstance(boot, str) and boot != exclusion.boot_id,
        fault="" if whole else "not what a HOLD of pp4 writes",
    )


def gpus_on_disk(exclusion: Exclusion, records: Sequence[Record]) -> tuple[str, ...]:
    """Return every GPU that has a lock, a fence, a quarantine or a registration of this host.

    Raises:
        RefusedError: ``EXCLUSION``: the directories cannot be read.
    """
    try:
        files = [path.name for path in (exclusion.directory / "gpu").iterdir()]
        fences = [path.name for path in (exclusion.directory / "fence").iterdir()]
    except OSError as error:
        where, found = shown(str(exclusion.directory)), error.strerror or str(error)
        expected = "directories of locks and fences"
        raise RefusedError(Refusal(Code.EXCLUSION, where, expected, found)) from error
    names = {name.removesuffix(end) for name in files for end in _ENDS if name.endswith(end)}
    names.update(fences, *(record.registration.names for record in records))
    return tuple(sorted(name for name in names if GPU.fullmatch(name)))


def taken(path: Path) -> bool | None:
    """Whether somebody holds a lock, None where that cannot be told.

    It is asked for as a reader would, and let go at once: two who look disturb neither each other
    nor the holder, and a file that is not there is not made.
    """
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        return False
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return False


def all_marked() -> Mapping[str, tuple[Owned, ...]]:
    """Return the processes that carry the id of a HOLD, by that id, in one walk."""
    found: defaultdict[str, list[Owned]] = defaultdict(list)
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            names = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        marks = [name.removeprefix(_MARK) for name in names if name.startswith(_MARK)]
        token = processes.start_token(int(entry.name)) if marks else None
        if token is not None:
            hold = marks[0].decode("utf-8", "replace")
            found[hold].append(Owned(int(entry.name), token, "unregistered"))
    return {hold: tuple(owned) for hold, owned in found.items()}


def sighting(exclusion: Exclusion, record: Record, marked: Sequence[Owned]) -> Sighting:
    """Look for the processes of a HOLD.

    Args:
        exclusion: for the id of this boot.
        record: the HOLD.
        marked: processes that carry its id.
    """
    found = record.registration
    if found.boot_id != exclusion.boot_id:
        # no process outlives the kernel that it ran under
        return Sighting((), ())
    others = {owned.pid: owned for owned in marked}
    if found.coordinator.pid_namespace != processes.namespace():
        # a pid is absent here, or somebody else's
        return Sighting(tuple(others.values()), ("processes of another pid namespace",))
    books, fault = processes_in(read_chained(record.directory / "procs.jsonl"))
    known = {owned.pid: owned for owned in books if owned.alive()}
    unproven = tuple(str(owned) for owned in books if processes.hidden(owned.pid))
    unproven += (f"procs.jsonl: {fault}",) if fault else ()
    return Sighting(tuple({**others, **known}.values()), unproven)


def holder_lives(exclusion: Exclusion, record: Record) -> bool:
    """Whether the process that holds is alive; in another namespace its locks tell.

    A child has none, so that one in another namespace counts as alive.

    Args:
        exclusion: whose locks it has.
        record: a HOLD of this boot.
    """
    if record.registration.coordinator.pid_namespace == processes.namespace():
        return record.coordinator.alive()
    if record.registration.parent is not None:
        return True
    return all(taken(exclusion.lock_path(gpu)) for gpu in record.registration.gpus)


def named(text: str) -> Owned | None:
    """Read a process as a quarantine names it, None where pid and start token are not told."""
    match = _NAMED.fullmatch(text)
    return Owned(int(match["pid"]), match["start"], match["label"]) if match else None


def state_of(pid: int) -> str:
    """Return the state of a process in the kernel's words, such as ``D (disk sleep)``."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text("utf-8", "replace").splitlines()
    except OSError:
        return "gone"
    return next((line.split("\t", 1)[1] for line in lines if line.startswith("State:\t")), "gone")
