"""A half as its coordinator hears of it: written down first, shown after, and laid out in time.

Moments are by this machine's clock, counted from the opening of the HOLD: for people, and never a
measurement, which is the host's alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from pp4.clock import Clock
from pp4.errors import Code, Refusal, WrongError
from pp4.measure.progress import Progress
from pp4.measure.rounds_file import Head, Line, RoundsFile
from pp4.receipts.runs import Round, Snapshot
from pp4.wire.facts import read
from pp4.wire.measuring import Rounded, Stepped, Work

_STEP: Final = "measure"
_GATES: Final = "gates"


class Chronicle:
    """Hears what the steps of a HOLD tell; see :class:`pp4.hold.window.Watcher`.

    Args:
        clock: the coordinator's.
        progress: who watches.
    """

    def __init__(self, clock: Clock, progress: Progress) -> None:
        self._clock, self._progress = clock, progress
        self._zero_ns: int | None = None
        self._beats: list[int] = []
        self._written = 0
        self._gates: dict[str, tuple[int, int]] = {}
        self._file: RoundsFile | None = None

    def opened(self) -> None:
        """The HOLD is open: time counts from here."""
        self._zero_ns = self._clock.boottime_ns()

    @property
    def at_ns(self) -> int:
        """Nanoseconds since the HOLD was opened."""
        return 0 if self._zero_ns is None else self._clock.boottime_ns() - self._zero_ns

    def begin(
        self, path: Path, work: Work, body: dict[str, Any], *, rehearsal: bool, rounds: int
    ) -> None:
        """Begin the file of rounds; from now on nothing is shown that is not in it.

        Args:
            path: of the file.
            work: what is measured.
            body: members of the receipt that are known.
            rehearsal: whether nothing is measured.
            rounds: how many rounds and snapshots are to come.

        Raises:
            UncleanError: ``UNWRITABLE``.
        """
        known = {**body, "timeline": [*self._gate_spans()]}
        head = Head(work=work, rehearsal=rehearsal, at_ns=str(self.at_ns), body=known)
        self._file = RoundsFile(path, head)
        self._progress.measuring(rounds)

    def told(self, item: dict[str, Any]) -> None:
        """A step told something; what this version does not know is passed over.

        Raises:
            UncleanError: ``UNWRITABLE``, it could not be written down.
            WrongError: ``BAD_FRAME``, it is no round, no snapshot and no end of a phase.
        """
        if "arm" in item and "event" in item:
            self._write(stepped=read(Stepped, item))
        elif "arm" in item:
            rounded = read(Rounded, item)
            text = spoken(rounded)
            self._write(rounded=rounded)
            self._progress.measured(text)
        for event in ("started", "finished"):
            if isinstance(step := item.get(event), dict) and "gate" in step:
                name = f"gate-{step['gate']}"
                begin, _ = self._gates.get(name, (self.at_ns, 0))
                self._gates[name] = (begin, self.at_ns)

    def alive(self, lease_s: float, deadline_s: float, last_line: str) -> None:
        """The host has answered a heartbeat; comes from a thread of its own."""
        if self._zero_ns is not None:
            self._beats.append(self.at_ns)

    def _write(self, rounded: Rounded | None = None, stepped: Stepped | None = None) -> None:
        if self._file is None:
            expected = "a step that measures"
            raise WrongError(Refusal(Code.BAD_FRAME, "a round", expected, "one before it"))
        at_ns, beats = str(self.at_ns), self._new_beats()
        self._file.add(Line(at_ns=at_ns, heartbeats_ns=beats, rounded=rounded, stepped=stepped))

    def _new_beats(self) -> tuple[str, ...]:
        beats = self._beats[self._written :]
        self._written += len(beats)
        return tuple(map(str, beats))

    def rest(self) -> tuple[str, ...]:
        """Heartbeats that no line of the file has."""
        return tuple(map(str, self._beats[self._written :]))

    def _gate_spans(self) -> Iterator[dict[str, str]]:
        times = self._gates.values()
        if times:
            yield span(_GATES, "step", min(b for b, _ in times), max(e for _, e in times))
        for name, (begin, end) in self._gates.items():
            yield span(name, "gate", begin, end)

    def close(self) -> None:
        """No line of the file may follow."""
        if self._file is not None:
            self._file.close()


def spoken(rounded: Rounded) -> str:
    """A round or a snapshot as one line for people.

    Raises:
        WrongError: ``BAD_FRAME``, it is neither.
    """
    if rounded.round is None:
        return f"{rounded.arm} {read(Snapshot, rounded.snapshot).label} snapshot"
    one = read(Round, rounded.round)
    rate = one.tokens * 1e9 / max(1, int(one.elapsed_ns))
    accepted = sum(one.accepted_by_position) / max(1, one.drafted)
    cell = f"B {one.batch}, T {one.temperature}"
    return (
        f"{rounded.arm} {one.phase} {one.index}: {cell}, {rate:,.0f} tokens/s, "
        f"{accepted:.2f} accepted of a draft"
    )


def span(name: str, kind: str, begin_ns: int, end_ns: int) -> dict[str, str]:
    """One row of a timeline as receipts have it."""
    return {"kind": kind, "name": name, "begin_ns": str(begin_ns), "end_ns": str(end_ns)}


def timeline(head: Head, lines: Sequence[Line]) -> list[dict[str, str]]:
    """Lay out a half in time, from what its file of rounds says.

    What was begun and has no end ends where the file does: it was cut.
    """
    spans = list(head.body.get("timeline", ()))
    end = int(lines[-1].at_ns) if lines else int(head.at_ns)
    spans.append(span(_STEP, "step", int(head.at_ns), end))
    begun: dict[str, tuple[str, int]] = {}
    for line in lines:
        if (one := line.stepped) is None:
            continue
        name = one.arm if one.phase is None else f"{one.arm} {one.phase}"
        if one.event == "begin":
            begun[name] = ("arm" if one.phase is None else "phase", int(line.at_ns))
        elif name in begun:
            spans.append(span(name, *begun.pop(name), int(line.at_ns)))
    return spans + [span(name, *first, end) for name, first in begun.items()]


def heartbeats(lines: Sequence[Line]) -> list[str]:
    """Every heartbeat that the file of a half knows of."""
    return [beat for line in lines for beat in line.heartbeats_ns]
