"""What a run tells whoever watches it; injected, so that no gate knows how a person sees it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pp4.qualify.plan import Step


class Progress(Protocol):
    """Receives the run as it happens.  Calls come from one thread, in order, but for one."""

    def planned(self, steps: Sequence[Step]) -> None:
        """The whole plan, before anything starts."""

    def started(self, step: Step) -> None:
        """A step begins."""

    def finished(self, step: Step, found: str, elapsed_s: float) -> None:
        """A step ended with ``found`` (``pass``, ``caught(CODE)`` or ``failed(CODE)``)."""

    def note(self, text: str) -> None:
        """One line worth saying that is not a step."""

    def alive(self, lease_s: float, deadline_s: float, last_line: str) -> None:
        """The HOLD is alive: seconds of its lease and of itself, last line of what runs.

        The one call that may come from another thread, and between any two others.
        """


class Silent:
    """A progress that says nothing."""

    def planned(self, steps: Sequence[Step]) -> None:
        """Nothing."""

    def started(self, step: Step) -> None:
        """Nothing."""

    def finished(self, step: Step, found: str, elapsed_s: float) -> None:
        """Nothing."""

    def note(self, text: str) -> None:
        """Nothing."""

    def alive(self, lease_s: float, deadline_s: float, last_line: str) -> None:
        """Nothing."""
