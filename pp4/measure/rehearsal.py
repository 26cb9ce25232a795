"""A rehearsal of a measurement: the same states on this machine's CPU, and nothing is measured."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from pp4.clock import SystemClock
from pp4.config.hold_file import HoldFile
from pp4.errors import Code, Exit, Refusal, RefusedError, WrongError
from pp4.hold.deferred import CLOSES, Deferred
from pp4.hold.line import raised
from pp4.hold.reach import reached
from pp4.measure.admitting import Judged
from pp4.measure.held import Measuring
from pp4.measure.progress import Progress
from pp4.measure.sealing import NOTHING
from pp4.run.receipt import require_packages, room
from pp4.run.windows import REHEARSAL_GPUS, asked_of, kept
from pp4.wire.facts import refusal_of
from pp4.wire.measuring import Measured

GATES: Final = "the gates that come first in each HOLD are rehearsed by pp4 pair-qualify --dry-run"
DIFFERENCES: Final = (
    "every gate of scope full passes first, in the same HOLD, or nothing is measured",
    "evidence is judged before any contact: references, the budget, the first half and its end",
    "worker and target run compiled on two GPUs and one of them, not on a CPU",
    "there are more rounds, batch sizes and temperatures, and each is timed",
    "clocks, power and temperature of the GPUs are read after each round",
    "what was measured is sealed as a receipt once the HOLD is closed",
)


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """How a rehearsal ended.

    Attributes:
        rounds: its file of rounds.
        arms: (arm, verdict, rounds) of each.
        parts: what a budget would be made of: (part, nanoseconds), in their order.
    """

    rounds: Path
    arms: tuple[tuple[str, str, int], ...]
    parts: tuple[tuple[str, int], ...]


def rehearse(judged: Judged, progress: Progress, temporary: Path) -> Rehearsed:
    """Run both arms of a half, or of a budget, in a HOLD of names on this machine.

    Args:
        judged: what is rehearsed; its HOLD file is that of this machine.
        progress: who watches.
        temporary: where a directory for the HOLD is made, and removed at the end.

    Raises:
        RefusedError: a package is missing, or a directory takes no files.
        Pp4Error: what ended it; the rounds until then are in the file.
    """
    asked = judged.asked
    require_packages(asked.command)
    progress.note(GATES)
    with room(asked.out), _somewhere(temporary) as directory:
        file = _here(asked.file, directory)
        measuring = Measuring(judged, progress, SystemClock())
        opened = asked_of(
            file,
            str(judged.admission.command),
            judged.source.digest,
            REHEARSAL_GPUS,
            rehearsal=True,
        )
        deferred = Deferred(directory / CLOSES)
        with (
            measuring,
            reached(file, judged.source) as place,
            kept(place, deferred, opened, measuring, progress.note, "") as window,
        ):
            measuring.opened(window, place)
            measured = measuring.rehearse()
    return _rehearsed(measuring, measured)


@contextlib.contextmanager
def _somewhere(parent: Path) -> Iterator[Path]:
    """A directory for the HOLD and its books; it stays where the HOLD may still be open."""
    try:
        # a short name: sockets lie deep below it, and the name of one has to be short
        directory = Path(tempfile.mkdtemp(prefix="pp4-", dir=parent))
    except OSError as error:
        where, found = str(parent), error.strerror or str(error)
        raise RefusedError(Refusal(Code.UNWRITABLE, where, "a new directory", found)) from error
    try:
        yield directory
    finally:
        if not (directory / CLOSES).exists():
            shutil.rmtree(directory, ignore_errors=True)


def _here(file: HoldFile, directory: Path) -> HoldFile:
    """This machine, with books of its own: the rehearsal meets nobody else's HOLD."""
    state, host = str(directory / "state"), str(directory / "host")
    return replace(file, host=replace(file.host, state_dir=state, host_dir=host))


def _rehearsed(measuring: Measuring, measured: Measured) -> Rehearsed:
    if measured.refusal is not None:
        error = raised(refusal_of(measured.refusal))
        # it was begun: what ended an arm is no refusal any more
        raise WrongError(error.refusal) if type(error) is RefusedError else error
    if measuring.rounds is None:
        raise ValueError("a rehearsal that was run has begun its file of rounds")
    arms = tuple((arm["arm"], arm["verdict"], len(arm["rounds"])) for arm in measured.arms)
    parts = tuple((one.name, one.worst_ns) for one in measured.sampled)
    return Rehearsed(measuring.rounds, arms, parts)


def document_of(found: Rehearsed) -> dict[str, Any]:
    """What there is to say of a rehearsal, as a JSON tree."""
    return {
        **NOTHING,
        "verdict": "rehearsed",
        "exit": int(Exit.DONE),
        "rounds": str(found.rounds),
        "arms": [
            {"arm": arm, "verdict": verdict, "rounds": count} for arm, verdict, count in found.arms
        ],
        "sampled": [{"name": name, "worst_ns": str(ns)} for name, ns in found.parts],
        "differences": list(DIFFERENCES),
    }
