"""What a check of ``pp4 doctor`` says."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum

from pp4.errors import Exit


class Status(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARN = "warn"
    MISSING = "missing"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at.

    Attributes:
        name: what was looked at.
        status: ``missing`` is absent, which some commands do without; ``fail`` is present and
            unusable.
        found: what was there.
        needed_for: which commands depend on it.
        todo: what to do about it; empty when the check is ok.
    """

    name: str
    status: Status
    found: str
    needed_for: str
    todo: str = ""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All checks of one machine.

    Attributes:
        checks: in the order in which they were made.
        strict: whether a warning or something missing counts as a refusal.
    """

    checks: tuple[Check, ...]
    strict: bool

    @property
    def exit(self) -> Exit:
        """``REFUSED`` after a failed check, or after any but an ok one under ``strict``."""
        accepted = {Status.OK} if self.strict else {Status.OK, Status.WARN, Status.MISSING}
        return Exit.DONE if all(c.status in accepted for c in self.checks) else Exit.REFUSED

    def as_dict(self) -> dict[str, object]:
        """Return the diagnosis as plain JSON-ready values."""
        return {
            "strict": self.strict,
            "exit": int(self.exit),
            "checks": [asdict(check) for check in self.checks],
        }
