"""Who may use a GPU: locks that end with their holder, fences and quarantine that do not.

One directory serves a whole host.  Every write below it happens under the locks of the GPUs that
it is about; the one exception is a quarantine, which only ever keeps people out.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from filelock import Timeout, UnixFileLock

from pp4.errors import BadInputError, Code, Pp4Error, Refusal, RefusedError
from pp4.hold import processes
from pp4.hold.durable import linked, read_object, remove, replace_object
from pp4.hold.places import host_directory, own_directory
from pp4.receipts.canonical import shown

_UUID = re.compile(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
_LOOK_S = 0.05
_NUMBER = re.compile(r"[1-9][0-9]{0,18}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Exclusion:
    """The directory of locks, fences and registrations; :func:`open_exclusion` checks it.

    Attributes:
        directory: where it is.
        kind: ``host`` where every user shares it, ``private`` where it is this user's.
        boot_id: this boot of the machine.
    """

    directory: Path
    kind: Literal["host", "private"]
    boot_id: str

    @property
    def holds(self) -> Path:
        """Registrations and tombstones, one directory for each HOLD."""
        return self.directory / "holds"

    def lock_path(self, gpu: str) -> Path:
        """The lock of a GPU; that the file exists says nothing."""
        return self.directory / "gpu" / f"{gpu}.lock"

    def quarantine_path(self, gpu: str) -> Path:
        """What keeps a GPU from being given out."""
        return self.directory / "gpu" / f"{gpu}.quarantine"

    def cleared_path(self, gpu: str) -> Path:
        """Where it is written down who ended quarantines of a GPU: a chained journal."""
        return self.directory / "gpu" / f"{gpu}.cleared.jsonl"

    def fence_path(self, gpu: str) -> Path:
        """The highest fence that was granted on a GPU."""
        return self.directory / "fence" / gpu

    @contextlib.contextmanager
    def locked(self, gpus: Sequence[str]) -> Iterator[None]:
        """Hold the locks of GPUs: all of them, in the order of their UUIDs, or none.

        Raises:
            RefusedError: ``HELD_BY``: one is taken, with nobody's name yet; ``EXCLUSION``: a lock
                file is no file, or may not be opened.
        """
        with contextlib.ExitStack() as stack:
            for gpu in sorted(gpus):
                stack.enter_context(self._locked(gpu))
            yield

    @contextlib.contextmanager
    def _locked(self, gpu: str) -> Iterator[None]:
        path = self.lock_path(gpu)
        _require_file(path)
        # no soft lock in its place: that one outlives a holder that was killed
        lock = UnixFileLock(path, mode=0o666, thread_local=False, fallback_to_soft=False)
        try:
            # somebody who only looks has it for a moment
            lock.acquire(timeout=_LOOK_S, poll_interval=_LOOK_S / 5)
        except Timeout:
            raise RefusedError(Refusal(Code.HELD_BY, gpu, "a GPU that is free", "taken")) from None
        except OSError as error:
            where = shown(str(path))
            found = error.strerror or str(error)
            raise RefusedError(
                Refusal(Code.EXCLUSION, where, "a lock file for every user", found)
            ) from error
        try:
            yield
        finally:
            lock.release(force=True)

    def highest_fence(self, gpu: str, granted: int | None) -> int:
        """Return the highest fence ever granted on a GPU, 0 where there never was one.

        Args:
            gpu: its UUID.
            granted: the highest fence in any registration of the GPU, None where there is none.

        Raises:
            RefusedError: ``FENCE_LOST``: the file is missing, unreadable or behind ``granted``.
        """
        path = self.fence_path(gpu)
        try:
            tree = read_object(path)
            found = _fence_in(tree, gpu)
        except Pp4Error as error:
            if error.refusal.code is Code.EXCLUSION:
                raise
            raise self._lost(gpu, granted, error.refusal.found) from error
        if found is None:
            if granted is None:
                return 0
            raise self._lost(gpu, granted, "none")
        if found < (granted or 0):
            raise self._lost(gpu, granted, f"fence {found}")
        return found

    def _lost(self, gpu: str, granted: int | None, found: str) -> RefusedError:
        path = self.fence_path(gpu)
        quoted = shlex.quote(str(path))
        repair = f"rm {quoted}"
        if granted is not None:
            repair = f'printf %s \'{{"fence":"{granted}","gpu":"{gpu}"}}\' > {quoted}'
        return RefusedError(
            Refusal(
                Code.FENCE_LOST,
                shown(str(path)),
                f"a fence of at least {granted or 0}",
                shown(found),
                source="the registrations of this GPU",
                next=repair,
            )
        )

    def raise_fence(self, gpus: Sequence[str], fence: int) -> None:
        """Write a granted fence for each GPU; only under the locks of all of them.

        Raises:
            RefusedError: ``UNWRITABLE``.
        """
        for gpu in sorted(gpus):
            replace_object(self.fence_path(gpu), {"fence": str(fence), "gpu": gpu}, 0o666)

    def quarantine(self, gpus: Sequence[str], hold: str, survivors: Sequence[str]) -> None:
        """Keep GPUs from being given out until the machine restarts or an operator ends it.

        Raises:
            RefusedError: ``UNWRITABLE``.
        """
        for gpu in sorted(gpus):
            tree = {"boot_id": self.boot_id, "hold": hold, "survivors": list(survivors)}
            replace_object(self.quarantine_path(gpu), tree, 0o666)

    def require_usable(self, gpus: Sequence[str]) -> None:
        """Refuse GPUs in quarantine; one from before the machine restarted is void.

        Raises:
            RefusedError: ``QUARANTINED``.
        """
        for gpu in sorted(gpus):
            path = self.quarantine_path(gpu)
            try:
                tree = read_object(path)
            except Pp4Error as error:
                # that it cannot be read does not make it void
                raise self.quarantined(gpu, error.refusal.found) from error
            if tree is None:
                continue
            if tree.get("boot_id") == self.boot_id or not isinstance(tree.get("boot_id"), str):
                raise self.quarantined(gpu, f"{tree.get('survivors')} of HOLD {tree.get('hold')}")

    def drop_void(self, gpus: Sequence[str]) -> None:
        """Remove quarantines from before the machine restarted; only under the locks of the GPUs.

        Without them a fresh one could be taken for the one that was looked at.

        Raises:
            RefusedError: ``UNREADABLE``, ``UNWRITABLE``.
        """
        for gpu in sorted(gpus):
            path = self.quarantine_path(gpu)
            tree = read_object(path)
            if tree is not None and tree.get("boot_id") != self.boot_id:
                remove(path)

    def quarantined(self, gpu: str, found: str) -> RefusedError:
        """Return the refusal of a GPU in quarantine."""
        path = self.quarantine_path(gpu)
        return RefusedError(
            Refusal(
                Code.QUARANTINED,
                gpu,
                "processes of earlier HOLDs proven dead",
                shown(found, 400),
                left=shown(str(path)),
                next=f"pp4 hold clear --operator NAME --why TEXT {gpu}",
            )
        )


def open_exclusion(
    host_dir: Path, state_dir: Path, *, boot: str | None = None, make: bool = True
) -> Exclusion:
    """Find the directory that keeps HOLDs apart, and check it.

    Args:
        host_dir: the host's; taken where it exists, made where this process is root's.
        state_dir: this user's; taken where the host has none, and said to be ``private``.
        boot: the id of this boot; that of the kernel if none is given.
        make: whether the host's may be made; whoever only looks must not change who is kept out.

    Raises:
        RefusedError: ``EXCLUSION``: a directory that excludes nobody: another owner, writable by
            others, a symbolic link, or no local file system; ``UNWRITABLE``; ``UNREADABLE``: the
            kernel names no boot.
    """
    boot = processes.boot_id() if boot is None else boot
    if boot == "unknown":
        where = "/proc/sys/kernel/random/boot_id"
        raise RefusedError(Refusal(Code.UNREADABLE, where, "the id of this boot", "none"))
    if host_directory(host_dir, make=make):
        return Exclusion(host_dir, "host", boot)
    for directory in (state_dir, *(state_dir / name for name in ("gpu", "fence", "holds"))):
        own_directory(directory)
    return Exclusion(state_dir, "private", boot)


def require_gpus(gpus: Sequence[str]) -> None:
    """Refuse anything but one or two different UUIDs, spelled as the driver spells them.

    Raises:
        BadInputError: otherwise; two spellings of one GPU would be two locks.
    """
    odd = [gpu for gpu in gpus if not _UUID.fullmatch(gpu)]
    if odd or len(set(gpus)) != len(gpus) or len(gpus) not in (1, 2):
        expected = "one or two different GPU UUIDs (GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx)"
        raise BadInputError.of("gpus", expected, shown(list(gpus)))


def _require_file(path: Path) -> None:
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        # not there yet, or whatever taking the lock will say
        return
    if stat.S_ISLNK(mode):
        raise linked(path)
    if not stat.S_ISREG(mode):
        where = shown(str(path))
        raise RefusedError(Refusal(Code.EXCLUSION, where, "a lock file", "something else"))


def _fence_in(tree: dict[str, object] | None, gpu: str) -> int | None:
    if tree is None:
        return None
    fence = tree.get("fence")
    if tree.get("gpu") != gpu or not isinstance(fence, str) or not _NUMBER.fullmatch(fence):
        raise RefusedError(Refusal(Code.FENCE_LOST, gpu, "a fence of this GPU", repr(tree)))
    return int(fence)
