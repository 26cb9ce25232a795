"""Checks of the interpreter, the packages, the programs and the space of a machine."""

from __future__ import annotations

import re
from pathlib import Path

from pp4.doctor.model import Check, Status
from pp4.doctor.probes import Probes

OLDEST_PYTHON = (3, 11)
MIB = 1 << 20
#: Triton's cache, the compiled kernels and the records of one run fit into this several times.
TEMP_NEEDED = 512 * MIB
STATE_NEEDED = 64 * MIB
#: Both ranks' inboxes and the bundled model, with room to spare.
SHM_NEEDED = 64 * MIB
_REHEARSAL = "pair-qualify --dry-run"
_GPU_RANKS = "every run with both ranks on GPUs"


def check_python(probes: Probes) -> Check:
    """Look at the version of the interpreter."""
    version = probes.python()
    old = version[:2] < OLDEST_PYTHON
    oldest = ".".join(map(str, OLDEST_PYTHON))
    return Check(
        name="python",
        status=Status.FAIL if old else Status.OK,
        found=".".join(map(str, version)),
        needed_for="everything",
        todo=f"use Python {oldest} or newer" if old else "",
    )


def check_platform(probes: Probes) -> Check:
    """Look at the operating system; Triton is built for Linux alone."""
    system, machine = probes.platform()
    linux = system == "Linux"
    return Check(
        name="platform",
        status=Status.OK if linux else Status.MISSING,
        found=f"{system} {machine}",
        needed_for=f"{_REHEARSAL} and every run on GPUs (receipts verify anywhere)",
        todo="" if linux else "run these commands on Linux; Triton has no build for this system",
    )


def check_package(probes: Probes, name: str, oldest: tuple[int, ...] = ()) -> Check:
    """Look for a package of the ``gpu`` extra.

    Args:
        probes: the machine.
        name: the distribution.
        oldest: the first version that works; any does where it is empty.
    """
    version = probes.package(name)
    status, todo = Status.OK, ""
    if version is None:
        status, todo = Status.MISSING, "pip install 'pp4[gpu]'"
    elif _release(version) < oldest:
        oldest_text = ".".join(map(str, oldest))
        status, todo = Status.FAIL, f"pip install '{name}>={oldest_text}'"
    return Check(
        name=name,
        status=status,
        found=version or "not installed",
        needed_for=f"{_REHEARSAL} and every run on GPUs",
        todo=todo,
    )


def check_program(probes: Probes, name: str, needed_for: str, package: str) -> Check:
    """Look for a program on the search path.

    Args:
        probes: the machine.
        name: the program.
        needed_for: what goes without it.
        package: the usual package of an operating system that brings it.
    """
    path = probes.which(name)
    return Check(
        name=name,
        status=Status.OK if path else Status.MISSING,
        found=path or "not found",
        needed_for=needed_for,
        todo="" if path else f"install {package}",
    )


def check_space(probes: Probes, name: str, path: Path, needed: int, needed_for: str) -> Check:
    """Look at the space that is left for this user at a path.

    Args:
        probes: the machine.
        name: what the space is for.
        path: where; its nearest existing parent is measured if it does not exist.
        needed: bytes below which a run may end with a full disk.
        needed_for: the commands that write there.
    """
    free = probes.free_bytes(path)
    if free is None:
        return Check(name, Status.FAIL, f"{path} does not answer", needed_for, f"look at {path}")
    short = free < needed
    return Check(
        name=name,
        status=Status.WARN if short else Status.OK,
        found=f"{free // MIB} MiB free at {path}",
        needed_for=needed_for,
        todo=f"free at least {needed // MIB} MiB" if short else "",
    )


def check_shared_memory(probes: Probes) -> Check:
    """Look at ``/dev/shm``, through which NCCL connects two ranks of one host."""
    path = Path("/dev/shm")
    if probes.facts(path) is None:
        return Check(
            name="shared memory",
            status=Status.MISSING,
            found=f"no {path}",
            needed_for=_GPU_RANKS,
            todo=f"mount a tmpfs at {path}",
        )
    found = check_space(probes, "shared memory", path, SHM_NEEDED, _GPU_RANKS)
    if found.status is Status.WARN:
        # Containers give 64 MiB by default, and a write past the end kills a process (SIGBUS).
        todo = f"give the container at least {SHM_NEEDED // MIB} MiB (--shm-size) or free some"
        return Check(found.name, found.status, found.found, found.needed_for, todo)
    return found


def _release(version: str) -> tuple[int, int]:
    numbers = [int(n) for n in re.findall(r"[0-9]+", version)[:2]]
    major, minor = (*numbers, 0, 0)[:2]
    return major, minor
