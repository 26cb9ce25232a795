"""What the arms of a half share, and what each of them finds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pp4.errors import Refusal
from pp4.hold.open import OpenHold
from pp4.measure.judging import SameLoaded, SameText
from pp4.measure.programs import SWITCHED_ON, Limits, Places
from pp4.measure.recorder import Recorder
from pp4.measure.stopwatch import Stopwatch
from pp4.receipts.digests import tree_digest
from pp4.receipts.runs import Round, Snapshot
from pp4.wire.frozen import Served
from pp4.wire.measuring import Arm, Schedule

Verdict = Literal["complete", "failed_rounds_grew", "memory_grew", "partial"]


@dataclass(frozen=True, slots=True)
class Bench:
    """What the arms of a half share.

    Attributes:
        hold: under which they run.
        recorder: who writes down what they find.
        places: of the pair.
        schedule: of every arm.
        compiled: where compiled kernels are kept.
        words: what is said in the place of names of GPUs.
        texts: what the first arm has said at temperature 0.
        loaded: what the arms before have loaded.
        watch: takes the time of every part.
        limits: of every arm.
    """

    hold: OpenHold
    recorder: Recorder
    places: Places
    schedule: Schedule
    compiled: Path
    words: Mapping[str, str]
    texts: SameText
    loaded: SameLoaded
    watch: Stopwatch
    limits: Limits


@dataclass
class Ran:
    """What an arm has found so far.

    Attributes:
        arm: which.
        verdict: ``partial`` until it is more.
        snapshots: the baseline first; none where it did not come that far.
        rounds: timed ones.
        served: what its worker said; None where it never served.
        refusal: what ended it, None for one that is complete.
    """

    arm: Arm
    verdict: Verdict = "partial"
    snapshots: list[Snapshot] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)
    served: Served | None = None
    refusal: Refusal | None = None

    def tree(self) -> dict[str, object]:
        """The arm as receipts have it.

        Raises:
            IndexError: it has no baseline, and no receipt is about it.
        """
        return {
            "arm": self.arm,
            "switch": "ON" if SWITCHED_ON[self.arm] else "OFF",
            "verdict": self.verdict,
            "baseline_sha256": sealed(self.snapshots[0]),
            "snapshots": [one.model_dump(mode="json") for one in self.snapshots],
            "rounds": [one.model_dump(mode="json") for one in self.rounds],
        }


def sealed(snapshot: Snapshot) -> str:
    """Digest by which a baseline is held fixed."""
    return tree_digest(snapshot.model_dump(mode="json"))
