"""Ask the driver about the GPUs of this host, through NVML: it only reads, and makes no context.

``python -m pp4.worker.gpus`` writes one JSON object on standard output: the report, or
``{"refusal": ...}`` with exit code 3 where there is nobody to ask.

NVML is reached through the package ``nvidia-ml-py``; see :mod:`pp4.worker.nvml` for what is said
where there is no answer.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from typing import Any

from pp4.errors import Code, Pp4Error, Refusal, RefusedError
from pp4.wire.gpus import UNSUPPORTED, Clocks, Gpu, GpuReport, Peers, Process, Unreadable
from pp4.worker.nvml import (
    AGGREGATE,
    CLOCKS,
    COMPUTE_MODES,
    EVENT_REASONS,
    GPU_SENSOR,
    MAX_LINKS,
    MEMORY_V2,
    P2P_INDICES,
    P2P_STATUSES,
    REASONS,
    STATES,
    TOPOLOGIES,
    UNCORRECTED,
    VOLATILE,
    Asker,
    decoded,
)


def read_gpus(nvml: Any = None) -> GpuReport:
    """Look at every GPU that this process can see.

    Args:
        nvml: the module to ask; the installed ``pynvml`` where it is None.

    Raises:
        RefusedError: ``MISSING_PACKAGE``, ``nvidia-ml-py`` is not installed; ``NO_GPU_PAIR``, there
            is no driver or it does not count its GPUs.
    """
    if nvml is None:
        nvml = installed()
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise no_driver("a loaded NVIDIA driver and its NVML", error) from error
    try:
        return _report(nvml)
    finally:
        # what was read stays true, whether or not the library lets go of it
        with suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


def installed() -> Any:
    """Return the module ``pynvml``.

    Raises:
        RefusedError: ``MISSING_PACKAGE``, ``nvidia-ml-py`` is not installed.
    """
    try:
        # the package ships no types
        import pynvml  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError as error:
        raise RefusedError(
            Refusal(
                Code.MISSING_PACKAGE,
                "NVML",
                "the package nvidia-ml-py",
                str(error),
                next="pip install 'pp4[gpu]'",
            )
        ) from error
    return pynvml


def no_driver(expected: str, error: Exception) -> RefusedError:
    """Build the refusal of a host whose driver does not answer."""
    return RefusedError(
        Refusal(Code.NO_GPU_PAIR, "NVML", expected, str(error), source="NVML", next="nvidia-smi")
    )


def _report(nvml: Any) -> GpuReport:
    try:
        count = nvml.nvmlDeviceGetCount()
    except nvml.NVMLError as error:
        raise no_driver("the number of GPUs", error) from error
    looked = {index: _look(nvml, index) for index in range(count)}
    seen = {index: one for index, one in looked.items() if not isinstance(one, Unreadable)}
    host = Asker(nvml)
    return GpuReport(
        driver_version=host.text("driver_version", "nvmlSystemGetDriverVersion"),
        cuda_driver_version=_cuda_version(host),
        nvml_version=host.text("nvml_version", "nvmlSystemGetNVMLVersion"),
        gpus=tuple(gpu for _, gpu in seen.values()),
        unreadable=tuple(one for one in looked.values() if isinstance(one, Unreadable)),
        p2p=tuple(
            _peers(Asker(nvml, seen[source][0], seen[target][0]), source, target)
            for source in seen
            for target in seen
            if source != target
        ),
        unanswered=host.unanswered,
    )


def _cuda_version(host: Asker) -> str | None:
    number = host.ask("cuda_driver_version", "nvmlSystemGetCudaDriverVersion_v2")
    return None if number is None else f"{number // 1000}.{number % 1000 // 10}"


def _look(nvml: Any, index: int) -> tuple[Any, Gpu] | Unreadable:
    """-> a GPU with its handle, or why there is none."""
    handle, reason = Asker(nvml).attempt(("nvmlDeviceGetHandleByIndex",), index)
    if handle is None:
        return Unreadable(index=index, reason=reason)
    gpu = Asker(nvml, handle)
    uuid, name = gpu.text("uuid", "nvmlDeviceGetUUID"), gpu.text("name", "nvmlDeviceGetName")
    if uuid is None or name is None:
        return Unreadable(index=index, reason="; ".join(gpu.unanswered.values()))
    return handle, _gpu(gpu, index, uuid, name)


def _gpu(gpu: Asker, index: int, uuid: str, name: str) -> Gpu:
    pci = gpu.ask("pci_bus_id", "nvmlDeviceGetPciInfo")
    ecc = "nvmlDeviceGetTotalEccErrors"
    mig, mig_pending = _mig(gpu)
    return Gpu(
        index=index,
        uuid=uuid,
        name=name,
        pci_bus_id=None if pci is None else decoded(pci.busId) or None,
        vbios=gpu.text("vbios", "nvmlDeviceGetVbiosVersion"),
        **memory_of(gpu),
        clocks=clocks_of(gpu, "clocks", "nvmlDeviceGetClockInfo"),
        max_clocks=clocks_of(gpu, "max_clocks", "nvmlDeviceGetMaxClockInfo"),
        temperature_c=temperature_c(gpu),
        power_mw=power_mw(gpu),
        power_limit_mw=gpu.ask("power_limit_mw", "nvmlDeviceGetEnforcedPowerLimit"),
        performance_state=_performance_state(gpu),
        slowed_by=slowed_by(gpu),
        ecc_uncorrected=gpu.ask("ecc_uncorrected", ecc, of=(UNCORRECTED, VOLATILE)),
        ecc_uncorrected_ever=gpu.ask("ecc_uncorrected_ever", ecc, of=(UNCORRECTED, AGGREGATE)),
        mig=mig,
        mig_pending=mig_pending,
        compute_mode=gpu.word("compute_mode", "nvmlDeviceGetComputeMode", COMPUTE_MODES),
        persistence=gpu.flag("persistence", "nvmlDeviceGetPersistenceMode"),
        nvlinks=_nvlinks(gpu),
        processes=_processes(gpu, "processes", "nvmlDeviceGetComputeRunningProcesses"),
        mps_processes=_processes(gpu, "mps_processes", "nvmlDeviceGetMPSComputeRunningProcesses"),
        unanswered=gpu.unanswered,
    )


def memory_of(gpu: Asker) -> dict[str, int | None]:
    """Ask for a GPU's memory, by the members of :class:`Gpu`.

    It is version 2 of the question: version 1 counts what the driver keeps as used.
    """
    parts = ("total", "used", "free", "reserved")
    memory, reason = gpu.attempt(("nvmlDeviceGetMemoryInfo",), MEMORY_V2)
    if memory is None:
        for part in parts:
            gpu.note(f"memory_{part}_bytes", reason)
    return {f"memory_{part}_bytes": getattr(memory, part, None) for part in parts}


def temperature_c(gpu: Asker) -> int | None:
    """Ask for the die's temperature; newer drivers have another question for it."""
    found: int | None = gpu.ask(
        "temperature_c", "nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature", of=(GPU_SENSOR,)
    )
    return found


def power_mw(gpu: Asker) -> int | None:
    """Ask for the power that is drawn, in milliwatts."""
    found: int | None = gpu.ask("power_mw", "nvmlDeviceGetPowerUsage")
    return found


def clocks_of(gpu: Asker, member: str, name: str) -> Clocks:
    """Ask for every clock by the function of a name."""
    return Clocks(
        **{clock: gpu.ask(f"{member}.{clock}", name, of=(kind,)) for clock, kind in CLOCKS.items()}
    )


def _performance_state(gpu: Asker) -> int | None:
    state: int | None = gpu.ask("performance_state", "nvmlDeviceGetPerformanceState")
    if state is not None and state not in STATES:
        gpu.note("performance_state", "unknown to the driver")
        return None
    return state


def slowed_by(gpu: Asker) -> tuple[str, ...] | None:
    """Ask why clocks are below their highest; reasons by name."""
    mask = gpu.ask(
        "slowed_by",
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetCurrentClocksThrottleReasons",
    )
    if mask is None:
        return None
    bits = [1 << place for place in range(mask.bit_length()) if mask >> place & 1]
    return tuple(EVENT_REASONS.get(bit, f"bit_{bit:#x}") for bit in bits)


def _mig(gpu: Asker) -> tuple[bool | None, bool | None]:
    """-> whether the GPU is cut into slices, now and after its next reset."""
    modes, reason = gpu.attempt(("nvmlDeviceGetMigMode",))
    if modes is None:
        gpu.note("mig", reason)
        gpu.note("mig_pending", reason)
        return None, None
    now, pending = modes
    return now != 0, pending != 0


def _nvlinks(gpu: Asker) -> int | None:
    """Count the active links; a number beyond the last link is an invalid argument."""
    states: list[tuple[int | None, str]]
    states = [gpu.attempt(("nvmlDeviceGetNvLinkState",), link) for link in range(MAX_LINKS)]
    failed = [why for _, why in states if why and why not in REASONS.values()]
    answers = [state for state, why in states if not why]
    if failed or not answers:
        gpu.note("nvlinks", failed[0] if failed else UNSUPPORTED)
        return None
    return sum(state == 1 for state in answers)


def _processes(gpu: Asker, member: str, name: str) -> tuple[Process, ...] | None:
    found = gpu.ask(member, name)
    if found is None:
        return None
    return tuple(Process(pid=one.pid, used_bytes=one.usedGpuMemory) for one in found)


def _peers(pair: Asker, source: int, target: int) -> Peers:
    status = "nvmlDeviceGetP2PStatus"
    words = {
        member: pair.word(member, status, P2P_STATUSES, index)
        for member, index in P2P_INDICES.items()
    }
    return Peers(
        source=source,
        target=target,
        **words,
        topology=pair.word("topology", "nvmlDeviceGetTopologyCommonAncestor", TOPOLOGIES),
        unanswered=pair.unanswered,
    )


def main(nvml: Any = None) -> int:
    """Write the report or the refusal as one JSON object; -> the exit code."""
    try:
        text, status = read_gpus(nvml).model_dump_json(), 0
    except Pp4Error as error:
        text, status = json.dumps({"refusal": error.refusal.as_dict()}), int(error.exit)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
    return status


if __name__ == "__main__":
    raise SystemExit(main())
