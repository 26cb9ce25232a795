"""Cross-checks of every kind, and of those that have no file of their own."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from pp4.errors import Code, Exit
from pp4.receipts.budget_checks import budget_checks
from pp4.receipts.checks import Check, compare, require
from pp4.receipts.digests import sha256_hex, tree_digest
from pp4.receipts.gate_checks import gate_checks, journal_checks
from pp4.receipts.gates import Qualification, Rehearsal, Solo
from pp4.receipts.hardware_checks import WORKER_PAIR, WORKER_SOLO, gpu_names
from pp4.receipts.measurement_checks import measurement_checks
from pp4.receipts.models import Receipt
from pp4.receipts.records import Incident, Preparation, RefusalReceipt
from pp4.receipts.runs import Budget, Measurement, WholeWorker

ROLE_KINDS: Final[dict[str, frozenset[str]]] = {
    "identity_reference": frozenset({"solo", "whole_worker"}),
    "rehearsal": frozenset({"rehearsal"}),
    "budget": frozenset({"budget"}),
    "first_half": frozenset({"measurement"}),
    "qualification": frozenset({"qualification"}),
    "cause": frozenset({"refusal", "incident"}),
}
"""Which kinds a role takes.  A solo receipt is a reference and nothing else; a rehearsal is a
rehearsal and nothing else."""


def cross_checks(receipt: Receipt) -> list[Check]:
    """Return the cross-checks of a receipt, those of all kinds first."""
    checks = [_source(receipt), _limits(receipt), _roles(receipt)]
    if isinstance(receipt, Rehearsal | Qualification | Solo):
        return checks + gate_checks(receipt)
    if isinstance(receipt, Budget):
        return checks + budget_checks(receipt)
    if isinstance(receipt, Measurement):
        return checks + measurement_checks(receipt)
    if isinstance(receipt, WholeWorker):
        return checks + _whole_worker(receipt)
    if isinstance(receipt, Preparation):
        return checks + _preparation(receipt)
    if isinstance(receipt, RefusalReceipt):
        return [*checks, _refusal(receipt)]
    return checks + _incident(receipt)


def _source(receipt: Receipt) -> Check:
    rows = [[file.path, file.sha256] for file in receipt.source.files]
    if rows != sorted(rows):
        return require("source-list", Code.CROSS_CHECK, False, "files sorted by path", "unsorted")
    twice = sorted({path for (path, _), (after, _) in pairwise(rows) if path == after})
    if twice:
        found = f"twice: {', '.join(twice)}"
        return require("source-list", Code.CROSS_CHECK, False, "each path once", found)
    return compare("source-list", Code.CROSS_CHECK, tree_digest(rows), receipt.source.digest)


def _limits(receipt: Receipt) -> Check:
    blank = [text for text in receipt.limits if not any(sign.isalpha() for sign in text)]
    expected = "limits in words"
    found = f"{blank[0]!r}" if blank else expected
    return require("limits", Code.CROSS_CHECK, not blank, expected, found)


def _roles(receipt: Receipt) -> Check:
    odd = [
        f"{reference.kind} as {reference.role}"
        for reference in receipt.evidence
        if reference.kind not in ROLE_KINDS[reference.role]
    ]
    expected = "kinds that their roles take"
    return require("evidence-roles", Code.WRONG_ROLE, not odd, expected, "; ".join(odd) or expected)


def _whole_worker(receipt: WholeWorker) -> list[Check]:
    ranks = [0, 1] if receipt.mode == "physical" else [0]
    keys = [(o.batch, o.depth, o.n_out) for o in receipt.outputs]
    return [
        gpu_names(receipt.gpus, receipt.private),
        compare("gpus", Code.DEVICE_MISMATCH, ranks, [gpu.rank for gpu in receipt.gpus]),
        require(
            "outputs",
            Code.CROSS_CHECK,
            keys == sorted(set(keys)),
            "each (batch, depth, n_out) once, sorted",
            f"{len(keys)} outputs",
        ),
        compare(
            "output-digests",
            Code.CROSS_CHECK,
            [sha256_hex("".join(one.blocks).encode()) for one in receipt.outputs],
            [one.sha256 for one in receipt.outputs],
        ),
        *_asked_for(receipt),
        *(_recorded(receipt, ranks) if receipt.verdict == "recorded" else ()),
    ]


def _recorded(receipt: WholeWorker, ranks: list[int]) -> list[Check]:
    """Hold outputs that others are compared with to the binaries that they came from."""
    name = WORKER_SOLO if receipt.mode == "solo" else WORKER_PAIR
    found = sorted(kernel.rank for kernel in receipt.kernels if kernel.name == name)
    bare = [
        f"{kernel.name} rank {kernel.rank}"
        for kernel in receipt.kernels
        if kernel.ptx_sha256 is None or kernel.cubin_sha256 is None
    ]
    count = f"{len(receipt.libraries)} libraries"
    return [
        compare(f"kernel {name}", Code.CROSS_CHECK, ranks, found),
        compare("kernel-digests", Code.CROSS_CHECK, [], bare),
        require("libraries", Code.CROSS_CHECK, bool(receipt.libraries), "at least one", count),
    ]


def _asked_for(receipt: WholeWorker) -> list[Check]:
    """Hold query block and depth at the top to the outputs that they are about."""
    block = sorted({one.depth for one in receipt.outputs})
    least = min(one.n_out for one in receipt.outputs)
    return [
        compare("query-block", Code.CROSS_CHECK, block, [receipt.query_block]),
        compare("n-out", Code.CROSS_CHECK, least, receipt.n_out),
    ]


def _preparation(receipt: Preparation) -> list[Check]:
    checks = []
    for name, files in (("inputs", receipt.inputs), ("outputs", receipt.outputs)):
        paths = [file.path for file in files]
        checks.append(
            require(
                f"{name}-sorted",
                Code.CROSS_CHECK,
                paths == sorted(set(paths)),
                "each path once, sorted",
                f"{len(paths)} paths",
            )
        )
    for name, files, whole in (
        ("inputs", receipt.inputs, receipt.inputs_sha256),
        ("outputs", receipt.outputs, receipt.outputs_sha256),
    ):
        if whole is not None:
            digest = tree_digest([[file.path, file.type, file.sha256] for file in files])
            checks.append(compare(f"{name}-digest", Code.CROSS_CHECK, digest, whole))
    runner = receipt.reviewed_runner_sha256
    known = runner in {file.sha256 for file in receipt.inputs}
    expected = "the reviewed runner among the inputs"
    checks.append(require("reviewed-runner", Code.CROSS_CHECK, known, expected, runner))
    outputs = {file.path: file.sha256 for file in receipt.outputs}
    # A package that is replaced is a directory; its files are in the outputs one by one.
    lost = [
        edit.path
        for edit in receipt.replacements
        if edit.path not in outputs and not any(p.startswith(f"{edit.path}/") for p in outputs)
    ]
    lost += [guard.path for guard in receipt.guards if guard.path not in outputs]
    checks.append(compare("places-in-outputs", Code.CROSS_CHECK, [], lost))
    guards = sorted(guard.name for guard in receipt.guards)
    checks.append(
        require(
            "guards",
            Code.CROSS_CHECK,
            len(guards) == len(set(guards)) and len(guards) >= 2,
            "at least two guards, each once",
            ", ".join(guards) or "none",
        )
    )
    return checks


def _refusal(receipt: RefusalReceipt) -> Check:
    # The code is not looked up: a later version may know codes that this one does not.
    codes = sorted(int(code) for code in Exit if code is not Exit.DONE)
    expected = f"one of {codes}"
    return require(
        "refusal-exit", Code.CROSS_CHECK, receipt.exit in codes, expected, str(receipt.exit)
    )


def _incident(receipt: Incident) -> list[Check]:
    checks = journal_checks(receipt.journal, None)
    closed = receipt.state == "closed"
    checks.append(
        require(
            "incident-state",
            Code.CROSS_CHECK,
            closed == (receipt.tombstone_sha256 is not None)
            and not (closed and (receipt.survivors or receipt.unproven)),
            "closed with a tombstone and nothing left, or neither",
            f"{receipt.state}, {len(receipt.survivors)} survivors, "
            f"{len(receipt.unproven)} unproven",
        )
    )
    return checks
