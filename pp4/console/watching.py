"""Who watches a run, of gates or of a measurement."""

from __future__ import annotations

from typing import Protocol

from pp4.measure.progress import Progress as MeasureProgress
from pp4.qualify.progress import Progress as GateProgress
from pp4.qualify.progress import Silent as SilentGates


class Watching(GateProgress, MeasureProgress, Protocol):
    """Receives both as they happen."""


class Silent(SilentGates):
    """Says nothing."""

    def measuring(self, rounds: int) -> None:
        """Nothing."""

    def measured(self, text: str) -> None:
        """Nothing."""
