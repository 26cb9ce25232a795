"""Why a qualification does not stand for a machine: every reason, and not only the first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from pp4.errors import Code
from pp4.receipts.admission import Subject
from pp4.receipts.bindings import facts_of, unlike
from pp4.receipts.canonical import shown
from pp4.receipts.checks import Check
from pp4.receipts.digests import installed_source
from pp4.receipts.envelope import OpenLeaf
from pp4.receipts.gates import Qualification
from pp4.receipts.hardware_checks import BOOT_LEAF
from pp4.run.machine import subject_of
from pp4.wire.machine import Machine

_WHAT: Final = {
    "gpu_models": "gpu",
    "gpu_uuids": "gpu",
    "drivers": "driver",
    "libraries": "library",
    "kernels": "kernel",
}
VBIOS: Final = "vbios"
"""Under which name the facts of a receipt's GPU hold the version of its firmware."""
_UNTOLD: Final = "not told"
"""What stands where a driver gave no answer."""


@dataclass(frozen=True, slots=True)
class StandingPolicy:
    """What ends a qualification beside a change of the machine.

    Attributes:
        max_age: how old it may be; any age where None.
        same_boot: whether a reboot ends it.
        now: the moment that age is counted from; the system's clock where None.
        source: digest of the source that runs; that of the installed package where None.
    """

    max_age: timedelta | None = None
    same_boot: bool = False
    now: datetime | None = None
    source: str | None = None

    @property
    def source_digest(self) -> str:
        """Digest of the source that a qualification has to be bound to."""
        return self.source or installed_source().digest


@dataclass(frozen=True, slots=True)
class Reason:
    """One thing that keeps a qualification from standing.

    Attributes:
        what: ``receipt``, ``scope``, ``verdict``, ``source``, ``machine``, ``gpu``, ``driver``,
            ``library``, ``kernel``, ``firmware``, ``age`` or ``boot``.
        code: as in a refusal.
        expected: short text.
        found: short text.
    """

    what: str
    code: Code
    expected: str
    found: str

    def as_dict(self) -> dict[str, str]:
        """Return plain strings for ``--json``."""
        return {
            "what": self.what,
            "code": str(self.code),
            "expected": self.expected,
            "found": self.found,
        }


def of_check(check: Check) -> Reason:
    """Return the reason that a failed check of the receipt is."""
    what = "age" if check.code is Code.TOO_OLD else "receipt"
    return Reason(what, check.code, check.expected, f"{check.name}: {check.found}")


def own_reasons(receipt: Qualification, policy: StandingPolicy) -> Iterator[Reason]:
    """Yield what the receipt says itself, whatever machine it is held against."""
    for name, wanted in (("verdict", "qualified"), ("scope", "full")):
        found = getattr(receipt, name)
        if found != wanted:
            more = ", which opens nothing" if name == "scope" else ""
            yield Reason(name, Code.NOT_PROVEN, f"{name} {wanted}", f"{name} {found}{more}")
    bound, installed = receipt.source.digest, policy.source_digest
    if bound != installed:
        yield Reason("source", Code.HISTORICAL, f"source {installed}", f"source {bound}")


def changed(receipt: Qualification, machine: Machine, policy: StandingPolicy) -> Iterator[Reason]:
    """Yield every way in which the machine is another than the one that was qualified."""
    subject = subject_through(receipt, machine, policy)
    for name, found in unlike(receipt, subject, tuple(_WHAT)):
        expected = f"{name} as on this machine"
        yield Reason(_WHAT[name], Code.SUBJECT_MISMATCH, expected, found)
    firmware = {gpu.uuid: gpu.vbios for gpu in machine.gpus}
    for gpu in receipt.gpus:
        leaf, bound = receipt.private.get(gpu.uuid), gpu.facts.get(VBIOS)
        # A GPU that is not here has been said already.
        if bound in (None, _UNTOLD) or not isinstance(leaf, OpenLeaf) or leaf.value not in firmware:
            continue
        here = firmware[leaf.value] or _UNTOLD
        if here != bound:
            place = f"rank {gpu.rank}, {VBIOS}"
            found = shown(f"{place}: {bound} against {here}")
            yield Reason("firmware", Code.SUBJECT_MISMATCH, "firmware as on this machine", found)
    if policy.same_boot:
        yield from _boot(receipt, machine)


def _boot(receipt: Qualification, machine: Machine) -> Iterator[Reason]:
    leaf = receipt.private.get(BOOT_LEAF)
    bound = receipt.hold.boot_id or (leaf.value if isinstance(leaf, OpenLeaf) else None)
    if bound is None or bound != machine.boot_id:
        found = f"{bound or _UNTOLD} against {machine.boot_id or _UNTOLD}"
        yield Reason("boot", Code.SUBJECT_MISMATCH, "no reboot since it was made", shown(found))


def subject_through(
    receipt: Qualification | None, machine: Machine, policy: StandingPolicy
) -> Subject:
    """Return this machine as a receipt's GPUs see it: other GPUs of the host do not matter."""
    uuids = facts_of(receipt).get("gpu_uuids") if receipt is not None else None
    return subject_of(
        machine, policy.source_digest, uuids if isinstance(uuids, frozenset) else None
    )
