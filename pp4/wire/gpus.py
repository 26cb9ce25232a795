"""What a receiving host says about its GPUs; facts only, read by ``pp4.worker.gpus``.

Every ``None`` is a question that the driver did not answer; the reason stands in ``unanswered``
under the name of the member.  UUIDs belong into a receipt's ``private`` part.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from pp4.errors import Code, Refusal, RefusedError
from pp4.wire.frames import Model

Count = Annotated[int, Field(ge=0)]
Text = Annotated[str, Field(min_length=1)]

OK: Final = "ok"
"""The word of a peer status that says yes; any other one says why not."""
UNSUPPORTED: Final = "not supported"
"""The reason that says that a GPU has no such thing, in place of an answer that was not given."""


class Clocks(Model):
    """Clocks in MHz."""

    graphics: Count | None
    sm: Count | None
    memory: Count | None


class Process(Model):
    """A process with a context on a GPU, as the driver counts it.

    ``pid`` is a number of the driver's own process namespace: inside a container it need not be
    the number of any process that can be seen there.  ``used_bytes`` is None where it is not told.
    """

    pid: Count
    used_bytes: Count | None


class Gpu(Model):
    """One GPU at one moment.

    Attributes:
        index: NVML's number, by PCI address; CUDA may count in another order.
        uuid: ``GPU-`` and the number that the board keeps.
        name: model.
        pci_bus_id: ``domain:bus:device.function``.
        vbios: firmware version.
        memory_total_bytes: all memory; ``reserved`` + ``used`` + ``free``.
        memory_used_bytes: allocated, without what the driver keeps for itself.
        memory_free_bytes: free.
        memory_reserved_bytes: what the driver and the firmware keep for themselves.
        clocks: now.
        max_clocks: the highest that the GPU can run at.
        temperature_c: of the die.
        power_mw: drawn now, in milliwatts.
        power_limit_mw: enforced limit, in milliwatts.
        performance_state: 0 (fastest) to 15.
        slowed_by: why clocks are below their highest, by name; ``gpu_idle`` is one.
        ecc_uncorrected: uncorrected memory errors since the driver was loaded.
        ecc_uncorrected_ever: the same over the board's life.
        mig: whether the GPU is cut into slices; None with ``UNSUPPORTED`` where it cannot be.
        mig_pending: what ``mig`` becomes at the next reset.
        compute_mode: who may have a context, by name.
        persistence: whether the driver keeps the GPU initialised between processes.
        nvlinks: number of active NVLinks.
        processes: compute processes, ours among them.
        mps_processes: clients of an MPS server.
        unanswered: why a member is None.
    """

    index: Count
    uuid: Text
    name: Text
    pci_bus_id: Text | None
    vbios: Text | None
    memory_total_bytes: Count | None
    memory_used_bytes: Count | None
    memory_free_bytes: Count | None
    memory_reserved_bytes: Count | None
    clocks: Clocks
    max_clocks: Clocks
    temperature_c: int | None
    power_mw: Count | None
    power_limit_mw: Count | None
    performance_state: Annotated[int, Field(ge=0, le=15)] | None
    slowed_by: tuple[Text, ...] | None
    ecc_uncorrected: Count | None
    ecc_uncorrected_ever: Count | None
    mig: bool | None
    mig_pending: bool | None
    compute_mode: Text | None
    persistence: bool | None
    nvlinks: Count | None
    processes: tuple[Process, ...] | None
    mps_processes: tuple[Process, ...] | None
    unanswered: dict[str, str]

    @property
    def whole(self) -> bool:
        """Known not to be cut into slices, which have no peer access."""
        return self.mig is False or (self.mig is None and self.unanswered.get("mig") == UNSUPPORTED)


class Unreadable(Model):
    """A GPU that the driver counts and that cannot even be named."""

    index: Count
    reason: Text


class Peers(Model):
    """What the driver says of one GPU on its way to the memory of another.

    Attributes:
        source: index of the GPU that reaches out.
        target: index of the GPU whose memory it is.
        read: ``ok``, or why not.
        write: the same for stores.
        atomics: the same for native atomics.
        nvlink: ``ok`` where the way is NVLink.
        topology: the nearest thing that both have in common, by name.
        unanswered: why a member is None.
    """

    source: Count
    target: Count
    read: Text | None
    write: Text | None
    atomics: Text | None
    nvlink: Text | None
    topology: Text | None
    unanswered: dict[str, str]


class GpuReport(Model):
    """All GPUs that a process can see, and how they reach each other.

    Attributes:
        source: who was asked, for the processes as well.
        driver_version: of the kernel driver.
        cuda_driver_version: the newest CUDA that the driver speaks, ``major.minor``.
        nvml_version: of the library that was asked.
        gpus: by index.
        unreadable: what could not be looked at.
        p2p: every ordered pair of ``gpus``.
        unanswered: why a member is None.
    """

    source: Literal["nvml"] = "nvml"
    driver_version: Text | None
    cuda_driver_version: Text | None
    nvml_version: Text | None
    gpus: tuple[Gpu, ...]
    unreadable: tuple[Unreadable, ...]
    p2p: tuple[Peers, ...]
    unanswered: dict[str, str]

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        """A name means one GPU, and pairs are pairs of what is listed."""
        indices = [gpu.index for gpu in self.gpus]
        uuids = {gpu.uuid for gpu in self.gpus}
        lost = [one.index for one in self.unreadable]
        if indices != sorted(set(indices)) or len(uuids) != len(indices):
            raise ValueError("GPUs are listed by index, each index and UUID once")
        if len({*indices, *lost}) != len(indices) + len(lost):
            raise ValueError("an unreadable GPU has an index of its own")
        ways = [(way.source, way.target) for way in self.p2p]
        wanted = {(one, other) for one in indices for other in indices if one != other}
        if set(ways) != wanted or len(ways) != len(wanted):
            raise ValueError("p2p holds every ordered pair of GPUs once")
        return self


def both_ways(report: GpuReport, one: Gpu, other: Gpu) -> bool:
    """Whether two GPUs can read and write each other's memory, by the driver's own answers."""
    wanted = {(one.index, other.index), (other.index, one.index)}
    good = {(way.source, way.target) for way in report.p2p if (way.read, way.write) == (OK, OK)}
    return one.index != other.index and wanted <= good


def first_pair(report: GpuReport) -> tuple[str, str] | None:
    """UUIDs of the first two whole GPUs, by index, that reach each other both ways.

    Returns:
        None where there are no such two; what is not known counts as no.
    """
    whole = [gpu for gpu in report.gpus if gpu.whole]
    for one, other in combinations(whole, 2):
        if both_ways(report, one, other):
            return one.uuid, other.uuid
    return None


def find(report: GpuReport, name: str) -> Gpu:
    """Return the GPU of a UUID, of a beginning that only one UUID has, or of an index.

    Args:
        report: what the host said.
        name: ``GPU-...``, with at least one character after the dash, or a decimal index.

    Raises:
        RefusedError: ``NO_GPU_PAIR``, no GPU or more than one has that name.
    """
    exact = [gpu for gpu in report.gpus if name in (gpu.uuid, str(gpu.index))]
    begins = name.startswith("GPU-") and name != "GPU-"
    found = exact or [gpu for gpu in report.gpus if begins and gpu.uuid.startswith(name)]
    if len(found) == 1:
        return found[0]
    if found:
        raise _unnamed(name, "a name of one GPU", f"several: {_listed(found)}")
    lost = [one for one in report.unreadable if name == str(one.index)]
    if lost:
        raise _unnamed(name, "a GPU that can be read", lost[0].reason)
    raise _unnamed(name, "a GPU's UUID, its beginning or its index", _listed(report.gpus))


def _listed(gpus: Iterable[Gpu]) -> str:
    return ", ".join(f"{gpu.index}: {gpu.uuid}" for gpu in gpus) or "no GPU"


def _unnamed(name: str, expected: str, found: str) -> RefusedError:
    return RefusedError(
        Refusal(Code.NO_GPU_PAIR, f"GPU {name!r}", expected, found, next="nvidia-smi -L")
    )
