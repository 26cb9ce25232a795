"""Gates in a HOLD of a host, this one or another: ask, wait, close, and only then a receipt."""

from __future__ import annotations

import contextlib
import getpass
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pp4.clock import SystemClock
from pp4.config.hold_file import HoldFile
from pp4.errors import Code, Exit, Pp4Error, Refusal, WrongError
from pp4.hold.around import DONE
from pp4.hold.deferred import CLOSES, Deferred
from pp4.hold.delivery import deliver
from pp4.hold.interruption import undisturbed
from pp4.hold.line import raised
from pp4.hold.reach import Place, reached
from pp4.hold.window import Window, open_window
from pp4.qualify import far, hops, receipt, rehearsal
from pp4.qualify.plan import Step
from pp4.qualify.progress import Progress
from pp4.qualify.wanted import Chosen, Wanted, choose, evidence_for
from pp4.receipts.canonical import dump
from pp4.receipts.digests import Source, installed_source
from pp4.receipts.store import write_new
from pp4.run.receipt import Outcome, require_same_source, room
from pp4.wire.facts import read, refusal_of
from pp4.wire.gpus import GpuReport
from pp4.wire.holds import Close, HostCommand, Open

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
    def commands(given: Sequence[Any]) -> tuple[HostCommand, ...]:
        return tuple(HostCommand(argv=one.argv, limit_s=float(one.limit_s)) for one in given)

    report = chosen.report
    held = [gpu for gpu in report.gpus if gpu.uuid in chosen.gpus] if report else []
    return Open(
        command=str(chosen.admitted.command),
        source_digest=chosen.admitted.source_digest,
        evidence=chosen.evidence,
        gpu_models=tuple(sorted({gpu.name for gpu in held})),
        drivers=(report.driver_version or "not told",) if report else (),
        gpus=chosen.gpus,
        rehearsal=report is None,
        coordinator=_asker(),
        transport=file.host.transport,
        ttl_s=float(file.ttl_s),
        bound_s=float(file.bound_s),
        state_dir=file.host.state_dir,
        host_dir=file.host.host_dir,
        quiesce=commands(file.quiesce),
        restore=commands(file.restore),
    )


def _unnamed(tombstone: Mapping[str, Any]) -> dict[str, Any]:
    """A tombstone without what names the machine; the whole one stays on the host."""
    return {name: one for name, one in tombstone.items() if name not in ("gpus", "boot_id")}


def _asker() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        # a container may run as a user that no file names
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


@contextlib.contextmanager
def _kept(
    place: Place, deferred: Deferred, asked: Open, progress: Progress, option: str
) -> Iterator[Window]:
    """A window whose close is kept for later where it could not be delivered."""
    window: Window | None = None
    told = Told(progress)
    try:
        with open_window(place.host, place.program, asked, SystemClock(), told, option) as window:
            window.quieten()
            yield window
    finally:
        if window is not None:
            _say_unrestored(window.tombstone or {}, progress)
        if window is not None and window.tombstone is None:
            granted = window.granted
            try:
                with undisturbed():
                    deferred.store(place.host.address, granted.hold, granted.fence, "cancelled")
                again = f"pp4 hold recover {granted.hold}{option}"
                progress.note(f"the close of HOLD {granted.hold} is kept; how it ended: {again}")
            except Pp4Error as error:
                # what ended the run is said; that the close is not kept must not take its place
                progress.note(f"the close of HOLD {granted.hold} is not kept: {error}")


def _say_unrestored(tombstone: Mapping[str, Any], progress: Progress) -> None:
    """Say which restore commands did not end well: what they start is not running perhaps."""
    restored = tombstone.get("restored")
    for text in map(str, restored if isinstance(restored, list) else ()):
        if not text.endswith(f": {DONE}"):
            progress.note(f"restore: {text}")


def _deliver(place: Place, file: HoldFile, deferred: Deferred, progress: Progress) -> None:
    """Deliver what could not be delivered to this host before; what still cannot stays."""
    for fault in deferred.faults():
        progress.note(f"{fault.where}: {fault.found}")
    for one in deferred.pending(place.host.address):
        close = Close(hold=one.hold, fence=int(one.fence), why="cancelled")
        directories = (file.host.state_dir, file.host.host_dir)
        try:
            tombstone = deliver(
                place.host, place.program, close, directories, SystemClock(), file.restore_s
            )
        except Pp4Error as error:
            progress.note(f"HOLD {one.hold} is not closed yet: {error}")
            if error.refusal.code is Code.UNKNOWN_HOLD:
                # its records were pruned there, which only an ended one's are
                deferred.delivered(one.hold)
            continue
        deferred.delivered(one.hold)
        progress.note(f"HOLD {one.hold} is closed: {tombstone.get('why')}")
        _say_unrestored(tombstone, progress)


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
    source = installed_source()
    given = evidence_for(file, wanted)
    with reached(file, source) as place:
        look = partial(_gpus_there, place, wanted.command)
        chosen = choose(file, wanted, given, source, look)
        with room(out):
            deferred = Deferred(state_dir / CLOSES)
            _deliver(place, file, deferred, progress)
            asked = _asked(file, chosen)
            with _kept(place, deferred, asked, progress, wanted.option) as window:
                hops.arrive(window, file, source.digest, progress)
                told = window.run("gates", far.MODULE, chosen.told.model_dump(mode="json"))
            # the HOLD is closed, its processes are proven dead: only now is there a claim to make
            require_same_source(source, wanted.command)
            made = read(far.Receipts, told)
            outcome = _stored(made, source, out, window, place)
    _require_all(made, outcome)
    return replace(outcome, differences=_DIFFERENCES) if chosen.report is None else outcome


def _stored(made: far.Receipts, source: Source, out: Path, window: Window, place: Place) -> Outcome:
    """Store every receipt of a run, and the tombstone of its HOLD beside the first."""
    outcomes = []
    for body in made.bodies:
        body["hold"]["host_key"] = place.host.fingerprint
        name = f"{body['kind']}-{window.granted.hold}"
        outcomes.append(receipt.store(body, source, out / f"{name}.json"))
        if len(outcomes) == 1:
            write_new(out / f"{name}.closed", dump(_unnamed(window.tombstone or {})))
    first, *others = outcomes
    worst = next((one for one in outcomes if one.exit is not Exit.DONE), first)
    more = tuple(one.receipt_path for one in others)
    return replace(first, verdict=worst.verdict, exit=worst.exit, more=more)


def _require_all(made: far.Receipts, outcome: Outcome) -> None:
    """Say what kept a further receipt from being made; those that were made stay."""
    if made.refusal is not None:
        left = f"{outcome.receipt_path}, which is whole"
        raise raised(replace(refusal_of(made.refusal), left=left))
