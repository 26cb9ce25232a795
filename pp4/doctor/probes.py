"""The outside world as the doctor sees it: every look at the machine goes through here."""

from __future__ import annotations

import os
import platform
import pwd
import shutil
import stat
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Protocol

from pp4.config import child_environment

#: No question of the doctor is worth more than this; a wedged driver makes nvidia-smi hang.
ASK_TIMEOUT_S = 10.0
_READ_LIMIT = 1 << 20


@dataclass(frozen=True, slots=True)
class Answer:
    """What a program said.

    Attributes:
        ok: whether it ended with status 0 in time.
        out: its standard output.
        problem: why it is not ok, short; empty otherwise.
    """

    ok: bool
    out: str
    problem: str = ""


@dataclass(frozen=True, slots=True)
class PathFacts:
    """What a path is, without following a symbolic link at its end.

    Attributes:
        kind: ``directory``, ``symlink`` or ``other``.
        owner: user id.
        mode: permission bits.
    """

    kind: str
    owner: int
    mode: int


class Probes(Protocol):
    """Questions about a machine.  No answer raises; ``None`` means absent or unknown."""

    def python(self) -> tuple[int, int, int]:
        """Version of the running interpreter."""

    def platform(self) -> tuple[str, str]:
        """System and machine, ``("Linux", "x86_64")``."""

    def package(self, name: str) -> str | None:
        """Version of an installed distribution; nothing is imported for it."""

    def which(self, name: str) -> str | None:
        """Path of a program."""

    def ask(self, argv: Sequence[str]) -> Answer:
        """Run a program with a time limit and no input."""

    def free_bytes(self, path: Path) -> int | None:
        """Space that this user may still fill at ``path`` or its nearest existing parent."""

    def read(self, path: Path) -> str | None:
        """Text of a small file."""

    def names(self, directory: Path) -> tuple[str, ...]:
        """Sorted entries of a directory; none if it does not exist."""

    def facts(self, path: Path) -> PathFacts | None:
        """What the path is."""

    def real(self, path: Path) -> Path:
        """The path with every symbolic link resolved; missing parts stay as they are."""

    def user(self) -> int:
        """Effective user id."""

    def user_name(self) -> str | None:
        """The name of that user, where the machine knows one."""


class SystemProbes:
    """Looks at the machine that it runs on."""

    def python(self) -> tuple[int, int, int]:
        """See :class:`Probes`."""
        return sys.version_info[:3]

    def platform(self) -> tuple[str, str]:
        """See :class:`Probes`."""
        return platform.system(), platform.machine()

    def package(self, name: str) -> str | None:
        """See :class:`Probes`."""
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            return None

    def which(self, name: str) -> str | None:
        """See :class:`Probes`."""
        return shutil.which(name)

    def ask(self, argv: Sequence[str]) -> Answer:
        """See :class:`Probes`."""
        try:
            done = subprocess.run(
                list(argv),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=ASK_TIMEOUT_S,
                env=child_environment({}),
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Answer(ok=False, out="", problem=f"no answer within {ASK_TIMEOUT_S:g} s")
        except OSError as error:
            return Answer(ok=False, out="", problem=error.strerror or type(error).__name__)
        if done.returncode != 0:
            lines = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
            return Answer(
                ok=False, out=done.stdout, problem=f"status {done.returncode}: {lines[-1]}"
            )
        return Answer(ok=True, out=done.stdout)

    def free_bytes(self, path: Path) -> int | None:
        """See :class:`Probes`."""
        for place in (path, *path.parents):
            try:
                room = os.statvfs(place)
            except FileNotFoundError:
                continue
            except OSError:
                return None
            return room.f_bavail * room.f_frsize
        return None

    def read(self, path: Path) -> str | None:
        """See :class:`Probes`."""
        try:
            with path.open("rb") as file:
                return file.read(_READ_LIMIT).decode(errors="replace")
        except OSError:
            return None

    def names(self, directory: Path) -> tuple[str, ...]:
        """See :class:`Probes`."""
        try:
            return tuple(sorted(os.listdir(directory)))
        except OSError:
            return ()

    def facts(self, path: Path) -> PathFacts | None:
        """See :class:`Probes`."""
        try:
            seen = path.lstat()
        except OSError:
            return None
        kind = "other"
        if stat.S_ISDIR(seen.st_mode):
            kind = "directory"
        elif stat.S_ISLNK(seen.st_mode):
            kind = "symlink"
        return PathFacts(kind, seen.st_uid, stat.S_IMODE(seen.st_mode))

    def real(self, path: Path) -> Path:
        """See :class:`Probes`."""
        return Path(os.path.realpath(path))

    def user(self) -> int:
        """See :class:`Probes`."""
        return os.geteuid()

    def user_name(self) -> str | None:
        """See :class:`Probes`."""
        try:
            return pwd.getpwuid(os.geteuid()).pw_name
        except KeyError:
            return None
