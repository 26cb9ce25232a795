"""The program that puts pp4 onto a host where there is none: looks, unpacks, counts users, sweeps.

Its text is sent along with that of :mod:`pp4.hold.staged_files`, so it uses the standard library
alone, and reads no setting of the account but its home.  It is called with a verb, a directory, a
source digest, the seconds that it may wait for others, and what the verb takes; it answers with
one line of JSON.

Below the directory, which is the account's alone, lies ``staged/``:

- ``<source digest>/pp4/...``: one tree, named by what is in it, and shared;
- ``<source digest>.uses/<hold id>``: one file for each HOLD that runs from it;
- ``<sha256>.tar.gz``: a bundle on its way;
- ``.new.*`` and ``.old.*``: trees that are being made or taken away.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import secrets
import stat
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from pp4.hold.staged_files import (
    HOLD,
    DamagedError,
    StagingError,
    damage,
    discard,
    flush,
    make_tree,
    members,
    read,
    require_own,
    room,
    write,
)

USE_S = 7200.0
"""Seconds after which a use is void: no HOLD lives longer than 90 minutes."""

_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)
_USES = re.compile(r"[0-9a-f]{64}\.uses", re.ASCII)
_BUNDLE = re.compile(r"[0-9a-f]{64}(?:\.[0-9a-f]{16})?\.tar\.gz", re.ASCII)
_PARTS = re.compile(_BUNDLE.pattern + r"(?:\.part)?|\.(?:new|old)\.[0-9a-f]{16}", re.ASCII)
_POLL_S = 0.02
_BOOT_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Place:
    """Where staged code of one account lies, and one source that is looked for there.

    Args:
        directory: absolute; empty for the account's own.
        digest: of the source.
        limit_s: seconds that it may wait for other programs of this kind.
    """

    def __init__(self, directory: str, digest: str, limit_s: str) -> None:
        _require(_DIGEST, digest, "source digest")
        given = directory or os.path.expanduser("~/.local/state/pp4")
        if not os.path.isabs(given):
            expected = "an absolute path, or an account with a home"
            raise StagingError("NOT_STAGED", given, expected, "neither")
        # a slash behind a link would hide that it is one
        self.directory = given.rstrip("/") or "/"
        self.staged = os.path.join(self.directory, "staged")
        self.digest = digest
        self.tree = os.path.join(self.staged, digest)
        self.uses = f"{self.tree}.uses"
        self.limit_s = float(limit_s)

    def require(self) -> None:
        """Refuse directories that somebody else could change, or that are links."""
        for path in (self.directory, self.staged):
            try:
                require_own(path, stat.S_ISDIR)
            except DamagedError as error:
                expected = "a directory of this account, writable by it alone"
                raise StagingError("NOT_STAGED", path, expected, str(error)) from error

    def require_tree(self) -> None:
        """Refuse a tree that is not there or not intact."""
        found = damage(self.tree, self.digest)
        if found is not None:
            expected = f"source with digest {self.digest}"
            raise StagingError("NOT_STAGED", self.tree, expected, found)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep others from changing what is in ``staged`` meanwhile; the kernel frees the lock."""
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        lock = os.open(os.path.join(self.staged, "lock"), flags, 0o600)
        end = time.monotonic() + self.limit_s
        try:
            while not _locks(lock):
                if time.monotonic() > end:
                    found = f"a program that keeps it for more than {self.limit_s:g} s"
                    expected = "nobody else at work there"
                    raise StagingError("NOT_STAGED", self.staged, expected, found)
                time.sleep(_POLL_S)
            yield
        finally:
            os.close(lock)

    def remove(self, names: Sequence[str]) -> list[str]:
        """Take names out of ``staged``, each in one step: nobody ever sees half of a tree."""
        removed = []
        for name in names:
            old = os.path.join(self.staged, f".old.{secrets.token_hex(8)}")
            try:
                os.rename(os.path.join(self.staged, name), old)
            except FileNotFoundError:
                continue
            flush(self.staged)
            discard(old)
            removed.append(name)
        return removed


def _require(pattern: re.Pattern[str], text: str, kind: str) -> None:
    if not pattern.fullmatch(text):
        raise ValueError(f"no {kind}: {text[:80]!r}")


def _locks(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def users(uses: str) -> list[str]:
    """Return the HOLDs that may still run from a tree.

    A use is void after another start of the machine and after :data:`USE_S`; one that cannot be
    read counts, and so does one of another machine, where homes are shared: nobody here can know.

    Args:
        uses: the directory that lists them.
    """
    try:
        names = sorted(os.listdir(uses))
    except FileNotFoundError:
        return []
    return [name for name in names if _live(os.path.join(uses, name))]


def _live(use: str) -> bool:
    try:
        boot, machine, since_s = json.loads(read(use))
        age_s = time.clock_gettime(_BOOT_CLOCK) - float(since_s)
    except (OSError, DamagedError, ValueError, TypeError):
        return True
    if boot == _boot():
        return age_s < USE_S
    return bool(machine != os.uname().nodename)


def _boot() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return "unknown"


def look(place: Place) -> dict[str, object]:
    """Say what is there and what could be; changes nothing."""
    if os.path.lexists(place.staged):
        place.require()
    there = os.path.lexists(place.tree)
    found = damage(place.tree, place.digest) if there else None
    free, writable = room(place.directory)
    return {
        "python": ".".join(map(str, sys.version_info[:3])),
        "platform": sys.platform,
        "directory": place.directory,
        "path": place.tree if there and found is None else None,
        "damage": found,
        "free": free,
        "writable": writable,
    }


def prepare(place: Place) -> dict[str, object]:
    """Make the directories that an upload needs."""
    os.makedirs(os.path.dirname(place.directory), exist_ok=True)
    for path in (place.directory, place.staged):
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
    place.require()
    return {"directory": place.directory}


def unpack(place: Place, name: str, sha256: str) -> dict[str, object]:
    """Make the tree out of an uploaded bundle; one that is there and intact is shared.

    Args:
        place: where, and which source.
        name: of the upload in ``staged``.
        sha256: of the bundle; an upload that has another one is deleted.
    """
    _require(_BUNDLE, name, "name of a bundle")
    place.require()
    upload = os.path.join(place.staged, name)
    # asked first: whoever was faster with the same source has deleted the upload
    if damage(place.tree, place.digest) is not None:
        _install(place, _uploaded(upload, sha256))
    discard(upload)
    return {"path": place.tree, "source": place.digest}


def _uploaded(upload: str, sha256: str) -> bytes:
    try:
        data = read(upload)
        found = hashlib.sha256(data).hexdigest()
    except FileNotFoundError:
        raise StagingError("NOT_STAGED", upload, "a bundle", "none", again=True) from None
    except DamagedError as error:
        data, found = b"", str(error)
    if found != sha256:
        discard(upload)
        expected, found = f"sha256 {sha256}", f"sha256 {found}; deleted"
        raise StagingError("NOT_STAGED", upload, expected, found, again=True)
    return data


def _install(place: Place, data: bytes) -> None:
    new = os.path.join(place.staged, f".new.{secrets.token_hex(8)}")
    try:
        make_tree(new, members(data))
        found = damage(new, place.digest)
        if found is not None:
            raise DamagedError(found)
        with place.locked():
            found = damage(place.tree, place.digest)
            if found is not None:
                _require_unused(place, found)
                place.remove([place.digest])
                os.rename(new, place.tree)
                flush(place.staged)
    except DamagedError as error:
        expected = f"a bundle of the source with digest {place.digest}"
        raise StagingError("NOT_STAGED", place.staged, expected, str(error)) from error
    finally:
        discard(new)


def _require_unused(place: Place, found: str) -> None:
    """Refuse to replace what a HOLD runs from: it may load more of it at any time."""
    holds = ", ".join(users(place.uses)) if os.path.lexists(place.tree) else ""
    if holds:
        expected = f"source with digest {place.digest}, or no HOLD that runs from what is there"
        raise StagingError("NOT_STAGED", place.tree, expected, f"{found}; in use by HOLD {holds}")


def take(place: Place, hold: str) -> dict[str, object]:
    """Say that a HOLD runs from the tree, which has to be intact; again is as good as once."""
    _require(HOLD, hold, "id of a HOLD")
    place.require()
    with place.locked():
        place.require_tree()
        with contextlib.suppress(FileExistsError):
            os.mkdir(place.uses, 0o700)
        part = os.path.join(place.staged, f".new.{secrets.token_hex(8)}")
        try:
            text = json.dumps([_boot(), os.uname().nodename, time.clock_gettime(_BOOT_CLOCK)])
            write(part, text.encode(), 0o600)
            os.rename(part, os.path.join(place.uses, hold))
        finally:
            discard(part)
        flush(place.uses)
        flush(place.staged)
    return {"path": place.tree, "source": place.digest}


def drop(place: Place, hold: str) -> dict[str, object]:
    """Say that a HOLD is over; the tree goes with the last one."""
    _require(HOLD, hold, "id of a HOLD")
    if not os.path.lexists(place.staged):
        return {"removed": []}
    place.require()
    with place.locked():
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(place.uses, hold))
            flush(place.uses)
        unused = not users(place.uses)
        removed = place.remove([place.digest, f"{place.digest}.uses"] if unused else [])
    return {"removed": removed}


def sweep(place: Place, age_s: str) -> dict[str, object]:
    """Remove what was left behind for longer than ``age_s`` seconds and nobody uses.

    The tree of the caller's own source stays: it is about to be used.
    """
    if not os.path.lexists(place.staged):
        return {"removed": []}
    place.require()
    with place.locked():
        names = [name for name in sorted(os.listdir(place.staged)) if _left(place, name)]
        old = [name for name in names if _age_s(os.path.join(place.staged, name)) > float(age_s)]
        removed = place.remove(old)
    return {"removed": removed}


def _left(place: Place, name: str) -> bool:
    """Whether a name in ``staged`` is of a kind that may be removed when it is old."""
    if _PARTS.fullmatch(name):
        return True
    digest = name.removesuffix(".uses")
    if digest == place.digest or not (_DIGEST.fullmatch(name) or _USES.fullmatch(name)):
        return False
    return not users(os.path.join(place.staged, f"{digest}.uses"))


def _age_s(path: str) -> float:
    # wall clock of one host against itself; a step of it costs a day, or an upload
    try:
        return time.time() - os.lstat(path).st_mtime
    except FileNotFoundError:
        return 0.0


_VERBS: Mapping[str, Callable[..., dict[str, object]]] = {
    "look": look,
    "prepare": prepare,
    "unpack": unpack,
    "take": take,
    "drop": drop,
    "sweep": sweep,
}


def main(arguments: Sequence[str]) -> dict[str, object]:
    """Answer one call.

    Args:
        arguments: verb, directory, source digest, seconds, and what the verb takes.
    """
    verb, directory, digest, limit_s, *rest = arguments
    try:
        return _VERBS[verb](Place(directory, digest, limit_s), *rest)
    except StagingError as error:
        return {"refusal": error.refusal}
    except OSError as error:
        where = str(error.filename or directory or "~")
        found = f"{error.strerror or error} ({room(os.path.abspath(where))[0]} bytes free)"
        return {"refusal": StagingError("UNWRITABLE", where, "room for files", found).refusal}


if __name__ == "__main__":
    # directories above its own are made by the same rule
    os.umask(0o077)
    sys.stdout.write(json.dumps(main(sys.argv[1:])) + "\n")
