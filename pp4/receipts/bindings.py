"""What evidence is bound to, and whether that is the same everywhere and here.

Pure comparison: receipts against each other and against what is known of the machine at hand.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import combinations

from pp4.errors import Code, Refusal, RefusedError
from pp4.receipts.canonical import shown
from pp4.receipts.envelope import Fact, OpenLeaf
from pp4.receipts.gates import Gpu, Kernel
from pp4.receipts.hardware_checks import PAIR_KERNEL
from pp4.receipts.models import Receipt


@dataclass(frozen=True, slots=True)
class ClosedHold:
    """How an earlier window ended, as read from its tombstone."""

    hold_id: str
    fence: int
    restored: bool


@dataclass(frozen=True, slots=True)
class Subject:
    """What is known of the machine, the model and the plan that evidence has to match.

    A laptop does not know a receiving host's libraries before contact: None means "not known
    yet".  What a command cannot do without is refused while it is None.

    Attributes:
        source_digest: of the installed source.
        gpu_models: names of the GPUs.
        gpu_uuids: UUIDs of the GPUs.
        drivers: driver versions in use.
        libraries: loaded library to sha256.
        kernels: see :func:`kernel_facts`.
        checkpoint_sha256: the drafter's checkpoint.
        input_set_sha256: the fixed inputs of the whole-worker run.
        model_sha256: the model section of the HOLD file.
        shapes: batch sizes and depths that will be measured.
        settings: everything else that a measurement fixes.
        first_closed: end of the first window of a measurement.
        bound_ns: how long the window may last.
        now: the moment to compare expiry with.
    """

    source_digest: str
    gpu_models: frozenset[str] | None = None
    gpu_uuids: frozenset[str] | None = None
    drivers: frozenset[str] | None = None
    libraries: Mapping[str, str] | None = None
    kernels: Mapping[str, str] | None = None
    checkpoint_sha256: str | None = None
    input_set_sha256: str | None = None
    model_sha256: str | None = None
    shapes: Mapping[str, Fact] | None = None
    settings: Mapping[str, Fact] | None = None
    first_closed: ClosedHold | None = None
    bound_ns: int | None = None
    now: datetime | None = None


def kernel_facts(kernels: Sequence[Kernel]) -> dict[str, str]:
    """Return ``name/rank/target`` to ``ptx:cubin`` for compiled specialisations."""
    return {
        f"{kernel.name}/{kernel.rank}/{kernel.target}": f"{kernel.ptx_sha256}:{kernel.cubin_sha256}"
        for kernel in kernels
    }


def facts_of(receipt: Receipt) -> dict[str, object]:
    """Return what a receipt is bound to, by the names of :class:`Subject`; only what it states."""
    facts: dict[str, object] = {}
    gpus: Sequence[Gpu] = getattr(receipt, "gpus", ())
    if gpus:
        facts["gpu_models"] = frozenset(gpu.name for gpu in gpus)
        facts["drivers"] = frozenset(gpu.driver for gpu in gpus)
        leaves = [receipt.private.get(gpu.uuid) for gpu in gpus]
        # A redacted UUID cannot match any: it is left out of the set and the sets differ.
        facts["gpu_uuids"] = frozenset(x.value for x in leaves if isinstance(x, OpenLeaf))
    if libraries := getattr(receipt, "libraries", ()):
        facts["libraries"] = {library.name: library.sha256 for library in libraries}
    if kernels := getattr(receipt, "kernels", ()):
        facts["kernels"] = kernel_facts(kernels)
    for name in ("checkpoint_sha256", "input_set_sha256", "model_sha256"):
        value = getattr(receipt, name, None)
        if value is not None:
            facts[name] = value
    for name in ("shapes", "settings"):
        value = getattr(receipt, name, None)
        if value is not None:
            facts[name] = {key: _plain(item) for key, item in value.items()}
    return facts


def require_bound(
    receipts: Mapping[str, Receipt],
    subject: Subject,
    names: Sequence[str],
    pair_names: Mapping[str, frozenset[str]],
) -> None:
    """Refuse evidence that is bound to something else.

    Args:
        receipts: label to receipt.
        subject: this machine and plan.
        names: facts that all evidence must share, with each other and with the subject.
        pair_names: label to facts that are compared between that receipt and the subject only.

    Raises:
        RefusedError: EVIDENCE_MISMATCH between receipts, SUBJECT_MISMATCH with the subject.
    """
    facts = {label: facts_of(receipt) for label, receipt in receipts.items()}
    for name in names:
        for one, other in combinations(facts, 2):
            if name in facts[one] and name in facts[other]:
                found = mismatch(name, facts[one][name], facts[other][name])
                if found is not None:
                    _refuse(Code.EVIDENCE_MISMATCH, f"{other}, {name}", f"as in {one}", found)
    for label, receipt in receipts.items():
        wanted = (*names, *sorted(pair_names.get(label, ())))
        for name, found in unlike(receipt, subject, wanted):
            _refuse(Code.SUBJECT_MISMATCH, f"{label}, {name}", "as on this machine", found)


def unlike(receipt: Receipt, subject: Subject, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield every fact in which this machine is not the one of a receipt, and how they differ.

    Args:
        receipt: what was judged.
        subject: this machine and plan; what it leaves open is not compared.
        names: facts, by the names of :class:`Subject`; what a receipt does not state is passed
            over.
    """
    stated = facts_of(receipt)
    for name in names:
        here = getattr(subject, name)
        if here is None or name not in stated:
            continue
        if isinstance(here, Mapping):
            here = {key: _plain(item) for key, item in here.items()}
        for found in differences(name, stated[name], here, whole=True):
            yield name, found


def mismatch(name: str, one: object, other: object, whole: bool = False) -> str | None:
    """Say the first of :func:`differences`, or None where there is none."""
    return next(differences(name, one, other, whole), None)


def differences(name: str, one: object, other: object, whole: bool = False) -> Iterator[str]:
    """Yield how two statements of the same fact differ.

    Libraries and kernels are compared by name, because each run loads its own selection.

    Args:
        name: the fact.
        one: what a receipt states.
        other: what another receipt states, or what is known here.
        whole: ``other`` must speak about everything that ``one`` names (libraries), or about each
            kernel of the pair and share at least one entry with it (kernels).
    """
    if name not in ("libraries", "kernels"):
        if one != other:
            yield shown(f"{_listed(one)} against {_listed(other)}")
        return
    if not (isinstance(one, Mapping) and isinstance(other, Mapping)):
        yield shown(f"{_listed(one)} against {_listed(other)}")
        return
    common = set(one) & set(other)
    for key in sorted(common):
        if one[key] != other[key]:
            yield shown(f"{key}: {one[key]} against {other[key]}", 400)
    for key in sorted(set(one) - common if whole else ()):
        if name == "libraries":
            yield shown(f"not loaded here: {key}")
        elif key.startswith(f"{PAIR_KERNEL}/"):
            # What the other kernels agree in says nothing about the one that is going to run.
            yield shown(f"not compiled here: {key}")
    # A single GPU compiles another specialisation than a pair: between receipts no common kernel
    # is needed, while no common library would mean that nothing was compared at all.
    if (whole or name == "libraries") and not common:
        yield "nothing in common to compare"


def _plain(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def _listed(value: object) -> str:
    if isinstance(value, frozenset | set):
        return ", ".join(sorted(map(str, value))) or "none (or redacted)"
    return str(value)


def _refuse(code: Code, where: str, expected: str, found: str) -> None:
    raise RefusedError(Refusal(code, where, expected, found))
