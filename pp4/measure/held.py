"""A measurement in a HOLD whose gates have passed: brought, run, written down, sealed at the end.

The gates come first and are somebody else's (:mod:`pp4.qualify.held`); whoever runs both hands the
proof that they passed over to :meth:`Measuring.measure`, which refuses to begin without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Self

from pp4.clock import Clock
from pp4.errors import Code, Pp4Error, Refusal, RefusedError
from pp4.hold.interruption import undisturbed
from pp4.hold.reach import Place
from pp4.hold.window import Window
from pp4.measure import bodies, budgeting, schedule
from pp4.measure.admitting import Judged
from pp4.measure.chronicle import Chronicle
from pp4.measure.far import COMMANDS, MODULE
from pp4.measure.programs import SWITCHED_ON
from pp4.measure.progress import Progress
from pp4.measure.rounds_file import SUFFIX
from pp4.measure.sealing import Sealed, Taken, seal_window
from pp4.run.bundled import bring_pair
from pp4.run.qualified import Qualified
from pp4.run.receipt import Outcome
from pp4.wire.facts import read
from pp4.wire.holds import Given, Open
from pp4.wire.measuring import ARMS, Measure, Measured

LABEL: Final = "measure"
SAMPLES: Final = 3
"""Rounds of each cell and arm that a budget takes the worst of."""
_PHASES: Final[tuple[schedule.Phase, ...]] = ("warm-up", "greedy", *schedule.TIMED)
_SNAPSHOTS: Final = 4
"""Of an arm: baseline, after the headline rounds, after the profiled ones, final."""


class Measuring:
    """One measurement, from the moment at which its HOLD is open.

    Attributes:
        rounds: the file of rounds, None before it is begun.

    Args:
        judged: what is measured.
        progress: who watches.
        clock: the coordinator's.
    """

    def __init__(self, judged: Judged, progress: Progress, clock: Clock) -> None:
        self._judged, self._progress, self._clock = judged, progress, clock
        self._chronicle = Chronicle(clock, progress)
        self._window: Window | None = None
        self._place: Place | None = None
        self._begun_ns = clock.boottime_ns()
        self._spent: dict[str, int] = {}
        self._samples = SAMPLES
        self._known: dict[str, Any] = {}
        self.rounds: Path | None = None
        self._measured: Measured | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of the file of rounds: from now on anybody may seal it."""
        self._chronicle.close()

    # -- what the gates have to know of it: pp4.qualify.held.Further --------------------------

    def asked(self, asked: Open) -> Open:
        """A HOLD for this measurement, which its host judges as such."""
        return asked.model_copy(
            update={
                "command": str(COMMANDS[self._judged.asked.work]),
                "evidence": self._given(),
                "plan": self._judged.plan,
            }
        )

    def opened(self, window: Window, place: Place) -> str:
        """Bring the bundled pair there; -> directory of the drafter on the host.

        Raises:
            Pp4Error: what the host or the way to it refuses.
        """
        self._window, self._place = window, place
        self._chronicle.opened()
        drafter = self._judged.pair.drafter
        if self._judged.bundled is not None:
            drafter = bring_pair(self._judged.bundled, window, place)
        self._spend(budgeting.STAGING)
        return drafter

    def told(self, item: dict[str, Any]) -> None:
        """A step told something."""
        self._chronicle.told(item)

    def alive(self, lease_s: float, deadline_s: float, last_line: str) -> None:
        """The host has answered a heartbeat."""
        self._chronicle.alive(lease_s, deadline_s, last_line)

    # -- the work -----------------------------------------------------------------------------

    def measure(self, qualified: Qualified) -> None:
        """Run the step that measures, in the HOLD whose gates have passed.

        Args:
            qualified: the proof of that.

        Raises:
            RefusedError: ``STALE_FENCE``, it is the proof of another HOLD.
            UncleanError: ``UNWRITABLE``, a round could not be written down.
            Pp4Error: what ended the step.
        """
        window = self._open()
        qualified.require(window.granted)
        self._spend(budgeting.QUALIFICATION)
        self._known = bodies.of_gates(self._judged, qualified)
        self._run(window, rehearsal=False)

    def rehearse(self) -> Measured:
        """Run the step in a HOLD of names, in which nothing is measured; -> its answer.

        Raises:
            RefusedError: ``WRONG_KIND``, it is a HOLD of GPUs, in which gates come first.
            Pp4Error: as :meth:`measure`.
        """
        window = self._open()
        if not window.granted.rehearsal:
            expected, found = "a HOLD of names", "one of GPUs, in which gates come first"
            raise RefusedError(Refusal(Code.WRONG_KIND, "a rehearsal", expected, found))
        return self._run(window, rehearsal=True)

    def _run(self, window: Window, *, rehearsal: bool) -> Measured:
        judged = self._judged
        self._samples = 1 if rehearsal else SAMPLES
        self._begin(window, rehearsal=rehearsal)
        told = Measure(
            work=judged.asked.work,
            command=judged.asked.command,
            pair=judged.pair,
            schedule=judged.schedule,
            samples=self._samples,
            evidence=self._given(),
            plan=None if rehearsal else judged.plan,
        )
        self._measured = read(Measured, window.run(LABEL, MODULE, told.model_dump(mode="json")))
        return self._measured

    def _begin(self, window: Window, *, rehearsal: bool) -> None:
        asked = self._judged.asked
        kind = "budget" if asked.work == "budget" else "measurement"
        path = asked.out / f"{kind}-{window.granted.hold}{SUFFIX}"
        body = (
            self._known
            if kind == "budget" or rehearsal
            else bodies.of_half(self._judged, self._known)
        )
        total = len(ARMS[asked.work]) * (_SNAPSHOTS + self._timed())
        for text in self._plan():
            self._progress.note(text)
        self._chronicle.begin(path, asked.work, body, rehearsal=rehearsal, rounds=total)
        self.rounds = path

    def _rounds_of(self, phase: schedule.Phase) -> int:
        planned = self._judged.schedule
        if self._judged.asked.work == "budget":
            planned = budgeting.sampled_schedule(planned, self._samples)
        return len(schedule.rounds(planned, phase))

    def _timed(self) -> int:
        return sum(map(self._rounds_of, schedule.TIMED))

    def _plan(self) -> Iterator[str]:
        """What is going to be done, in the order in which it is."""
        counts = ", ".join(f"{self._rounds_of(phase)} {phase}" for phase in _PHASES)
        for arm in ARMS[self._judged.asked.work]:
            switch = "ON" if SWITCHED_ON[arm] else "OFF"
            yield f"plan {arm}, {switch}: {counts} rounds; a sealed baseline after the greedy ones"

    # -- the end ------------------------------------------------------------------------------

    def seal(self, qualification: Outcome | None, *, ended: bool = True) -> Sealed:
        """Seal what was measured, once the HOLD is over however it went.

        Args:
            qualification: of the gates of this HOLD; None where none was stored.
            ended: whether nothing has cut the run.

        Raises:
            Pp4Error: the receipt cannot be made; what was measured is in the file of rounds.
        """
        if self.rounds is None or self._window is None or self._place is None:
            return Sealed(None, None)
        taken = Taken(
            judged=self._judged,
            rounds=self.rounds,
            known=self._known,
            measured=self._measured,
            spent=self._spent,
            beats=self._chronicle.rest(),
            hold=self._window.granted.hold,
            host_key=self._place.host.fingerprint,
            tombstone=self._window.tombstone,
            now=self._clock.wall(),
            ended=ended,
        )
        # what is measured is not lost to somebody who presses Ctrl-C a moment too late
        with undisturbed():
            return seal_window(taken, qualification)

    def cut(self, error: BaseException, qualification: Outcome | None) -> Pp4Error | None:
        """Seal what there is of a half that was cut; -> the error, which then names it, or None.

        Nothing that is in the way of that takes the place of what has cut it.

        Args:
            error: what has cut it.
            qualification: of the gates of this HOLD; None where none was stored.
        """
        try:
            sealed = self.seal(qualification, ended=False)
        except Pp4Error as failed:
            self._progress.note(f"what was measured until then is in {self.rounds}: {failed}")
            return None
        if sealed.outcome is None:
            return None
        path = sealed.outcome.receipt_path
        self._progress.note(f"sealed as not complete, without a claim: {path}")
        if not isinstance(error, Pp4Error):
            return None
        known = error.refusal.left
        left = str(path) if known == "nothing" else f"{known}; {path}"
        return type(error)(replace(error.refusal, left=left))

    def _given(self) -> tuple[Given, ...]:
        return tuple(Given.of(role, raw) for role, raw in self._judged.evidence)

    def _open(self) -> Window:
        if self._window is None:
            raise ValueError("no HOLD was opened for this measurement")
        return self._window

    def _spend(self, name: str) -> None:
        """Take the time since the last call for a part of the window."""
        now = self._clock.boottime_ns()
        self._spent[name], self._begun_ns = now - self._begun_ns, now
