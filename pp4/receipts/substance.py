"""Does a receipt with gates hold what a good verdict rests on, and does it all fit together?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from pp4.errors import Code
from pp4.receipts.checks import Check, compare, require
from pp4.receipts.gates import GateBody, Qualification

WORKER_GATE: Final = 6
WORKER_ARM: Final = "worker-equals-archive"
"""The arm that runs a worker, and says with what."""
_INPUTS: Final = ("checkpoint_sha256", "input_set_sha256")
_REFERENCES: Final = (("identity_reference", "solo"), ("identity_reference", "whole_worker"))


def substance_checks(receipt: GateBody, *, good: bool) -> list[Check]:
    """Return the checks of kernels, libraries and settings.

    Args:
        receipt: a receipt with gates.
        good: whether its verdict is one that opens something, and must not be empty.
    """
    checks = [_kernels_once(receipt), _libraries_once(receipt)]
    if good:
        for name, count in (
            ("kernels", len(receipt.kernels)),
            ("libraries", len(receipt.libraries)),
            ("settings", len(receipt.settings)),
        ):
            found = f"{count} {name}"
            checks.append(require(name, Code.CROSS_CHECK, count > 0, "at least one", found))
        checks.append(_ranks_alike(receipt))
    return checks


def _kernels_once(receipt: GateBody) -> Check:
    counts = Counter((kernel.name, kernel.rank, kernel.target) for kernel in receipt.kernels)
    twice = [
        f"{name} rank {rank} {target}"
        for (name, rank, target), count in counts.items()
        if count > 1
    ]
    expected = "each kernel once by name, rank and target"
    found = f"twice: {'; '.join(twice)}" if twice else expected
    return require("kernels-once", Code.CROSS_CHECK, not twice, expected, found)


def _libraries_once(receipt: GateBody) -> Check:
    digests: dict[str, set[str]] = {}
    for library in receipt.libraries:
        digests.setdefault(library.name, set()).add(library.sha256)
    several = [name for name, found in digests.items() if len(found) > 1]
    expected = "one digest for each name of a library"
    found = f"several: {'; '.join(several)}" if several else expected
    return require("libraries-once", Code.CROSS_CHECK, not several, expected, found)


def _ranks_alike(receipt: GateBody) -> Check:
    """Compare what both ranks ran under one name; a kernel of one rank alone has no twin."""
    forms: dict[str, dict[int, set[tuple[str, str | None, str | None]]]] = {}
    for kernel in receipt.kernels:
        form = (kernel.target, kernel.ptx_sha256, kernel.cubin_sha256)
        forms.setdefault(kernel.name, {}).setdefault(kernel.rank, set()).add(form)
    differ = [name for name, ranks in forms.items() if not _one_form(ranks)]
    expected = "the same targets, PTX and cubins on both ranks"
    found = f"different: {'; '.join(differ)}" if differ else expected
    return require("kernels-alike", Code.KERNELS_DIFFER, not differ, expected, found)


def _one_form(ranks: Mapping[int, set[tuple[str, str | None, str | None]]]) -> bool:
    first, *others = ranks.values()
    return all(other == first for other in others)


def reference_checks(receipt: Qualification) -> list[Check]:
    """Return what a good verdict of a physical pair demands beyond its arms: soak and references.

    Args:
        receipt: a qualification with a good verdict.
    """
    checks = []
    soak = receipt.soak
    if soak is not None:
        sound = soak.mismatches == "0" and all(count >= 0 for count in soak.wait_histogram)
        found = (
            f"{soak.mismatches} mismatches, smallest count {min(soak.wait_histogram, default=0)}"
        )
        expected = "no mismatch, and counts of at least 0"
        checks.append(require("soak", Code.CROSS_CHECK, sound, expected, found))
    if receipt.scope == "full":
        held = {(reference.role, reference.kind) for reference in receipt.evidence}
        lacks = [f"{kind} as {role}" for role, kind in _REFERENCES if (role, kind) not in held]
        lacks += [name for name in _INPUTS if getattr(receipt, name) is None]
        expected = "both identity references, the checkpoint and the input set"
        found = f"without {', '.join(lacks)}" if lacks else expected
        checks.append(require("full-references", Code.CROSS_CHECK, not lacks, expected, found))
        checks.append(_worker_inputs(receipt))
    return checks


def _worker_inputs(receipt: Qualification) -> Check:
    """What the receipt is about has to be what its worker was run with."""
    arms = (arm for gate in receipt.gates if gate.gate == WORKER_GATE for arm in gate.arms)
    facts = next((arm.facts for arm in arms if arm.arm == WORKER_ARM), {})
    wanted = {name: getattr(receipt, name) for name in _INPUTS}
    found = {name: facts.get(name) for name in _INPUTS}
    return compare("worker-inputs", Code.CROSS_CHECK, wanted, found)
