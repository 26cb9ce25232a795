"""The code that runs on a receiving host: put there by digest, or nothing starts.

What is there is believed only after every file of it was hashed on the host, and what is uploaded
only after that too.  The coordinator compares the host's answer with its own digest.
"""

from __future__ import annotations

import posixpath
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pp4.clock import Deadline
from pp4.errors import BadInputError, Code, RefusedError
from pp4.hold.bundle import bundle
from pp4.hold.staged_files import HOLD
from pp4.hold.staging_program import WIDE, AgainError, Looked, Prepared, Program, Removed, There
from pp4.receipts.canonical import shown
from pp4.receipts.digests import Source, sha256_hex
from pp4.transport.interface import Host

SWEEP_S: Final = 86_400.0
"""Seconds after which what nobody uses is swept away."""

_RESERVE = 1 << 20
_BLOCK = 4096

# PYTHONPATH comes before every installed package, but not before what a package may put into the
# interpreter as it starts (an editable install, a .pth file): so it is looked at, not hoped for.
_START: Final = """\
import runpy, sys
import pp4
path, module = sys.argv[1:3]
if list(pp4.__path__) != [path + "/pp4"]:
    sys.exit("NOT_STAGED: expected pp4 in %s, found %s" % (path, list(pp4.__path__)))
del sys.argv[1:3]
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""


@dataclass(frozen=True, slots=True)
class Staged:
    """One source on one host, intact when it was looked at.

    Attributes:
        path: of the directory there that holds ``pp4``.
        python: the interpreter that runs it.
        digest: of the source.
    """

    path: str
    python: str
    digest: str

    def argv(self, module: str, *arguments: str) -> list[str]:
        """Return how to start a module of it, so that no other pp4 can answer in its place.

        The path goes by the environment, which what it starts inherits; ``env`` sets it, because
        SSH hands none on.  ``-P`` keeps the working directory out.  What is left, a hook that an
        installed copy put into the interpreter, ends the program before the module starts.  No
        bytecode is written: it would be a file more in a tree that is counted.
        """
        setting = [f"PYTHONPATH={self.path}", "PYTHONDONTWRITEBYTECODE=1"]
        start = [self.python, "-P", "-c", _START, self.path]
        return ["env", *setting, *start, module, *arguments]


def stage(
    host: Host, python: str, directory: str | None, source: Source, root: Path, deadline: Deadline
) -> Staged:
    """Have this source on a host; where it is and is intact, nothing is uploaded.

    Args:
        host: the way to it.
        python: its interpreter there, 3.11 or newer.
        directory: absolute, where staged code goes; None for ``~/.local/state/pp4`` of the account.
        source: what should run there.
        root: the directory of the package here.
        deadline: of everything.

    Raises:
        RefusedError: ``NOT_STAGED``: Python too old, a directory that others may write, a damaged
            copy that a HOLD runs from, files that change while they are read, another digest;
            ``UNREADABLE``: no such Python; ``UNWRITABLE``: no room, or read-only.
        WrongError: ``BAD_FRAME``, an answer that is none; ``CONNECTION_LOST``.
        TimedOutError: ``STEP_TIMEOUT``.  What was uploaded stays, and the next attempt goes on.
    """
    program = Program(host, python, directory or "", source.digest, deadline)
    if "=" in python or python.startswith("-"):
        # env would take it for a setting or an option
        wanted = "a Python without '=' in its path"
        raise program.refuse(Code.NOT_STAGED, "python", wanted, shown(python))
    looked = program.ask(Looked, "look")
    expected = posixpath.join(looked.directory, "staged", source.digest)
    if ":" in expected or not expected.isprintable():
        # PYTHONPATH would be cut there
        wanted = "a path without ':' and signs that do not print"
        raise program.refuse(
            Code.NOT_STAGED, shown(looked.directory, WIDE), wanted, shown(expected, WIDE)
        )
    there = None if looked.path is None else There(path=looked.path, source=source.digest)
    if there is None:
        data = bundle(source, root)
        _require_room(program, looked, data, len(source.files))
        there = _upload(program, data)
    if (there.path, there.source) != (expected, source.digest):
        wanted = f"source with digest {source.digest} in {shown(expected, WIDE)}"
        found = f"source with digest {shown(there.source)} in {shown(there.path, WIDE)}"
        raise program.refuse(Code.NOT_STAGED, "staged source", wanted, found)
    return Staged(expected, python, source.digest)


def _require_room(program: Program, looked: Looked, data: bytes, files: int) -> None:
    where = shown(looked.directory, WIDE)
    if not looked.writable:
        found = f"none that may be written ({looked.free} bytes free)"
        raise program.refuse(Code.UNWRITABLE, where, "a directory that takes files", found)
    # RFC 1952, 2.3.1: the last four bytes are the size before it was packed
    unpacked = int.from_bytes(data[-4:], "little")
    # each file may waste a block, and so may its directory
    needed = len(data) + unpacked + 2 * files * _BLOCK + _RESERVE
    if looked.free < needed:
        found = f"{looked.free} bytes free"
        raise program.refuse(Code.UNWRITABLE, where, f"{needed} bytes free", found)


def _upload(program: Program, data: bytes) -> There:
    """Upload and unpack; a second time under a name of its own, where the upload was no good.

    The first name is the same for all, so that an upload goes on where an earlier one was cut off;
    so two coordinators can be in each other's way there, and bytes of a broken one can lie there.
    """
    staged = posixpath.join(program.ask(Prepared, "prepare").directory, "staged")
    sha256 = sha256_hex(data)
    name = f"{sha256}.tar.gz"
    try:
        try:
            program.host.put(data, posixpath.join(staged, name), program.deadline)
        except RefusedError as error:
            raise AgainError(error.refusal) from error
        return program.ask(There, "unpack", name, sha256)
    except AgainError:
        name = f"{sha256}.{secrets.token_hex(8)}.tar.gz"
        program.host.put(data, posixpath.join(staged, name), program.deadline)
        return program.ask(There, "unpack", name, sha256)


def take(host: Host, staged: Staged, hold_id: str, deadline: Deadline) -> None:
    """Say on the host that a HOLD runs from a staged source, before it does.

    Args:
        host: the way to it.
        staged: what :func:`stage` returned.
        hold_id: 16 hexadecimal digits.
        deadline: of everything.

    Raises:
        BadInputError: no id of a HOLD.
        RefusedError: ``NOT_STAGED``, it is gone or damaged by now: stage it again.
        WrongError: as :func:`stage`.
        TimedOutError: as :func:`stage`.
    """
    _program(host, staged, deadline).ask(There, "take", _require_hold(hold_id))


def drop(host: Host, staged: Staged, hold_id: str, deadline: Deadline) -> None:
    """Say on the host that a HOLD is over; the source goes with the last one that uses it.

    Raises:
        BadInputError: no id of a HOLD.
        RefusedError: ``NOT_STAGED``, ``UNWRITABLE``.
        WrongError: as :func:`stage`.
        TimedOutError: as :func:`stage`.
    """
    _program(host, staged, deadline).ask(Removed, "drop", _require_hold(hold_id))


def sweep(
    host: Host, staged: Staged, deadline: Deadline, age_s: float = SWEEP_S
) -> tuple[str, ...]:
    """Remove on the host what earlier runs left and nobody uses; -> names of what is gone.

    Args:
        host: the way to it.
        staged: a source that stays whatever its age.
        deadline: of everything.
        age_s: what is younger stays: somebody may be at work with it.

    Raises:
        RefusedError: ``NOT_STAGED``, ``UNWRITABLE``.
        WrongError: as :func:`stage`.
        TimedOutError: as :func:`stage`.
    """
    return _program(host, staged, deadline).ask(Removed, "sweep", f"{age_s:g}").removed


def _require_hold(hold_id: str) -> str:
    if not HOLD.fullmatch(hold_id):
        raise BadInputError.of("hold_id", "16 hexadecimal digits", shown(hold_id))
    return hold_id


def _program(host: Host, staged: Staged, deadline: Deadline) -> Program:
    directory = posixpath.dirname(posixpath.dirname(staged.path))
    return Program(host, staged.python, directory, staged.digest, deadline)
