"""Does a qualification allow this worker to switch on: GPUs at first, and later what it loaded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

from pp4.errors import Code, Refusal, RefusedError
from pp4.receipts.bindings import differences, facts_of
from pp4.receipts.canonical import shown
from pp4.receipts.envelope import OpenLeaf
from pp4.receipts.gates import Qualification
from pp4.receipts.hardware_checks import PAIR_KERNEL, WORKER_BIAS
from pp4.receipts.verify import verify_bytes
from pp4.wire.facts import Library, Primed
from pp4.wire.machine import MachineGpu

WHERE: Final = "worker with the switch on"
UNTOLD: Final = "not told"
"""What stands where a driver gave no answer."""
_QUALIFY: Final = "pp4 pair-qualify --hold FILE --scope full"


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a worker has loaded once it is primed.

    Attributes:
        kernels: of both ranks, the sampled ones.
        libraries: that rank 0 has mapped.
        bias: what makes bias rows on each rank, where that is a kernel.
    """

    kernels: Sequence[Primed]
    libraries: Sequence[Library]
    bias: Sequence[Primed] = ()


def qualified(raw: bytes, source_digest: str, file: str) -> Qualification:
    """Return a receipt that may allow the switch, as far as the receipt itself says.

    Args:
        raw: bytes of its file.
        source_digest: of the source that runs.
        file: what to call it.

    Raises:
        RefusedError: the code of the first check that fails; ``WRONG_KIND``; ``NOT_PROVEN``, its
            verdict or scope opens nothing; ``HISTORICAL``, it is about another source.
    """
    report = verify_bytes([(file, raw)])
    for check in report.failures:
        _refuse(check.code, f"{file}: {check.name}", check.expected, check.found)
    receipt = report.files[0].receipt
    if not isinstance(receipt, Qualification):
        kind = "no receipt" if receipt is None else str(receipt.kind)
        _refuse(Code.WRONG_KIND, file, "qualification", kind)
    for name, wanted in (("verdict", "qualified"), ("scope", "full")):
        found = getattr(receipt, name)
        if found != wanted:
            _refuse(Code.NOT_PROVEN, file, f"{name} {wanted}", f"{name} {found}")
    if receipt.source.digest != source_digest:
        found = f"historical: source {receipt.source.digest}"
        _refuse(Code.HISTORICAL, file, f"source {source_digest}", found)
    return receipt


def require_gpus(receipt: Qualification, gpus: Sequence[str], here: Sequence[MachineGpu]) -> None:
    """Refuse GPUs that are not those of a receipt, rank by rank.

    Args:
        receipt: about two GPUs.
        gpus: UUIDs, rank 0 first.
        here: the GPUs of this machine.

    Raises:
        RefusedError: ``SUBJECT_MISMATCH``.
    """
    known = {gpu.uuid: gpu for gpu in here}
    if len(gpus) != len(receipt.gpus):
        expected, found = f"the {len(receipt.gpus)} GPUs of the receipt", f"{len(gpus)}"
        _refuse(Code.SUBJECT_MISMATCH, f"{WHERE}, GPUs", expected, found)
    for bound, uuid in zip(sorted(receipt.gpus, key=lambda gpu: gpu.rank), gpus, strict=True):
        what = f"rank {bound.rank}"
        leaf = receipt.private.get(bound.uuid)
        value = leaf.value if isinstance(leaf, OpenLeaf) else "a UUID that was redacted"
        _require_same(f"{what}, UUID", value, uuid)
        if uuid not in known:
            found = ", ".join(known) or "no GPU"
            _refuse(Code.SUBJECT_MISMATCH, f"{WHERE}, {what}", f"{uuid} on this machine", found)
        _require_same(f"{what}, model", bound.name, known[uuid].name)
        _require_same(f"{what}, driver", bound.driver, known[uuid].driver)
        firmware = bound.facts.get("vbios", UNTOLD)
        if firmware != UNTOLD:
            _require_same(f"{what}, firmware", str(firmware), known[uuid].vbios or UNTOLD)


def require_loaded(receipt: Qualification, loaded: Loaded) -> None:
    """Refuse a worker that has loaded anything else than was qualified.

    Each kernel has to be one of the pair's kernels that the receipt lists for its rank, by PTX and
    by binary, and what makes bias rows the one that the worker of gate 6 had.  Libraries are
    compared by name: a worker and the gates load more than the other.

    Raises:
        RefusedError: ``SUBJECT_MISMATCH``.
    """
    _require_kernels(receipt, loaded.kernels, PAIR_KERNEL)
    _require_kernels(receipt, loaded.bias, WORKER_BIAS)
    digests: dict[str, set[str]] = {}
    for library in loaded.libraries:
        digests.setdefault(library.name, set()).add(library.sha256)
    # two files under one name equal no single digest
    mapped = {name: " and ".join(sorted(found)) for name, found in digests.items()}
    for found in differences("libraries", facts_of(receipt).get("libraries", {}), mapped):
        _refuse(Code.SUBJECT_MISMATCH, f"{WHERE}, libraries", "as in the receipt", found)


def _require_kernels(receipt: Qualification, kernels: Sequence[Primed], name: str) -> None:
    """Refuse kernels that are not, rank by rank, of those that a receipt has under a name."""
    ranks = {one.rank for one in kernels}
    if ranks != {0, 1}:
        found = f"those of ranks {sorted(ranks)}"
        _refuse(Code.SUBJECT_MISMATCH, f"{WHERE}, {name}", "kernels of both ranks", found)
    for one in kernels:
        known = set(_kernels(receipt, name, one.rank, one.target))
        if (one.ptx_sha256, one.cubin_sha256) not in known:
            where = f"{WHERE}, kernel {one.key} of rank {one.rank} for {one.target}"
            told = " or ".join(f"ptx {ptx}, cubin {cubin}" for ptx, cubin in sorted(known))
            found = f"ptx {one.ptx_sha256}, cubin {one.cubin_sha256}"
            _refuse(Code.SUBJECT_MISMATCH, shown(where, 300), told or "one that was run", found)


def _kernels(
    receipt: Qualification, name: str, rank: int, target: str
) -> Iterator[tuple[str, str]]:
    """PTX and cubin of every kernel of a name, or below it, that a receipt has for a rank."""
    for kernel in receipt.kernels:
        named = kernel.name == name or kernel.name.startswith(f"{name}.")
        whole = kernel.ptx_sha256 is not None and kernel.cubin_sha256 is not None
        if named and whole and (kernel.rank, kernel.target) == (rank, target):
            yield str(kernel.ptx_sha256), str(kernel.cubin_sha256)


def _require_same(what: str, bound: str, here: str) -> None:
    if bound != here:
        _refuse(Code.SUBJECT_MISMATCH, f"{WHERE}, {what}", bound, here)


def _refuse(code: Code, where: str, expected: str, found: str) -> NoReturn:
    raise RefusedError(Refusal(code, where, expected, found, next=_QUALIFY))
