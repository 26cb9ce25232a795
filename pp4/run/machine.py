"""Asks this machine about itself, in a process that may load what the coordinator may not."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from pp4.config import ON_GPUS, child_environment
from pp4.errors import Code, Pp4Error, Refusal, RefusedError, TimedOutError
from pp4.receipts.bindings import Subject
from pp4.receipts.canonical import parse, shown
from pp4.wire.facts import refusal_of
from pp4.wire.machine import Machine

MODULE: Final = "pp4.worker.machine"
PROGRAM: Sequence[str] = (sys.executable, "-P", "-m", MODULE)
_SOURCE = Path(__file__).resolve().parents[2]
LIMIT_S: Final = 180.0
"""How long it may take: it hashes libraries of several GB and compiles what is not cached."""


def ask_machine(
    argv: Sequence[str] | None = None,
    *,
    gpus: Sequence[str] = (),
    limit_s: float = LIMIT_S,
    environment: Mapping[str, str] = ON_GPUS,
    kinds: Mapping[int, type[Pp4Error]] = MappingProxyType({}),
    where: str = MODULE,
) -> Mapping[str, object]:
    """Return the one JSON object that a program of this package answers, not yet validated.

    Args:
        argv: the program to ask; where None, :data:`PROGRAM`, whose answer
            :class:`pp4.wire.machine.Machine` describes.
        gpus: UUIDs of the pair that it runs a block on; the first pair of all where there are none.
        limit_s: seconds until it is killed.
        environment: what it gets besides.
        kinds: as what its refusal is raised, by its exit code; as a RefusedError otherwise.
        where: the program's name in a refusal of ours.

    Raises:
        RefusedError: what it refuses itself, or ``UNREADABLE`` where it gives no such answer.
        TimedOutError: ``STEP_TIMEOUT``.
    """
    argv = [*(argv or PROGRAM), *gpus]
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=limit_s,
            check=False,
            # this very package: no other copy may answer in its place
            env=child_environment({**environment, "PYTHONPATH": str(_SOURCE)}),
        )
    except subprocess.TimeoutExpired as error:
        expected, found = f"an answer within {limit_s:g} s", "none; it was killed"
        raise TimedOutError(Refusal(Code.STEP_TIMEOUT, where, expected, found)) from error
    except OSError as error:
        found = error.strerror or str(error)
        raise RefusedError(
            Refusal(Code.UNREADABLE, where, "a program that starts", found)
        ) from error
    return _answer(done, kinds, where)


def ask_or_refusal(
    ask: Callable[[], Mapping[str, object]],
) -> tuple[Mapping[str, object] | None, Refusal | None]:
    """Return the facts, or why there are none: a machine without GPUs has a standing as well.

    Args:
        ask: where the facts come from.

    Raises:
        TimedOutError: ``STEP_TIMEOUT``.
    """
    try:
        return ask(), None
    except RefusedError as error:
        return None, error.refusal


def _answer(
    done: subprocess.CompletedProcess[bytes], kinds: Mapping[int, type[Pp4Error]], where: str
) -> Mapping[str, object]:
    try:
        tree = parse(done.stdout.strip(), where)
    except RefusedError:
        tree = None
    refused = tree.get("refusal") if isinstance(tree, dict) else None
    if isinstance(refused, dict):
        raise kinds.get(done.returncode, RefusedError)(refusal_of(refused))
    if done.returncode == 0 and isinstance(tree, dict):
        return tree
    said = done.stderr.decode("utf-8", "replace").strip().splitlines()
    found = f"exit code {done.returncode}, {said[-1] if said else json.dumps(tree)}"
    expected = "one JSON object, and exit code 0"
    raise RefusedError(Refusal(Code.UNREADABLE, where, expected, shown(found, 300)))


def subject_of(
    machine: Machine, source_digest: str, uuids: Collection[str] | None = None
) -> Subject:
    """Return what evidence is held against.

    Args:
        machine: what it says about itself.
        source_digest: of the installed source.
        uuids: the GPUs that are meant; those of them that are not here are missing from the
            result, and where none is here, or None is given, all GPUs of the machine stand in it.
    """
    meant = [gpu for gpu in machine.gpus if uuids and gpu.uuid in uuids] or machine.gpus
    digests: dict[str, set[str]] = {}
    for library in machine.libraries:
        digests.setdefault(library.name, set()).add(library.sha256)
    return Subject(
        source_digest=source_digest,
        gpu_models=frozenset(gpu.name for gpu in meant),
        gpu_uuids=frozenset(gpu.uuid for gpu in meant),
        drivers=frozenset(gpu.driver for gpu in meant),
        # Two files under one name equal no single digest, and both are said.
        libraries={name: " and ".join(sorted(found)) for name, found in digests.items()},
        kernels={
            f"{one.name}/{one.rank}/{one.target}": f"{one.ptx_sha256}:{one.cubin_sha256}"
            for one in machine.kernels
        },
    )
