"""What is looked at after a round: memory by named source, and how the GPUs are."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Final

import torch

from pp4.errors import BadInputError
from pp4.receipts.envelope import Facts
from pp4.worker.gpu_readings import Reading

_RSS: Final = re.compile(rb"^Rss:\s+([0-9]+) kB$", re.MULTILINE)
_KIB: Final = 1024
_READ: Final = os.O_RDONLY | os.O_CLOEXEC
_DIRECTORY: Final = _READ | os.O_DIRECTORY
_SEEN: Final = ("sm_mhz", "memory_mhz", "power_mw", "temperature_c", "slowed_by")


Found = dict[str, int | str]
"""Bytes by source, or the reason why it gives no number."""


class Resident:
    """Resident memory of processes that are told by name.

    Each is held by its directory below ``/proc``, which goes dead with the process: another one of
    the same number is never taken for it.

    Args:
        processes: pids by name; of the same user.

    Raises:
        BadInputError: one of them is not there.
    """

    def __init__(self, processes: Mapping[str, int]) -> None:
        self._held: dict[str, int] = {}
        for name, pid in processes.items():
            try:
                self._held[name] = os.open(f"/proc/{pid}", _DIRECTORY)
            except OSError as error:
                self.close()
                found = f"{pid}: {error.strerror}"
                raise BadInputError.of(f"process {name}", "one that runs", found) from error

    def read(self) -> Found:
        """Bytes of each process, or the reason why there are none.

        ``rss.NAME`` is ``Rss`` of ``smaps_rollup``, which the kernel counts page by page: the
        numbers of ``status`` and ``statm`` may be off by megabytes on a machine of many cores.
        """
        return {f"rss.{name}": _resident(held) for name, held in self._held.items()}

    def close(self) -> None:
        """Let go of the processes."""
        for held in self._held.values():
            os.close(held)
        self._held.clear()


def _resident(directory: int) -> int | str:
    try:
        with os.fdopen(os.open("smaps_rollup", _READ, dir_fd=directory), "rb") as file:
            found = _RSS.search(file.read())
    except OSError as error:
        return f"smaps_rollup: {error.strerror}"
    return "smaps_rollup: no Rss" if found is None else int(found[1]) * _KIB


def allocator(device: torch.device) -> Found:
    """What torch has of a device's memory: handed out to tensors, and reserved from the driver."""
    if device.type != "cuda":
        reason = "torch keeps no count of memory on a CPU"
        return {"torch.allocated": reason, "torch.reserved": reason}
    return {
        "torch.allocated": torch.cuda.memory_allocated(device),
        "torch.reserved": torch.cuda.memory_reserved(device),
    }


def gpu_memory(readings: Sequence[Reading]) -> Found:
    """Used memory of each rank's GPU, as the driver counts it."""
    if not readings:
        return {"nvml": "no GPU takes part"}
    found: Found = {}
    for rank, one in enumerate(readings):
        used = one.memory_used_bytes
        reason = one.unanswered.get("memory_used_bytes", "no answer")
        found[f"nvml.gpu.{rank}"] = reason if used is None else used
    return found


def gpu_facts(readings: Sequence[Reading]) -> Facts:
    """Clocks, power, temperature and what slows each rank's GPU, as ``gpu.RANK.NAME``.

    What was not answered is left out, and named with its reason in ``gpu.RANK.unanswered``.
    """
    facts: Facts = {}
    for rank, one in enumerate(readings):
        for name in _SEEN:
            found = getattr(one, name)
            if found is not None:
                facts[f"gpu.{rank}.{name}"] = found
        if one.unanswered:
            reasons = tuple(f"{name}: {why}" for name, why in sorted(one.unanswered.items()))
            facts[f"gpu.{rank}.unanswered"] = reasons
    return facts
