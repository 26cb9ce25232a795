"""What verification found, as one value: checks, files, statements, exit code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pp4.errors import Code, Exit
from pp4.receipts.checks import Check, Status
from pp4.receipts.models import Receipt
from pp4.receipts.signature import State

REFUSING: Final = frozenset(
    {
        Code.UNREADABLE,
        Code.TOO_LARGE,
        Code.TOO_DEEP,
        Code.NOT_UTF8,
        Code.NOT_JSON,
        Code.DUPLICATE_KEY,
        Code.NOT_FINITE,
        Code.NUMBER_RANGE,
        Code.UNKNOWN_KIND,
        Code.UNKNOWN_VERSION,
        Code.SCHEMA,
        Code.WRONG_KIND,
        Code.EVIDENCE_MISSING,
        Code.HISTORICAL,
        Code.TOO_OLD,
        Code.SIGNATURE_MISSING,
        Code.SIGNATURE_UNVERIFIABLE,
        Code.INTERNAL,
    }
)
"""Codes that say "not a receipt that will do" (exit 3).  Every other failure says that a receipt
contradicts itself (exit 1), and weighs more where both occur."""

_SHOWS: Final = {
    "rehearsal": "the gates ran on a CPU in an interpreter; nothing was executed on a GPU",
    "qualification": "the gates ran on the physical pair that it names",
    "solo": "one GPU ran both vocabulary halves; it serves as an identity reference only",
    "whole_worker": "a worker gave these outputs for these inputs; identity, not speed",
    "budget": "the measured cost of a window; it opens measuring, and proves no speed-up",
    "measurement": "half of a controlled OFF/ON comparison in one common runtime",
    "preparation": "a runner tree was staged from reviewed input, each edit exactly once",
    "refusal": "a command was refused for the reason given",
    "incident": "a window ended otherwise than planned; what is known and what is not",
}


@dataclass(frozen=True, slots=True)
class FileReport:
    """One file.

    Attributes:
        file: its name as given.
        sha256: what others refer to it by; None where it could not be read.
        receipt: the model; None where the file is no receipt of this version.
        signature: state of the detached signature; None where it was not looked at.
        checks: every check in the order in which it was made.
    """

    file: str
    sha256: str | None
    receipt: Receipt | None
    signature: State | None
    checks: tuple[Check, ...]

    @property
    def kind(self) -> str | None:
        """Kind of the receipt, where there is one."""
        return None if self.receipt is None else self.receipt.kind

    @property
    def verdict(self) -> str | None:
        """The receipt's own verdict, for the kinds that have one."""
        verdict = getattr(self.receipt, "verdict", None)
        return verdict if isinstance(verdict, str) else None

    @property
    def intact(self) -> bool:
        """Whether no check of this file failed."""
        return all(check.status is not Status.FAIL for check in self.checks)

    @property
    def shows(self) -> tuple[str, ...]:
        """What the receipt shows; nothing where a check failed."""
        if self.receipt is None or not self.intact:
            return ()
        verdict = f"; verdict: {self.verdict}" if self.verdict else ""
        return (f"{_SHOWS[self.receipt.kind]}{verdict}",)

    @property
    def does_not_show(self) -> tuple[str, ...]:
        """The receipt's own limits, and what the state of its signature leaves open."""
        limits = () if self.receipt is None else self.receipt.limits
        if self.signature is State.GOOD:
            return limits
        state = self.signature or State.UNSIGNED
        return (*limits, f"{state}: integrity, not authorship")

    def as_dict(self) -> dict[str, object]:
        """Return plain JSON-ready values."""
        return {
            "file": self.file,
            "kind": self.kind,
            "sha256": self.sha256,
            "digest": None if self.receipt is None else self.receipt.digest,
            "verdict": self.verdict,
            "signature": None if self.signature is None else str(self.signature),
            "shows": list(self.shows),
            "does_not_show": list(self.does_not_show),
            "checks": [check.as_dict() for check in self.checks],
        }


@dataclass(frozen=True, slots=True)
class Report:
    """All files of one call.

    Attributes:
        files: in the order given.
        overall: checks that concern the files together (kind, chain of evidence).
    """

    files: tuple[FileReport, ...]
    overall: tuple[Check, ...]

    @property
    def checks(self) -> tuple[Check, ...]:
        """Every check, file by file, then those over all files."""
        return tuple(check for file in self.files for check in file.checks) + self.overall

    @property
    def failures(self) -> tuple[Check, ...]:
        """The checks that failed."""
        return tuple(check for check in self.checks if check.status is Status.FAIL)

    @property
    def exit(self) -> Exit:
        """0 where nothing failed, 1 where a receipt contradicts itself, 3 where it will not do."""
        codes = {check.code for check in self.failures}
        if not codes:
            return Exit.DONE
        return Exit.REFUSED if codes <= REFUSING else Exit.WRONG

    def as_dict(self) -> dict[str, object]:
        """Return plain JSON-ready values."""
        return {
            "exit": int(self.exit),
            "files": [file.as_dict() for file in self.files],
            "overall": [check.as_dict() for check in self.overall],
        }
