"""One check: what was looked at, what it should be, what it was."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from pp4.errors import Code, Pp4Error
from pp4.receipts.canonical import shown


class Status(StrEnum):
    """How a check ended; ``skipped`` is neither good nor bad and always says why."""

    PASS = "pass"
    FAIL = "fail"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Check:
    """The outcome of one check.

    Attributes:
        name: what was looked at, lower case with hyphens.
        status: pass, fail or skipped.
        code: the code that a failure has or would have.
        expected: short text.
        found: short text; for a skipped check the reason.
        file: the receipt, filled in by whoever knows it.
    """

    name: str
    status: Status
    code: Code
    expected: str
    found: str
    file: str = ""

    def of(self, file: str) -> Check:
        """Return the same check, tied to a file."""
        return replace(self, file=file)

    def as_dict(self) -> dict[str, str]:
        """Return plain strings for ``--json``."""
        return {
            "name": self.name,
            "status": str(self.status),
            "code": str(self.code),
            "expected": self.expected,
            "found": self.found,
            "file": self.file,
        }


def compare(name: str, code: Code, expected: object, found: object) -> Check:
    """Return a check that passes where both are equal."""
    status = Status.PASS if expected == found else Status.FAIL
    return Check(name, status, code, shown(expected), shown(found))


def require(name: str, code: Code, holds: bool, expected: str, found: str) -> Check:
    """Return a check that passes where ``holds``."""
    status = Status.PASS if holds else Status.FAIL
    return Check(name, status, code, shown(expected), shown(found))


def skipped(name: str, code: Code, expected: str, reason: str) -> Check:
    """Return a check that was not made, with the reason."""
    return Check(name, Status.SKIPPED, code, shown(expected), shown(reason))


def from_error(name: str, error: Exception) -> Check:
    """Return the failed check that stands for an exception.

    A :class:`Pp4Error` brings its own words.  Anything else is a fault of this package, and still
    no receipt may pass because of it.
    """
    if isinstance(error, Pp4Error):
        refusal = error.refusal
        return Check(name, Status.FAIL, refusal.code, refusal.expected, refusal.found)
    found = shown(f"{type(error).__name__}: {error}")
    return Check(name, Status.FAIL, Code.INTERNAL, "a check that ends", found)
