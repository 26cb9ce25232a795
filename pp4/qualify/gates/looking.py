"""What the coordinator sees of processes and files by itself, without asking whoever it judges."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from pp4.hold.open import OpenHold
from pp4.qualify.arms import Fact
from pp4.wire.gpus import Gpu

_PATH = 5
"""Fields of a line of ``/proc/<pid>/maps`` before the path."""


def _mapped(pid: int) -> Iterator[list[str]]:
    try:
        lines = Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()
    except OSError:
        return  # it is gone, and has nothing mapped
    for line in lines:
        fields = line.split(maxsplit=_PATH)
        if len(fields) > _PATH:
            yield fields


def shared_objects(pid: int, outside: Path) -> str:
    """Digest of which shared objects a process maps, by identity; empty where it maps none.

    outside: a directory whose files are left out: what a compiler built for each rank.
    """
    start = f"{outside.resolve()}/"
    found = {
        " ".join(fields[3:])
        for fields in _mapped(pid)
        if ".so" in fields[_PATH] and not fields[_PATH].startswith(start)
    }
    return hashlib.sha256("\n".join(sorted(found)).encode()).hexdigest() if found else ""


def rank_pids(hold: OpenHold) -> list[int]:
    """Processes of the ranks that run, in the order in which they were started."""
    return [one.pid for one in hold.running() if "-rank-" in one.label]


def workspaces_on_disk(hold: OpenHold) -> tuple[str, ...]:
    """Workspaces of any owner of this HOLD that still have a name."""
    found = hold.directory.rglob("link-*")
    return tuple(sorted(str(path.relative_to(hold.directory)) for path in found))


def workspaces_mapped(hold: OpenHold) -> tuple[str, ...]:
    """Labels of live processes of this HOLD that map a workspace, also one without a name."""
    start = f"{hold.directory.resolve()}/"
    return tuple(
        owned.label
        for owned in hold.running()
        if any(
            fields[_PATH].startswith(start) and "/link-" in fields[_PATH]
            for fields in _mapped(owned.pid)
        )
    )


def compiled(compiled: Path) -> int:
    """Binaries in the compilers' caches of both ranks."""
    return sum(1 for _ in compiled.rglob("*.cubin"))


def facts(gpus: Sequence[Gpu]) -> dict[str, Fact]:
    """What a receipt keeps of GPUs at one moment, in the HOLD's order and without their names."""
    return {
        "source": "nvml",
        "memory_used_bytes": tuple(str(one.memory_used_bytes) for one in gpus),
        "processes": tuple(
            "not told" if one.processes is None else str(len(one.processes)) for one in gpus
        ),
        "sm_mhz": tuple(_text(one.clocks.sm) for one in gpus),
        "memory_mhz": tuple(_text(one.clocks.memory) for one in gpus),
        "temperature_c": tuple(_text(one.temperature_c) for one in gpus),
        "power_mw": tuple(_text(one.power_mw) for one in gpus),
        "slowed_by": tuple(
            "not told" if one.slowed_by is None else " ".join(one.slowed_by) for one in gpus
        ),
        "ecc_uncorrected": tuple(_text(one.ecc_uncorrected) for one in gpus),
    }


def _text(value: int | None) -> str:
    return "not told" if value is None else str(value)
