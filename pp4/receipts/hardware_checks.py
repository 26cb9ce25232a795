"""What a receipt of a physical run has to show beyond a rehearsal: devices, code, counts.

A run that failed and says so need not have come that far; what it does state about its GPUs has to
fit all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from pp4.errors import Code
from pp4.receipts.checks import Check, compare, require
from pp4.receipts.envelope import OpenLeaf
from pp4.receipts.gates import Gpu, Qualification, Solo
from pp4.receipts.plan_checks import floor_check

PAIR_KERNEL: Final = "sampled_fused.pair"
SOLO_KERNEL: Final = "sampled_fused.solo"
WORKER_PAIR: Final = "sampled_fused.pair.worker"
"""The kernel that a pair's worker loads: the same source, in the shape of a checkpoint."""
WORKER_SOLO: Final = "sampled_fused.solo.worker"
WORKER_BIAS: Final = "bias_rows.worker"
"""The kernel by which a worker makes Markov bias rows, for the rank of its checkpoint's head."""
KERNELS_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "qualification": (PAIR_KERNEL, SOLO_KERNEL),
    "solo": (SOLO_KERNEL,),
}
"""Kind to the names of the kernels that its gates launch, on each of its ranks; in scope ``full`` a
worker launches others."""
_OF_WORKER: Final = (WORKER_PAIR, WORKER_BIAS)
BOOT_LEAF: Final = "host.boot_id"
"""Where ``private`` holds the boot id, if the HOLD does not state it openly."""
_LIBRARIES: Final = {"the driver's": "libcuda.so", "the CUDA runtime's": "libcudart"}
"""A driver is mapped as ``libcuda.so.570.86.15``; the runtime of a wheel may carry a hash in its
name (``libcudart-d0da41ae.so.11.0``)."""

Physical = Qualification | Solo


def gpu_names(gpus: Iterable[Gpu], private: Iterable[str]) -> Check:
    """Check that each GPU's UUID is a leaf of ``private``."""
    leaves = [gpu.uuid for gpu in gpus]
    known = set(private)
    found = [leaf for leaf in leaves if leaf in known]
    return compare("gpu-names", Code.CROSS_CHECK, leaves, found)


def hardware_checks(receipt: Physical, *, good: bool) -> list[Check]:
    """Return the checks of a receipt that was made on GPUs.

    Args:
        receipt: of a pair or of a single GPU.
        good: whether its verdict is one that opens something, and must not be empty.
    """
    ranks = [0, 1] if isinstance(receipt, Qualification) else [0]
    checks = [
        compare("gpus", Code.DEVICE_MISMATCH, ranks, [gpu.rank for gpu in receipt.gpus]),
        _leaves_present(receipt),
        _names_differ(receipt),
        _values_differ(receipt, "uuid"),
        _values_differ(receipt, "pci_id"),
        _one_driver(receipt),
    ]
    if good:
        checks += [
            _places(receipt),
            _boot(receipt),
            *_kernels(receipt, ranks),
            _libraries(receipt),
            floor_check(receipt, receipt.kind),
        ]
        if isinstance(receipt, Qualification):
            expected = "the links between the GPUs, and what each may do with the other's memory"
            holds = bool(receipt.topology)
            found = f"{len(receipt.topology)} facts"
            checks.append(require("topology", Code.CROSS_CHECK, holds, expected, found))
    return checks


def _named(receipt: Physical) -> Iterator[str]:
    for gpu in receipt.gpus:
        yield gpu.uuid
        if gpu.pci_id is not None:
            yield gpu.pci_id


def _leaves_present(receipt: Physical) -> Check:
    leaves = list(_named(receipt))
    known = [name for name in leaves if name in receipt.private]
    return compare("gpu-names", Code.CROSS_CHECK, leaves, known)


def _names_differ(receipt: Physical) -> Check:
    leaves = list(_named(receipt))
    holds = len(set(leaves)) == len(leaves)
    expected = "a leaf of its own for each UUID and PCI id"
    return require("gpus-differ", Code.DEVICE_MISMATCH, holds, expected, ", ".join(leaves))


def _values_differ(receipt: Physical, member: str) -> Check:
    """Compare what the leaves hold: salted hashes alike say nothing until opened."""
    leaves = (receipt.private.get(getattr(gpu, member) or "") for gpu in receipt.gpus)
    values = [leaf.value for leaf in leaves if isinstance(leaf, OpenLeaf)]
    holds = len(set(values)) == len(values)
    found = f"{len(values)} open, {len(set(values))} different"
    name = "gpu-values-differ" if member == "uuid" else "gpu-places-differ"
    return require(name, Code.DEVICE_MISMATCH, holds, f"another {member} for each rank", found)


def _one_driver(receipt: Physical) -> Check:
    drivers = sorted({gpu.driver for gpu in receipt.gpus})
    found = ", ".join(drivers) or "none"
    return require("driver", Code.CROSS_CHECK, len(drivers) < 2, "one driver on one host", found)


def _places(receipt: Physical) -> Check:
    bare = [f"rank {gpu.rank}" for gpu in receipt.gpus if gpu.pci_id is None]
    found = f"none for {', '.join(bare)}" if bare else "each has one"
    return require("gpu-places", Code.CROSS_CHECK, not bare, "a PCI id of each GPU", found)


def _boot(receipt: Physical) -> Check:
    holds = receipt.hold.boot_id is not None or BOOT_LEAF in receipt.private
    expected = f"a boot id, in the HOLD or as {BOOT_LEAF}"
    return require("boot", Code.CROSS_CHECK, holds, expected, "one" if holds else "none")


def _kernels(receipt: Physical, ranks: list[int]) -> list[Check]:
    bare = [
        f"{kernel.name} rank {kernel.rank}"
        for kernel in receipt.kernels
        if kernel.ptx_sha256 is None or kernel.cubin_sha256 is None
    ]
    wanted = KERNELS_OF[receipt.kind] + (_OF_WORKER if receipt.scope == "full" else ())
    compiled: dict[str, set[int]] = {name: set() for name in wanted}
    for kernel in receipt.kernels:
        compiled.setdefault(kernel.name, set()).add(kernel.rank)
    odd = [
        f"{name} on {sorted(found)}" for name, found in compiled.items() if sorted(found) != ranks
    ]
    expected = f"{', '.join(wanted)} and any other on ranks {ranks}"
    return [
        compare("kernel-digests", Code.CROSS_CHECK, [], bare),
        require("kernel-ranks", Code.CROSS_CHECK, not odd, expected, "; ".join(odd) or expected),
    ]


def _libraries(receipt: Physical) -> Check:
    names = [library.name for library in receipt.libraries]
    lacks = [
        f"{whose} ({start})"
        for whose, start in _LIBRARIES.items()
        if not any(name.startswith(start) and ".so" in name for name in names)
    ]
    expected = f"{' and '.join(_LIBRARIES)} among the libraries"
    found = f"without {' and '.join(lacks)}" if lacks else expected
    return require("cuda-libraries", Code.CROSS_CHECK, not lacks, expected, found)
