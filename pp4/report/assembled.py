"""What was handed in, put in order: halves that belong together, and what each rests on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pp4.receipts.gates import Qualification
from pp4.receipts.runs import Budget, Measurement, Summary
from pp4.report.given import Given


@dataclass(frozen=True, slots=True)
class Half:
    """One half of a comparison, with the file that it came from."""

    given: Given
    receipt: Measurement


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both halves of one comparison, or the one that was given.

    Attributes:
        halves: in the order in which they were measured, one or two.
        beside: qualifications of their HOLDs and the budget that they rest on.
    """

    halves: tuple[Half, ...]
    beside: tuple[Given, ...]

    @property
    def summary(self) -> Summary | None:
        """What both halves say together, where one of them has it."""
        return self.halves[-1].receipt.summary


@dataclass(frozen=True, slots=True)
class Assembled:
    """Everything that was handed in, each receipt in one place."""

    comparisons: tuple[Comparison, ...]
    others: tuple[Given, ...]


def assemble(files: Sequence[Given]) -> Assembled:
    """Put receipts in order.

    A second half belongs to the first that it names by the sha256 of its file; a qualification to
    the half of its HOLD; a budget to the halves that rest on it.  The rest stands for itself.
    """
    halves = [Half(one, one.receipt) for one in files if isinstance(one.receipt, Measurement)]
    by_file = {half.given.sha256: half for half in halves}
    comparisons = []
    placed: set[str] = set()
    for half in sorted(halves, key=lambda one: one.receipt.half, reverse=True):
        if half.given.sha256 in placed:
            continue
        first = next((by_file[name] for name in _first(half) if name in by_file), None)
        together = (half,) if first is None else (first, half)
        beside = tuple(one for one in files if any(_belongs(one, part) for part in together))
        comparisons.append(Comparison(together, beside))
        placed |= {one.given.sha256 for one in together} | {one.sha256 for one in beside}
    return Assembled(tuple(comparisons), tuple(one for one in files if one.sha256 not in placed))


def _first(half: Half) -> Iterable[str]:
    return (one.sha256 for one in half.receipt.evidence if one.role == "first_half")


def _belongs(one: Given, half: Half) -> bool:
    if isinstance(one.receipt, Qualification):
        mine, theirs = half.receipt.hold, one.receipt.hold
        return (mine.id, mine.fence) == (theirs.id, theirs.fence)
    if isinstance(one.receipt, Budget):
        return any(reference.sha256 == one.sha256 for reference in half.receipt.evidence)
    return False
