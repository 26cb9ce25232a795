"""Gates in a HOLD of a host that a HOLD file names: ask, wait, close, and only then a receipt."""

from __future__ import annotations

import contextlib
import getpass
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pp4.clock import SystemClock
from pp4.config.hold_file import HoldFile, read_evidence
from pp4.errors import Code, Pp4Error, Refusal, RefusedError, WrongError
from pp4.hold.deferred import CLOSES, Deferred
from pp4.hold.interruption import undisturbed
from pp4.hold.reach import Place, reached
from pp4.hold.window import Window, deliver, open_window
from pp4.qualify import far, hops, physical, receipt, rehearsal
from pp4.qualify.plan import Step
from pp4.qualify.progress import Progress
from pp4.qualify.receipt import Outcome
from pp4.receipts.admission import Admission
from pp4.receipts.canonical import dump
from pp4.receipts.digests import installed_source
from pp4.receipts.store import write_new
from pp4.wire.facts import read
from pp4.wire.gpus import GpuReport
from pp4.wire.holds import Close, Given, HostCommand, Open

REHEARSAL_GPUS = (
    "GPU-00000000-0000-4000-8000-000000000000",
    "GPU-00000000-0000-4000-8000-000000000001",
)
"""What a rehearsal holds where the HOLD file names no GPU: names that no driver gives."""
COMMAND = "pp4 pair-qualify --hold FILE"
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


def _gpus_there(place: Place) -> GpuReport:
    """What the driver of the host says of its GPUs.

    Raises:
        RefusedError: what the host refuses.
        WrongError: its answer is none.
    """
    return read(GpuReport, place.ask("pp4.qualify.host"))


def _chosen(file: HoldFile, report: GpuReport) -> tuple[str, ...]:
    if file.host.gpus == "auto":
        return physical.pair_of(report)
    there = {gpu.uuid for gpu in report.gpus}
    missing = [uuid for uuid in file.host.gpus if uuid not in there]
    if missing:
        found = ", ".join(sorted(there)) or "no GPU"
        where, expected = "gpus of the HOLD file", ", ".join(missing)
        raise RefusedError(Refusal(Code.NO_GPU_PAIR, where, expected, found, next="pp4 doctor"))
    # what keeps a pair from being one is said before anything is held
    gpus = tuple(gpu for gpu in report.gpus if gpu.uuid in file.host.gpus)
    physical.pair_of(report.model_copy(update={"gpus": gpus}))
    return file.host.gpus


def _given(evidence: Sequence[tuple[str, bytes]]) -> tuple[Given, ...]:
    return tuple(Given.of(role, raw) for role, raw in evidence)


def _asked(
    file: HoldFile,
    admitted: Admission,
    gpus: Sequence[str],
    evidence: Sequence[tuple[str, bytes]],
    report: GpuReport | None,
) -> Open:
    def commands(given: Sequence[Any]) -> tuple[HostCommand, ...]:
        return tuple(HostCommand(argv=one.argv, limit_s=float(one.limit_s)) for one in given)

    held = [gpu for gpu in report.gpus if gpu.uuid in gpus] if report else []
    return Open(
        command=str(admitted.command),
        source_digest=admitted.source_digest,
        evidence=_given(evidence),
        gpu_models=tuple(sorted({gpu.name for gpu in held})),
        drivers=(report.driver_version or "not told",) if report else (),
        gpus=tuple(gpus),
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
def _kept(place: Place, deferred: Deferred, asked: Open, progress: Progress) -> Iterator[Window]:
    """A window whose close is kept for later where it could not be delivered."""
    window: Window | None = None
    try:
        with open_window(place.host, place.program, asked, SystemClock(), Told(progress)) as window:
            yield window
    finally:
        if window is not None and window.tombstone is None:
            granted = window.granted
            try:
                with undisturbed():
                    deferred.store(place.host.address, granted.hold, granted.fence, "cancelled")
            except Pp4Error as error:
                # what ended the run is said; that the close is not kept must not take its place
                progress.note(f"the close of HOLD {granted.hold} is not kept: {error}")


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


def qualify_on_host(
    file: HoldFile,
    out: Path,
    progress: Progress,
    *,
    state_dir: Path,
    rehearse: bool = False,
    evidence: Sequence[tuple[str, bytes]] = (),
    soak_minutes: int = 0,
) -> Outcome:
    """Run every gate of scope ``kernels`` in a HOLD of another host and store a receipt here.

    Args:
        file: which host, and what happens around the work.
        out: directory of the receipt; made if it is not there.
        progress: who watches.
        state_dir: the coordinator's, for closes that cannot be delivered.
        rehearse: whether the gates run in the interpreter there and no GPU is touched.
        evidence: (role, bytes) of receipts that the run has to match, beside the HOLD file's.
        soak_minutes: how long exchanges are repeated after the gates.

    Returns:
        The outcome; a failed gate is an outcome, not an exception.

    Raises:
        Pp4Error: what the host or the way to it refuses; ``LEASE_LOST``, ``DEADLINE``.
        UncleanError: the HOLD could not be proven closed.
    """
    source = installed_source()
    given = [*read_evidence(file), *evidence]
    if rehearse:
        given = []
    with receipt.room(out), reached(file, source) as place:
        if rehearse:
            report, admitted = None, rehearsal.admission(source)
            gpus = REHEARSAL_GPUS if file.host.gpus == "auto" else file.host.gpus
        else:
            report = _gpus_there(place)
            gpus = _chosen(file, report)
            admitted = physical.admission(physical.PAIR.command, source, given, report, gpus)
        asked = _asked(file, admitted, gpus, given, report)
        told = far.Gates(
            work="rehearsal" if rehearse else "pair",
            evidence=_given(given),
            soak_minutes=soak_minutes,
        )
        deferred = Deferred(state_dir / CLOSES)
        _deliver(place, file, deferred, progress)
        with _kept(place, deferred, asked, progress) as window:
            hops.arrive(window, file, source.digest, progress)
            body = window.run("gates", far.MODULE, told.model_dump(mode="json"))
        # the HOLD is closed and its processes are proven dead: only now is there a claim to make
        receipt.require_same_source(source, COMMAND)
        body["hold"]["host_key"] = place.host.fingerprint
        name = f"{body['kind']}-{window.granted.hold}"
        outcome = receipt.store(body, source, out / f"{name}.json")
        write_new(out / f"{name}.closed", dump(_unnamed(window.tombstone or {})))
    return replace(outcome, differences=_DIFFERENCES) if rehearse else outcome
