"""Looks at some GPUs again and again, through an NVML that stays open; it only reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pp4.errors import Code, Refusal, RefusedError
from pp4.worker.gpus import (
    clocks_of,
    installed,
    memory_of,
    no_driver,
    power_mw,
    slowed_by,
    temperature_c,
)
from pp4.worker.nvml import Asker


@dataclass(frozen=True, slots=True)
class Reading:
    """One GPU at one moment; None is what was not answered, and why stands in ``unanswered``.

    Attributes:
        memory_used_bytes: allocated, without what the driver keeps for itself.
        sm_mhz: clock of the multiprocessors.
        memory_mhz: clock of the memory.
        power_mw: drawn, in milliwatts.
        temperature_c: of the die.
        slowed_by: why clocks are below their highest, by name.
        unanswered: reasons, by member.
    """

    memory_used_bytes: int | None
    sm_mhz: int | None
    memory_mhz: int | None
    power_mw: int | None
    temperature_c: int | None
    slowed_by: tuple[str, ...] | None
    unanswered: Mapping[str, str]


class GpuReadings:
    """GPUs that are looked at; ``close`` it.

    Args:
        uuids: of the GPUs, in the order of the readings.
        nvml: the module to ask; the installed ``pynvml`` where it is None.

    Raises:
        RefusedError: ``MISSING_PACKAGE``, ``nvidia-ml-py`` is not installed; ``NO_GPU_PAIR``, there
            is no driver, or no such GPU.
    """

    def __init__(self, uuids: Sequence[str], nvml: Any = None) -> None:
        self._nvml = installed() if nvml is None else nvml
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError as error:
            raise no_driver("a loaded NVIDIA driver and its NVML", error) from error
        try:
            known = self._known()
            self._handles = [_one(known, uuid) for uuid in uuids]
        except RefusedError:
            self.close()
            raise

    def _known(self) -> dict[str, Any]:
        """Handles by UUID."""
        try:
            count = self._nvml.nvmlDeviceGetCount()
        except self._nvml.NVMLError as error:
            raise no_driver("the number of GPUs", error) from error
        found = {}
        for index in range(count):
            handle, _ = Asker(self._nvml).attempt(("nvmlDeviceGetHandleByIndex",), index)
            if handle is not None:
                uuid = Asker(self._nvml, handle).text("uuid", "nvmlDeviceGetUUID")
                if uuid is not None:
                    found[uuid] = handle
        return found

    def read(self) -> tuple[Reading, ...]:
        """Look at each GPU."""
        return tuple(self._reading(handle) for handle in self._handles)

    def _reading(self, handle: Any) -> Reading:
        gpu = Asker(self._nvml, handle)
        memory, clocks = memory_of(gpu), clocks_of(gpu, "clocks", "nvmlDeviceGetClockInfo")
        return Reading(
            memory_used_bytes=memory["memory_used_bytes"],
            sm_mhz=clocks.sm,
            memory_mhz=clocks.memory,
            power_mw=power_mw(gpu),
            temperature_c=temperature_c(gpu),
            slowed_by=slowed_by(gpu),
            unanswered=gpu.unanswered,
        )

    def close(self) -> None:
        """Let go of NVML."""
        with suppress(self._nvml.NVMLError):
            self._nvml.nvmlShutdown()


def _one(known: Mapping[str, Any], uuid: str) -> Any:
    if uuid not in known:
        found = f"{', '.join(sorted(known)) or 'no GPU'}"
        raise RefusedError(
            Refusal(Code.NO_GPU_PAIR, "NVML", f"GPU {uuid}", found, next="nvidia-smi -L")
        )
    return known[uuid]
