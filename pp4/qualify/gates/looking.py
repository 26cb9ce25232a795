"""What the coordinator sees of processes and files by itself, without asking whoever it judges."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pp4.hold.open import OpenHold
from pp4.qualify.arms import Fact
from pp4.run.mapped import PATH, mapped
from pp4.wire.gpus import Gpu


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
            fields[PATH].startswith(start) and "/link-" in fields[PATH]
            for fields in mapped(owned.pid)
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
