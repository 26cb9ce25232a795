"""What a machine says about itself when evidence is held against it: GPUs, libraries, kernels.

``python -m pp4.worker.machine`` prints one such document on standard output, or
``{"refusal": {...}}`` and exit code 3 where it cannot know.  It compiles and loads the worker's
kernels on each GPU of the pair and hashes what is mapped after that, so that what is compared is
what would run.
"""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, StringConstraints, model_validator

from pp4.wire.facts import Library, Rank
from pp4.wire.frames import Model

Said = Annotated[str, StringConstraints(min_length=1, max_length=4096)]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class MachineGpu(Model):
    """One GPU that this process sees.

    Attributes:
        uuid: as the driver says it (``GPU-...``).
        name: model.
        driver: version of the driver.
        vbios: version of its firmware, None where it is not told.
    """

    uuid: Said
    name: Said
    driver: Said
    vbios: Said | None = None


class MachineKernel(Model):
    """One kernel as it is compiled here; names, ranks and targets as receipts have them.

    Attributes:
        name: ``sampled_fused.pair`` or ``sampled_fused.solo``; the pair's is indispensable.
        rank: of the pair.
        target: what it was compiled for.
        ptx_sha256: of the PTX text.
        cubin_sha256: of the binary.
    """

    name: Said
    rank: Rank
    target: Said
    ptx_sha256: Sha256
    cubin_sha256: Sha256


class Machine(Model):
    """All of it.

    Attributes:
        gpus: every GPU, each once.
        libraries: what is mapped once the kernels are loaded.
        kernels: each once by name, rank and target.
        boot_id: of the running system, None where it is not told.
    """

    gpus: tuple[MachineGpu, ...] = Field(min_length=1)
    libraries: tuple[Library, ...]
    kernels: tuple[MachineKernel, ...]
    boot_id: Said | None = None

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        uuids = [gpu.uuid for gpu in self.gpus]
        kernels = [(kernel.name, kernel.rank, kernel.target) for kernel in self.kernels]
        for what, names in (("GPU", uuids), ("kernel", kernels)):
            if len(set(names)) != len(names):
                raise ValueError(f"a {what} is listed twice")
        return self
