"""Receipts as they were handed in, verified before anything of them is shown."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pp4.errors import Exit, Refusal, RefusedError, WrongError
from pp4.receipts.models import Receipt
from pp4.receipts.report import FileReport, Report
from pp4.receipts.verify import Policy, verify


@dataclass(frozen=True, slots=True)
class Given:
    """One receipt.

    Attributes:
        file: its name as given.
        sha256: of the file; others refer to it by this.
        receipt: the model.
        shows: what it shows; nothing where it does not verify.
        says: what it does not show: its own limits, and what its signature leaves open.
        intact: whether it verified.
    """

    file: str
    sha256: str
    receipt: Receipt
    shows: tuple[str, ...]
    says: tuple[str, ...]
    intact: bool = True


def read(paths: Sequence[Path]) -> tuple[Given, ...]:
    """Verify files and return their receipts in the order given, equal files once.

    Raises:
        UsageError: no file was given.
        WrongError: a receipt contradicts itself or another one.
        RefusedError: a file is no receipt that will do.
    """
    report = verify(paths, Policy())
    _refuse_what_failed(report, paths)
    return tuple({one.sha256: one for one in map(_given, report.files) if one is not None}.values())


def _refuse_what_failed(report: Report, paths: Sequence[Path]) -> None:
    if not report.failures:
        return
    first, *more = report.failures
    refusal = Refusal(
        first.code,
        f"{first.file}: {first.name}" if first.file else first.name,
        first.expected,
        f"{first.found} (and {len(more)} more)" if more else first.found,
        source="verify-receipt",
        next=shlex.join(["pp4", "verify-receipt", *map(str, paths)]),
    )
    raise WrongError(refusal) if report.exit is Exit.WRONG else RefusedError(refusal)


def _given(file: FileReport) -> Given | None:
    # Both are there wherever no check failed.
    if file.receipt is None or file.sha256 is None:
        return None
    return Given(file.file, file.sha256, file.receipt, file.shows, file.does_not_show, file.intact)


def look(paths: Sequence[Path]) -> tuple[Given, ...]:
    """Return the receipts among files, whether they verify or not."""
    files = [file for path in paths for file in verify([path]).files]
    return tuple(one for one in map(_given, files) if one is not None)
