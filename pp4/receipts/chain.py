"""Checks over several receipts: kinds asked for, evidence resolved, order of windows."""

from __future__ import annotations

from collections.abc import Sequence

from pp4.errors import Code
from pp4.receipts.checks import Check, compare, require, skipped
from pp4.receipts.envelope import RedactedLeaf, Reference
from pp4.receipts.gates import Hold, Qualification
from pp4.receipts.halves import belong_together, same_pair, shared, summary_of_rounds
from pp4.receipts.models import KINDS
from pp4.receipts.report import FileReport
from pp4.receipts.runs import Budget, Measurement, WholeWorker


def kind_check(files: Sequence[FileReport], kind: str | None) -> list[Check]:
    """Check that what was handed in is of one kind.

    A file that another given file rests on counts as evidence and may be of any kind.
    """
    if kind is None:
        return []
    found = ", ".join(file.kind or "unreadable" for file in files)
    if kind not in KINDS:
        return [require("kind", Code.UNKNOWN_KIND, False, f"one of {', '.join(KINDS)}", kind)]
    used = _referenced(files)
    subjects = [file for file in files if file.sha256 not in used]
    holds = bool(subjects) and all(file.kind == kind for file in subjects)
    return [require("kind", Code.WRONG_KIND, holds, kind, found)]


def chain_checks(files: Sequence[FileReport], required: bool) -> list[Check]:
    """Resolve every reference among the given files.

    A reference that no file answers is said and, where ``required``, refused.  A given file of
    the kind that is looked for, which nothing refers to, is taken for the swapped original.
    """
    checks: list[Check] = []
    used = _referenced(files)
    loose = [f for f in files if f.sha256 not in used and not redacted(f)]
    for file in files:
        if file.receipt is None:
            continue
        for reference in file.receipt.evidence:
            target = next((f for f in files if f.sha256 == reference.sha256), None)
            if target is None:
                checks.append(_unresolved(file, reference, loose, required))
            else:
                checks += _resolved(file, reference, target)
    return checks


def _referenced(files: Sequence[FileReport]) -> set[str | None]:
    return {
        reference.sha256
        for file in files
        if file.receipt is not None
        for reference in file.receipt.evidence
    }


def _unresolved(
    file: FileReport, reference: Reference, loose: Sequence[FileReport], required: bool
) -> Check:
    name = f"evidence {reference.role}"
    expected = f"{reference.kind} {reference.sha256}"
    strays = [f for f in loose if f.kind == reference.kind and f is not file]
    if strays:
        found = f"{strays[0].kind} {strays[0].sha256}"
        check = require(name, Code.EVIDENCE_MISMATCH, False, expected, found)
    elif required:
        check = require(name, Code.EVIDENCE_MISSING, False, expected, "not among the files")
    else:
        check = skipped(name, Code.EVIDENCE_MISSING, expected, "not among the files: not checked")
    return check.of(file.file)


def redacted(file: FileReport) -> bool:
    """Say whether a receipt has leaves that were blacked out."""
    # A redacted copy has another file hash by its nature; it can be told, not matched.
    leaves = [] if file.receipt is None else list(file.receipt.private.values())
    return any(isinstance(leaf, RedactedLeaf) for leaf in leaves)


def _resolved(file: FileReport, reference: Reference, target: FileReport) -> list[Check]:
    name = f"evidence {reference.role}"
    expected = f"{reference.kind} {reference.sha256}, intact"
    state = "intact" if target.intact else "not intact"
    found = f"{target.kind or 'unreadable'} {target.sha256}, {state}"
    checks = [compare(name, Code.EVIDENCE_MISMATCH, expected, found)]
    mine, theirs = _hold(file), _hold(target)
    if mine is not None and theirs is not None:
        checks += _windows(reference, mine, theirs)
    checks += _workers(file, target)
    if file.intact and target.intact:
        checks += _measured(file, target)
    return [check.of(file.file) for check in checks]


def _workers(file: FileReport, target: FileReport) -> list[Check]:
    """Check that a pair's worker and the one that it was held to had the same to do."""
    mine, theirs = file.receipt, target.receipt
    if not (isinstance(mine, Qualification) and isinstance(theirs, WholeWorker)):
        return []
    if mine.checkpoint_sha256 is None:
        return []
    wanted = (theirs.checkpoint_sha256, theirs.input_set_sha256)
    found = (mine.checkpoint_sha256, mine.input_set_sha256)
    return [compare("same-worker", Code.EVIDENCE_MISMATCH, wanted, found)]


def _measured(file: FileReport, target: FileReport) -> list[Check]:
    """Hold a half to the other one, to its budget and to the qualification of its window."""
    mine, theirs = file.receipt, target.receipt
    if not isinstance(mine, Measurement) or theirs is None or target.sha256 is None:
        return []
    if isinstance(theirs, Measurement):
        return [
            *belong_together(theirs, mine, target.sha256),
            *summary_of_rounds(theirs, mine),
        ]
    same = compare("same-source", Code.EVIDENCE_MISMATCH, theirs.source.digest, mine.source.digest)
    if isinstance(theirs, Budget):
        settings = {name: mine.settings.get(name) for name in theirs.shapes}
        return [
            same,
            *shared(theirs, mine, ("model_sha256", "gpu_models", "kernels"), "as in its budget"),
            compare("budgeted", Code.EVIDENCE_MISMATCH, dict(theirs.shapes), settings),
            compare("budget-fits", Code.OVER_BUDGET, "fits", theirs.verdict),
        ]
    if isinstance(theirs, Qualification):
        found = (theirs.verdict, theirs.scope)
        return [
            same,
            compare("qualified", Code.NOT_PROVEN, ("qualified", "full"), found),
            same_pair(theirs, mine),
        ]
    return [same]


def _hold(file: FileReport) -> Hold | None:
    hold = getattr(file.receipt, "hold", None)
    return hold if isinstance(hold, Hold) else None


def _windows(reference: Reference, mine: Hold, theirs: Hold) -> list[Check]:
    """Check the order of two windows: the first half is older, the qualification is this one."""
    if reference.role == "first_half":
        holds = int(theirs.fence) < int(mine.fence)
        expected, found = f"a fence below {mine.fence}", f"fence {theirs.fence}"
        return [require("fence-order", Code.CROSS_CHECK, holds, expected, found)]
    if reference.role == "qualification":
        same = (mine.id, mine.fence)
        return [compare("same-hold", Code.CROSS_CHECK, same, (theirs.id, theirs.fence))]
    return []
