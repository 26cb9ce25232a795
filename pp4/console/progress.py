"""A run as a person watches it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pp4.console.streams import visible

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

    from pp4.qualify.plan import Step


class PlainProgress:
    """One line per event, for logs.

    Args:
        say: takes the text to show.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._total = 0
        self._done = 0
        self._rounds = 0
        self._over = 0

    def planned(self, steps: Sequence[Step]) -> None:
        """List the plan."""
        self._total = len(steps)
        for step in steps:
            self._say(f"plan {step.name}: {step.expected}: {visible(step.what)}\n")

    def started(self, step: Step) -> None:
        """Say nothing: the end of the step says all."""

    def finished(self, step: Step, found: str, elapsed_s: float) -> None:
        """Say what was found, and what should have been where it differs."""
        self._done += 1
        self._say(f"[{self._done}/{self._total}] {_ended(step, found)} ({elapsed_s:.2f} s)\n")

    def measuring(self, rounds: int) -> None:
        """Begin to count what is measured."""
        self._rounds, self._over = rounds, 0

    def measured(self, text: str) -> None:
        """Say what is over."""
        self._over += 1
        self._say(f"[{self._over}/{self._rounds}] {visible(text)}\n")

    def note(self, text: str) -> None:
        """Pass the line on."""
        self._say(f"{visible(text)}\n")

    def alive(self, lease_s: float, deadline_s: float, last_line: str) -> None:
        """Say nothing: a log is not the place for what changes every few seconds."""


class LiveProgress:
    """A moving bar; what went otherwise than planned stays on the screen above it.

    Args:
        bar: started and stopped by whoever made it.
    """

    def __init__(self, bar: Bar) -> None:
        self._bar = bar
        self._task: TaskID = bar.add_task("planning", total=None)
        self._hold: TaskID | None = None

    def planned(self, steps: Sequence[Step]) -> None:
        """Set the length of the bar."""
        self._bar.update(self._task, total=len(steps), description=f"{len(steps)} steps planned")

    def started(self, step: Step) -> None:
        """Name the step that runs."""
        self._bar.update(self._task, description=visible(f"{step.name}: {step.what}"))

    def finished(self, step: Step, found: str, elapsed_s: float) -> None:
        """Move the bar on."""
        self._bar.advance(self._task)
        if found != step.expected:
            self._bar.console.print(f"{_ended(step, found)} ({elapsed_s:.2f} s)", highlight=False)

    def measuring(self, rounds: int) -> None:
        """Begin the bar again: the gates are over."""
        text = f"{rounds} rounds and snapshots"
        self._bar.reset(self._task, total=rounds, description=text)

    def measured(self, text: str) -> None:
        """Move the bar on, and name what moved it."""
        self._bar.advance(self._task)
        self._bar.update(self._task, description=visible(text))

    def note(self, text: str) -> None:
        """Print the line above the bar."""
        self._bar.console.print(visible(text), highlight=False)

    def alive(self, lease_s: float, deadline_s: float, last_line: str) -> None:
        """Keep a line below the bar: what is left of lease and HOLD, and what was said last."""
        left = f"lease {lease_s:.0f} s, HOLD {deadline_s / 60:.0f} min"
        text = visible(f"{left}: {last_line}" if last_line else left)
        if self._hold is None:
            self._hold = self._bar.add_task(text, total=None)
        self._bar.update(self._hold, description=text)


def _ended(step: Step, found: str) -> str:
    wrong = "" if found == step.expected else f", expected {step.expected}"
    return visible(f"{step.name}: {found}{wrong}")
