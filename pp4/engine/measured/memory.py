"""Memory by named source: of processes, of the engine's allocator, of GPUs."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import torch

from pp4.worker.gpu_readings import Reading

_RSS: Final = re.compile(rb"^Rss:\s+([0-9]+) kB$", re.MULTILINE)
_KIB: Final = 1024


@dataclass(slots=True)
class Sources:
    """What was found at one moment.

    Attributes:
        memory_bytes: by source.
        unsupported: sources that gave no number, and why.
    """

    memory_bytes: dict[str, int] = field(default_factory=dict)
    unsupported: dict[str, str] = field(default_factory=dict)

    def add(self, source: str, found: int | str) -> None:
        """Take a number of bytes, or the reason why there is none."""
        if isinstance(found, str):
            self.unsupported[source] = found
        else:
            self.memory_bytes[source] = found


class Resident:
    """Resident memory of processes that are told by name.

    Each is held by its directory below ``/proc``, which goes dead with the process: another one of
    the same number is never taken for it.

    Args:
        processes: pids by name; of this process and its children, or of the same user.
    """

    def __init__(self, processes: Mapping[str, int]) -> None:
        self._held: dict[str, int | str] = {}
        for name, pid in processes.items():
            self._held[name] = _opened(pid)

    def read(self) -> dict[str, int | str]:
        """Bytes by ``rss.NAME``, or the reason why there are none.

        It is ``Rss`` of ``smaps_rollup``, which the kernel counts page by page; the numbers of
        ``status`` and ``statm`` may be off by megabytes on a machine of many cores.
        """
        return {
            f"rss.{name}": held if isinstance(held, str) else _resident(held)
            for name, held in self._held.items()
        }

    def close(self) -> None:
        """Let go of the processes."""
        for held in self._held.values():
            if isinstance(held, int):
                os.close(held)
        self._held.clear()


def _opened(pid: int) -> int | str:
    try:
        return os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        return f"process {pid}: {error.strerror}"


def _resident(directory: int) -> int | str:
    try:
        file = os.open("smaps_rollup", os.O_RDONLY | os.O_CLOEXEC, dir_fd=directory)
        with open(file, "rb") as opened:
            found = _RSS.search(opened.read())
    except OSError as error:
        return f"smaps_rollup: {error.strerror}"
    if found is None:
        return "smaps_rollup: no Rss"
    return int(found[1]) * _KIB


def allocator(device: torch.device) -> dict[str, int | str]:
    """What torch has of a device's memory: handed out to tensors, and reserved from the driver."""
    if device.type != "cuda":
        reason = "torch keeps no count of memory on a CPU"
        return {"torch.allocated": reason, "torch.reserved": reason}
    return {
        "torch.allocated": torch.cuda.memory_allocated(device),
        "torch.reserved": torch.cuda.memory_reserved(device),
    }


def gpus(readings: Sequence[Reading]) -> dict[str, int | str]:
    """Used memory of each rank's GPU, as the driver counts it."""
    if not readings:
        return {"nvml": "no GPU takes part"}
    found: dict[str, int | str] = {}
    for rank, one in enumerate(readings):
        used = one.memory_used_bytes
        reason = one.unanswered.get("memory_used_bytes", "no answer")
        found[f"nvml.gpu.{rank}"] = reason if used is None else used
    return found
