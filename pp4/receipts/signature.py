"""Detached signatures of receipts, in the format of ``ssh-keygen -Y sign``.

Four states are told apart, because they ask different things of a reader: nobody signed; somebody
signed and this machine cannot tell whether it holds; the signature is wrong; it is right.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from pp4.errors import Pp4Error
from pp4.receipts.canonical import read_file, refuse, shown

NAMESPACE: Final = "pp4-receipt@v1"
SECONDS: Final = 10.0
"""How long one call of ssh-keygen may take."""
_SIGNATURE_LIMIT: Final = 64 * 1024
# ssh-keygen says this on standard output whenever it came as far as judging the signature; all
# other failures (no such user, no such option) leave the question open.
_JUDGED_BAD: Final = "Could not verify signature"


class State(StrEnum):
    """What is known about the signature of a file."""

    UNSIGNED = "unsigned"
    UNVERIFIABLE = "signed, not verifiable here"
    BAD = "bad signature"
    GOOD = "good signature"


@dataclass(frozen=True, slots=True)
class Signature:
    """A state and the words that go with it (the signer, or the reason)."""

    state: State
    detail: str


def signature_path(receipt: Path) -> Path:
    """Return where the signature of a receipt lies: beside it, ``.sig`` appended."""
    return receipt.with_name(f"{receipt.name}.sig")


def check_signature(
    receipt: Path, raw: bytes, allowed_signers: Path | None, program: str | None = None
) -> Signature:
    """Judge the detached signature over exactly the bytes that were verified.

    Args:
        receipt: the file; its signature is looked for beside it.
        raw: the bytes that were read from it.
        allowed_signers: who may sign, in ssh-keygen's format; without it a right signature is
            still not a known signer, and the state stays UNVERIFIABLE.
        program: path of ssh-keygen; looked up where None.

    Raises:
        RefusedError: UNREADABLE, where ``allowed_signers`` cannot be read.
    """
    if allowed_signers is not None:
        # Before anything else: whoever names a list means it, signed or not.
        _want_list(allowed_signers)
    path = signature_path(receipt)
    if not os.path.lexists(path):
        return Signature(State.UNSIGNED, f"no file {shown(path.name)} beside it")
    try:
        read_file(path, _SIGNATURE_LIMIT)
    except Pp4Error as error:
        return Signature(State.BAD, f"{shown(path.name)} is {error.refusal.found}")
    program = program or shutil.which("ssh-keygen")
    if program is None:
        return Signature(State.UNVERIFIABLE, "ssh-keygen is not installed")
    try:
        return _judge(program, path, raw, allowed_signers)
    except subprocess.TimeoutExpired:
        return Signature(State.UNVERIFIABLE, f"ssh-keygen gave no answer within {SECONDS} s")
    except (OSError, subprocess.SubprocessError) as error:
        return Signature(State.UNVERIFIABLE, shown(f"ssh-keygen: {error}"))


def _want_list(path: Path) -> None:
    try:
        read_file(path)
    except Pp4Error as error:
        where = shown(str(path))
        expected = "a readable list of allowed signers"
        refuse(error.refusal.code, where, expected, f"{where}: {error.refusal.found}")


def _judge(program: str, path: Path, raw: bytes, allowed_signers: Path | None) -> Signature:
    options = ["-n", NAMESPACE, "-s", str(path)]
    holds = _call([program, "-Y", "check-novalidate", *options], raw)
    if holds.returncode != 0:
        return _failed(holds)
    if allowed_signers is None:
        return Signature(State.UNVERIFIABLE, "no allowed signers were given")
    signers = ["-f", str(allowed_signers)]
    found = _call([program, "-Y", "find-principals", "-s", str(path), *signers], b"")
    if found.returncode != 0:
        return Signature(State.BAD, "the key is not one of the allowed signers")
    reply = found
    for principal in found.stdout.decode("utf-8", "replace").splitlines():
        reply = _call([program, "-Y", "verify", "-I", principal, *options, *signers], raw)
        if reply.returncode == 0:
            return Signature(State.GOOD, f"signed by {shown(principal)}")
    return _failed(reply)


def _failed(reply: subprocess.CompletedProcess[bytes]) -> Signature:
    said = (reply.stdout + reply.stderr).decode("utf-8", "replace")
    if _JUDGED_BAD in said:
        lines = reply.stderr.decode("utf-8", "replace").strip().splitlines()
        return Signature(State.BAD, shown(lines[0] if lines else _JUDGED_BAD))
    return Signature(State.UNVERIFIABLE, shown(f"ssh-keygen: {said.strip() or 'no words'}"))


def _call(argv: list[str], data: bytes) -> subprocess.CompletedProcess[bytes]:
    environment = {"PATH": os.defpath, "LC_ALL": "C"}
    return subprocess.run(
        argv, input=data, capture_output=True, timeout=SECONDS, check=False, env=environment
    )
