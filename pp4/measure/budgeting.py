"""From samples to how long a window will take; pure.

Parts that both arms of a half run once are taken once for each of them, by the slower arm: what a
budget found for OFF and for ON is one sample of two, and the worst of all counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from pp4.clock import NS_PER_S
from pp4.errors import Code, Refusal, RefusedError
from pp4.measure.schedule import TIMED, Cell, Phase, cells, counts
from pp4.wire.measuring import Sampled, Schedule

STAGING: Final = "staging"
QUALIFICATION: Final = "qualification"
ENGINE: Final = "engine-start"
WORKER: Final = "worker-start"
WARM_UP: Final = "warm-up"
GREEDY: Final = "greedy"
REST: Final = "arm-rest"
"""What else an arm takes: its connection, snapshots, the journal, the end of its processes."""
CLOSING: Final = "closing"
OF_COORDINATOR: Final = (STAGING, QUALIFICATION)
OF_ARM: Final = (ENGINE, WORKER, WARM_UP, GREEDY, REST)
ARMS_OF_A_HALF: Final = 2
MARGIN_PERCENT: Final = 25
"""On top of the worst that was measured: a budget has few samples of each part."""
VALID: Final = timedelta(days=7)
"""Long enough for two windows, short enough that driver and host are likely still the same; what
can be compared is compared besides."""
_WHERE: Final = "budget"


@dataclass(frozen=True, slots=True)
class Projection:
    """How long a half will take.

    Attributes:
        parts: each as receipts have it.
        projected_ns: their sum.
        bound_ns: how long the window may last.
    """

    parts: tuple[dict[str, object], ...]
    projected_ns: int
    bound_ns: int

    @property
    def verdict(self) -> Literal["fits", "over"]:
        """Whether it fits the window."""
        return "fits" if self.projected_ns <= self.bound_ns else "over"

    def members(self) -> dict[str, object]:
        """Members of a receipt."""
        return {
            "verdict": self.verdict,
            "bound_ns": str(self.bound_ns),
            "parts": list(self.parts),
            "projected_ns": str(self.projected_ns),
        }


def part_of(phase: Phase, cell: Cell) -> str:
    """Name of the part that is one round of a cell."""
    return f"{phase}.{cell.name}"


def times(schedule: Schedule) -> Mapping[str, int]:
    """How often each part comes in a half, in the order in which it comes."""
    once = dict.fromkeys(OF_COORDINATOR, 1) | dict.fromkeys(OF_ARM, ARMS_OF_A_HALF)
    timed = {
        part_of(phase, cell): ARMS_OF_A_HALF * counts(schedule, phase)[cell]
        for phase in TIMED
        for cell in cells(schedule)
    }
    return {**once, **timed, CLOSING: 1}


def sampled_schedule(schedule: Schedule, samples: int) -> Schedule:
    """The schedule of an arm that is only sampled: every cell has so many rounds of each phase.

    Warm-up and greedy pass are parts as a whole, and stay as they are.
    """
    few = dict.fromkeys(("headline", "primary", "profiled"), samples)
    return schedule.model_copy(update=few)


def closing(limits_s: Iterable[float], reserve_s: float) -> Sampled:
    """The end of a window by its limits, since nobody wants to see it take that long.

    Args:
        limits_s: of the commands that quiesce and restore the host, in seconds.
        reserve_s: what a HOLD keeps of its time for its own end.
    """
    seconds = sum(limits_s) + reserve_s
    return Sampled(name=CLOSING, worst_ns=max(1, round(seconds * NS_PER_S)), samples=1)


def project(samples: Iterable[Sampled], schedule: Schedule, bound_ns: int) -> Projection:
    """How long a half of a schedule takes, if every round is as long as the worst one and a margin.

    Args:
        samples: of the host and of the coordinator; each part once.
        schedule: of the half.
        bound_ns: how long the window may last.

    Raises:
        RefusedError: ``NOT_PROVEN``, a part has no sample, more than one, or is none of a half.
    """
    found: dict[str, Sampled] = {}
    wanted = times(schedule)
    for one in samples:
        if one.name in found or one.name not in wanted:
            again = "a second one of" if one.name in found else "one of"
            raise _refused("each part of a half once", f"{again} {one.name}")
        found[one.name] = one
    missing = [name for name in wanted if name not in found]
    if missing:
        raise _refused("a sample of each part of a half", f"none of {', '.join(missing)}")
    parts = tuple(_part(found[name], many) for name, many in wanted.items())
    total = sum(int(str(part["projected_ns"])) for part in parts)
    return Projection(parts, total, bound_ns)


def _part(sampled: Sampled, many: int) -> dict[str, object]:
    # a limit is kept by whoever ends the window: nothing comes on top of it
    margin = 0 if sampled.name == CLOSING else MARGIN_PERCENT
    exact = sampled.worst_ns * many * (100 + margin)
    return {
        "name": sampled.name,
        "worst_ns": str(sampled.worst_ns),
        "times": many,
        "margin_percent": margin,
        "samples": sampled.samples,
        "projected_ns": str(-(-exact // 100)),
    }


def expires_at(now: datetime) -> str:
    """Until when a budget of now may open a window, as receipts spell it."""
    return (now + VALID).strftime("%Y-%m-%dT%H:%M:%SZ")


def _refused(expected: str, found: str) -> RefusedError:
    again = "pp4 measure budget --hold FILE"
    return RefusedError(Refusal(Code.NOT_PROVEN, _WHERE, expected, found, next=again))
