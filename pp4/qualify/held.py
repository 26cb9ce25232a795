"""Gates in a HOLD of a host, this one or another: ask, wait, close, and only then a receipt."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from pp4.config.hold_file import HoldFile
from pp4.errors import Code, Exit, Pp4Error, Refusal, WrongError
from pp4.hold.deferred import CLOSES, Deferred
from pp4.hold.interruption import undisturbed
from pp4.hold.line import raised
from pp4.hold.reach import Place, reached
from pp4.hold.window import Window
from pp4.qualify import far, hops, receipt, rehearsal
from pp4.qualify.plan import Step
from pp4.qualify.progress import Progress
from pp4.qualify.wanted import Chosen, Wanted, choose, evidence_for
from pp4.receipts.canonical import dump
from pp4.receipts.digests import Source, installed_source
from pp4.receipts.store import write_new
from pp4.run.bundled import MINI, bring_pair, bundled
from pp4.run.qualified import Qualified, qualified
from pp4.run.receipt import Outcome, require_same_source, room
from pp4.run.windows import asked_of, deliver_kept, kept, unnamed
from pp4.wire.facts import read, refusal_of
from pp4.wire.gpus import GpuReport
from pp4.wire.holds import Open

_DIFFERENCES = tuple(
    text for text in rehearsal.DIFFERENCES if "HOLD" not in text and "UUID" not in text
)


class Told:
    """Passes on to a progress what a step tells; see :class:`pp4.hold.window.Watcher`.

    Args:
        progress: who watches.
    """

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def told(self, item: dict[str, Any]) -> None:
        """Pass one item on; what this version does not know is passed over."""
        if "planned" in item:
            self._progress.planned([_step(one) for one in item["planned"]])
        elif "started" in item:
            self._progress.started(_step(item["started"]))
        elif "finished" in item:
            self._progress.finished(_step(item["finished"]), item["found"], item["elapsed_s"])
        elif "note" in item:
            self._progress.note(item["note"])

    def alive(self, lease_s: float, deadline_s: float, last_line: str) -> None:
        """Pass on what is left."""
        self._progress.alive(lease_s, deadline_s, last_line)


def _step(told: dict[str, Any]) -> Step:
    try:
        return Step(**told)
    except TypeError as error:
        raise WrongError(Refusal(Code.BAD_FRAME, "progress", "a step", str(error))) from error


def _gpus_there(place: Place, command: str) -> GpuReport:
    """What the driver of the host says of its GPUs, once what a run needs is installed there.

    Raises:
        RefusedError: what the host refuses.
        WrongError: its answer is none.
    """
    return read(GpuReport, place.ask("pp4.run.host", command))


def _asked(file: HoldFile, chosen: Chosen) -> Open:
    report = chosen.report
    held = [gpu for gpu in report.gpus if gpu.uuid in chosen.gpus] if report else []
    return asked_of(
        file,
        str(chosen.admitted.command),
        chosen.admitted.source_digest,
        chosen.gpus,
        evidence=chosen.evidence,
        gpu_models=tuple(sorted({gpu.name for gpu in held})),
        drivers=(report.driver_version or "not told",) if report else (),
        rehearsal=report is None,
    )


class Further(Protocol):
    """What is done in a HOLD once its gates have passed, as far as the gates have to know it."""

    def asked(self, asked: Open) -> Open:
        """What the host is asked for in place of a HOLD for the gates alone."""

    def opened(self, window: Window, place: Place) -> str:
        """The HOLD is open: bring what is needed there; -> directory of the drafter on the host.

        The gates run with that drafter.
        """

    def told(self, item: dict[str, Any]) -> None:
        """A step told something."""

    def alive(self, lease_s: float, deadline_s: float, last_line: str) -> None:
        """The host has answered a heartbeat."""


@dataclass(slots=True)
class Held:
    """A HOLD in which the gates were run.

    Attributes:
        place: its host.
        window: the HOLD.
        source: that runs.
        made: what the gates found.
        qualified: proof that they passed; None where they did not, or were not those of a pair.
        outcome: what was stored of them, once the HOLD is closed.
    """

    place: Place
    window: Window
    source: Source
    made: far.Receipts
    qualified: Qualified | None
    outcome: Outcome | None = None


class _Both:
    """Tells two what a window tells."""

    def __init__(self, progress: Progress, further: Further) -> None:
        self._two = (Told(progress), further)

    def told(self, item: dict[str, Any]) -> None:
        for one in self._two:
            one.told(item)

    def alive(self, lease_s: float, deadline_s: float, last_line: str) -> None:
        for one in self._two:
            one.alive(lease_s, deadline_s, last_line)


@contextlib.contextmanager
def gates_held(
    file: HoldFile,
    wanted: Wanted,
    out: Path,
    progress: Progress,
    *,
    state_dir: Path,
    further: Further | None = None,
) -> Iterator[Held]:
    """Run gates in a HOLD, which stays open while the block runs; their receipts are stored then.

    Whatever ends the block: what the gates have found is stored once the HOLD is proven closed.

    Args:
        file: which host, and what happens around the work.
        wanted: what is run there.
        out: directory of the receipt; made if it is not there.
        progress: who watches.
        state_dir: the coordinator's, for closes that cannot be delivered.
        further: what the block does in the HOLD; None where nothing follows.

    Raises:
        Pp4Error: as :func:`qualify_on_host`.
    """
    source = installed_source()
    given = evidence_for(file, wanted)
    with reached(file, source) as place:
        look = partial(_gpus_there, place, wanted.command)
        chosen = choose(file, wanted, given, source, look)
        with room(out):
            deferred = Deferred(state_dir / CLOSES)
            deliver_kept(place, file, deferred, progress.note)
            asked, told = _asked(file, chosen), chosen.told
            if further is not None:
                asked = further.asked(asked)
            watcher = Told(progress) if further is None else _Both(progress, further)
            held: Held | None = None
            try:
                with kept(place, deferred, asked, watcher, progress.note, wanted.option) as window:
                    hops.arrive(window, file, source.digest, progress)
                    drafter = _drafter(window, place, wanted, further)
                    told = told.model_copy(update={"checkpoint": drafter})
                    held = _gates(window, place, source, told)
                    yield held
            except BaseException:
                if held is not None and held.window.tombstone is not None:
                    _store_beside(held, wanted.command, out, progress)
                raise
            _store(held, wanted.command, out)


def _drafter(window: Window, place: Place, wanted: Wanted, further: Further | None) -> str | None:
    """Directory of the drafter on the host, which is brought there where it is pp4's own."""
    if further is not None:
        return further.opened(window, place)
    return bring_pair(bundled(), window, place) if wanted.checkpoint == MINI else wanted.checkpoint


def _store(held: Held, command: str, out: Path) -> None:
    """Store what the gates found: the HOLD is closed, so only now is there a claim to make."""
    require_same_source(held.source, command)
    held.outcome = _stored(held, out)


def _store_beside(held: Held, command: str, out: Path, progress: Progress) -> None:
    """Store it although something else ended the run, and in whose place nothing may come."""
    try:
        with undisturbed():
            _store(held, command, out)
    except Pp4Error as error:
        progress.note(f"what the gates have found is not stored: {error}")


def _gates(window: Window, place: Place, source: Source, told: far.Gates) -> Held:
    made = read(far.Receipts, window.run("gates", far.MODULE, told.model_dump(mode="json")))
    for body in made.bodies:
        body["hold"]["host_key"] = place.host.fingerprint
    proof = qualified(made.bodies[0], window.granted, source)
    return Held(place, window, source, made, proof)


def qualify_on_host(
    file: HoldFile, wanted: Wanted, out: Path, progress: Progress, *, state_dir: Path
) -> Outcome:
    """Run gates in a HOLD of a host, this one or another, and store a receipt here.

    Args:
        file: which host, and what happens around the work.
        wanted: what is run there.
        out: directory of the receipt; made if it is not there.
        progress: who watches.
        state_dir: the coordinator's, for closes that cannot be delivered.

    Returns:
        The outcome; a failed gate is an outcome, not an exception.

    Raises:
        Pp4Error: what the host or the way to it refuses; ``LEASE_LOST``, ``DEADLINE``.
        RefusedError: evidence does not match; ``out`` cannot be written; pp4 itself was changed
            during the run.
        UncleanError: the HOLD could not be proven closed.
    """
    with gates_held(file, wanted, out, progress, state_dir=state_dir) as held:
        pass
    outcome = stored_of(held)
    return replace(outcome, differences=_DIFFERENCES) if wanted.work == "rehearsal" else outcome


def stored_of(held: Held) -> Outcome:
    """What was stored of the gates of a HOLD that is closed.

    Raises:
        Pp4Error: what kept a further receipt from being made; those that were made stay.
    """
    if held.outcome is None:
        raise ValueError("the HOLD is still open")
    _require_all(held.made, held.outcome)
    return held.outcome


def _stored(held: Held, out: Path) -> Outcome:
    """Store every receipt of a run, and the tombstone of its HOLD beside the first."""
    outcomes = []
    for body in held.made.bodies:
        name = f"{body['kind']}-{held.window.granted.hold}"
        outcomes.append(receipt.store(body, held.source, out / f"{name}.json"))
        if len(outcomes) == 1:
            write_new(out / f"{name}.closed", dump(unnamed(held.window.tombstone or {})))
    first, *others = outcomes
    worst = next((one for one in outcomes if one.exit is not Exit.DONE), first)
    more = tuple(one.receipt_path for one in others)
    return replace(first, verdict=worst.verdict, exit=worst.exit, more=more)


def _require_all(made: far.Receipts, outcome: Outcome) -> None:
    """Say what kept a further receipt from being made; those that were made stay."""
    if made.refusal is not None:
        left = f"{outcome.receipt_path}, which is whole"
        raise raised(replace(refusal_of(made.refusal), left=left))
