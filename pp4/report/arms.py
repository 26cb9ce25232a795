"""An arm beside its baseline: failed rounds, counters, memory by source, clocks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pp4.receipts.growth import allowance
from pp4.receipts.runs import MeasuredArm, Round

_FACT: Final = re.compile(r"gpu\.(?P<rank>[0-9]+)\.(?P<name>.+)", re.ASCII)
_IDLE: Final = "gpu_idle"
"""Between rounds a GPU may stand idle, which slows nothing that is timed."""


@dataclass(frozen=True, slots=True)
class Counted:
    """A counter in the sealed baseline and in the last snapshot."""

    name: str
    baseline: int
    last: int

    @property
    def grew(self) -> int:
        """By how much."""
        return self.last - self.baseline


@dataclass(frozen=True, slots=True)
class Memory:
    """One source of memory over the sealed baseline, in bytes.

    Attributes:
        source: its name.
        baseline: what the sealed snapshot says.
        allowance: growth up to which the arm stands.
        growth: over the baseline at the end of each round, headline rounds first; None where a
            round has no number of this source.
    """

    source: str
    baseline: int
    allowance: int
    growth: tuple[int | None, ...]

    @property
    def most(self) -> int:
        """Largest growth of any round; 0 without rounds."""
        return max((one for one in self.growth if one is not None), default=0)


@dataclass(frozen=True, slots=True)
class Clocks:
    """One quantity of one GPU by round, in the order of rounds; None where it was not told."""

    rank: int
    name: str
    values: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class ArmFigures:
    """One arm.

    Attributes:
        slowed: by rank and reason, how many rounds ended under it.
        unanswered: by rank and question, why a GPU gave no answer.
    """

    arm: str
    switch: str
    verdict: str
    baseline_sha256: str
    headline: int
    profiled: int
    failed_rounds: tuple[Counted, ...]
    counters: tuple[Counted, ...]
    memory: tuple[Memory, ...]
    unsupported: Mapping[str, str]
    clocks: tuple[Clocks, ...]
    slowed: Mapping[str, int]
    unanswered: tuple[str, ...]

    @property
    def failures_grew(self) -> int:
        """Failed rounds beyond the baseline, all causes together."""
        return sum(max(0, one.grew) for one in self.failed_rounds)


def arm_figures(arm: MeasuredArm) -> ArmFigures:
    """Return what an arm says beside its baseline."""
    first, last = arm.snapshots[0], arm.snapshots[-1]
    return ArmFigures(
        arm=arm.arm,
        switch=arm.switch,
        verdict=arm.verdict,
        baseline_sha256=arm.baseline_sha256,
        headline=sum(one.phase == "headline" for one in arm.rounds),
        profiled=sum(one.phase == "profiled" for one in arm.rounds),
        failed_rounds=_counted(first.failed_rounds, last.failed_rounds),
        counters=_counted(first.counters, last.counters),
        memory=tuple(
            _memory(source, int(size), arm.rounds) for source, size in first.memory_bytes.items()
        ),
        unsupported=dict(first.unsupported),
        clocks=_clocks(arm.rounds),
        slowed=_slowed(arm.rounds),
        unanswered=tuple(sorted(set(_told(arm.rounds, "unanswered")))),
    )


def _counted(first: Mapping[str, str], last: Mapping[str, str]) -> tuple[Counted, ...]:
    return tuple(
        Counted(name, int(first.get(name, 0)), int(last.get(name, 0)))
        for name in sorted({*first, *last})
    )


def _memory(source: str, baseline: int, rounds: Sequence[Round]) -> Memory:
    sizes = [one.memory_bytes.get(source) for one in rounds]
    growth = tuple(None if size is None else int(size) - baseline for size in sizes)
    return Memory(source, baseline, allowance(baseline), growth)


def _clocks(rounds: Sequence[Round]) -> tuple[Clocks, ...]:
    """Collect every fact of a GPU that is a number in some round."""
    known = {
        (int(match["rank"]), match["name"]): name
        for one in rounds
        for name, value in one.facts.items()
        if (match := _FACT.fullmatch(name)) and _number(value) is not None
    }
    return tuple(
        Clocks(rank, name, tuple(_number(one.facts.get(fact)) for one in rounds))
        for (rank, name), fact in sorted(known.items())
    )


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _slowed(rounds: Sequence[Round]) -> dict[str, int]:
    told = (text for text in _told(rounds, "slowed_by") if not text.endswith(f": {_IDLE}"))
    return dict(sorted(Counter(told).items()))


def _told(rounds: Sequence[Round], name: str) -> Iterator[str]:
    """Yield what each GPU said of one fact at the end of each round, text by text."""
    for one in rounds:
        for fact, value in one.facts.items():
            match = _FACT.fullmatch(fact)
            if match and match["name"] == name:
                texts = value if isinstance(value, tuple) else (value,)
                yield from (f"GPU {match['rank']}: {text}" for text in texts)
