"""What a measurement tells whoever watches it; injected, so that no arm knows how it is seen."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Receives a measurement as it happens; calls come from one thread, but for :meth:`alive`."""

    def measuring(self, rounds: int) -> None:
        """So many rounds and snapshots are going to be told of."""

    def measured(self, text: str) -> None:
        """One is over, and on the disk."""

    def note(self, text: str) -> None:
        """One line worth saying."""

    def alive(self, lease_s: float, deadline_s: float, last_line: str) -> None:
        """The HOLD is alive: seconds of its lease and of itself, last line of what runs."""
