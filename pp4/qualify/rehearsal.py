"""The rehearsal: the same gates on a CPU, in a local HOLD, ending in a receipt of its own kind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pp4.clock import Clock, SystemClock
from pp4.config import load_settings
from pp4.errors import RefusedError
from pp4.hold.open import OpenHold
from pp4.hold.rehearsal import open_rehearsal
from pp4.qualify import receipt
from pp4.qualify.context import Context
from pp4.qualify.gates import REHEARSED
from pp4.qualify.pair_qualify import pair_qualify
from pp4.qualify.progress import Progress
from pp4.qualify.settings import REHEARSAL, Settings
from pp4.receipts.admission import Admission, Command, Refused, Subject, admit
from pp4.receipts.digests import Source, installed_source
from pp4.run.receipt import Outcome, require_packages, require_same_source, room
from pp4.transport.local import LocalTransport

COMMAND = "pp4 pair-qualify --dry-run"

LIMITS = (
    "No GPU was used: nothing here is evidence about hardware, drivers or peer memory.",
    "The interpreter runs the programs of a launch in order: retirement order was not varied.",
    "Shared memory of one machine stands in for peer memory; x86 keeps stores in order.",
    "Compiled code was read, not run; budgets in nanoseconds were not exercised.",
    "The interpreter compiles nothing at a launch: that no launch compiles was not exercised.",
    "Gate 6 compared two workers of this run with each other, and none with an archive.",
    "Not established: GB10, grammar and parser, live throughput.",
)

DIFFERENCES = (
    "kernels run compiled on two GPUs, not in the interpreter",
    "peer memory is the other GPU's, over NVLink or PCIe, not a mapped file",
    "waits are bounded in nanoseconds by the GPU's own timer, not by a count of polls",
    "GPUs are named by UUID and locked; foreign processes and memory in use are looked at",
    "the HOLD has a lease, a fence that outlives it and a deadline on the receiving host",
    "shapes are those of production, with 100,000 rows and 1,000 replays in place of a few",
    "gate 6 compares the whole worker with an archived solo receipt (scope full)",
)


def admission(source: Source) -> Admission:
    """Admit a rehearsal of this source; it rests on no evidence.

    Raises:
        RefusedError: what admission refuses.
    """
    judged = admit(Command.REHEARSAL, [], Subject(source_digest=source.digest))
    if isinstance(judged, Refused):
        raise RefusedError(judged.refusal)
    return judged


def run_gates(
    hold: OpenHold, progress: Progress, settings: Settings = REHEARSAL, command: str = COMMAND
) -> dict[str, object]:
    """Rehearse every gate of scope ``full`` inside a HOLD; -> members of the receipt.

    Raises:
        WrongError: no rank ever answered.
        UncleanError: something may still run.
    """
    context = Context(hold, settings)
    results = pair_qualify(context, REHEARSED, progress)
    receipt.require_answer(context, results, command)
    return {
        "kind": "rehearsal",
        "scope": "full",
        "hardware_executed": False,
        "limits": list(LIMITS),
        "gpus": [],
        **receipt.members(hold, context, results, REHEARSED, "rehearsed"),
    }


def rehearse(
    out: Path, progress: Progress, *, clock: Clock | None = None, settings: Settings = REHEARSAL
) -> Outcome:
    """Run every gate of scope ``full`` on this machine's CPU and store a receipt.

    Args:
        out: directory of the receipt; made if it is not there.
        progress: who watches.
        clock: where deadlines come from.
        settings: numbers of the run.

    Returns:
        The outcome; a failed gate is an outcome, not an exception.

    Raises:
        RefusedError: a package is missing, ``out`` cannot be written, or pp4 itself was changed
            during the run.
        UncleanError: something may still run.
    """
    require_packages(COMMAND)
    source = installed_source()
    admitted = admission(source)
    temporary = load_settings().temp_dir
    with room(out):
        with open_rehearsal(admitted, LocalTransport(), clock or SystemClock(), temporary) as hold:
            body = run_gates(hold, progress, settings)
        # the HOLD is closed and its processes are proven dead: only now is there a claim to make
        require_same_source(source, COMMAND)
        outcome = receipt.store(body, source, out / f"rehearsal-{hold.hold_id}.json")
    return replace(outcome, differences=DIFFERENCES)
