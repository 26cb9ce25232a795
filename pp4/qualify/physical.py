"""Runs on GPUs that a HOLD has: the pair, and one GPU alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pp4.errors import Code, Pp4Error, Refusal, RefusedError, UncleanError
from pp4.hold.open import OpenHold
from pp4.qualify import gates as all_gates
from pp4.qualify import gpu_members, receipt, whole_receipt
from pp4.qualify.context import Context
from pp4.qualify.gates import Gate
from pp4.qualify.pair_qualify import pair_qualify
from pp4.qualify.progress import Progress
from pp4.qualify.settings import physical
from pp4.qualify.soak import result as soak_result
from pp4.qualify.soak import with_soak
from pp4.qualify.whole_settings import PHYSICAL
from pp4.receipts.admission import Admission, Command, Refused, Subject, admit
from pp4.receipts.digests import Source
from pp4.receipts.hardware_checks import PAIR_KERNEL, SOLO_KERNEL, WORKER_BIAS, WORKER_PAIR
from pp4.wire.gpus import Gpu, GpuReport, find, first_pair

_SEEDS = "Weights and logits were made from seeds; no trained model took part."
_RACES = (
    "A race that need not show in a run is excluded by the compiled code and by the host model, "
    "not by the runs that are recorded here."
)
_BOTH_LIMITS = (
    "The GPUs' clocks were as they were found; no speed is claimed.",
    "Covers these GPUs, this driver, these libraries and binaries, and the time of the run.",
    "Not established: GB10, grammar and parser, live throughput.",
)
PAIR_LIMITS = (
    "Scope kernels: gate 6 (whole-worker identity) was not run; nothing is admitted for serving "
    "or for measuring by this receipt.",
    _RACES,
    _SEEDS,
    *_BOTH_LIMITS,
)
FULL_LIMITS = (
    "Gate 6 holds the worker to what an archived solo worker gave on one GPU of this model, with "
    "one client and one captured batch size; it says that they agree, not how fast either is.",
    _RACES,
    "Weights and logits of the gates before were made from seeds; what the worker loaded is named "
    "by its digest.",
    *_BOTH_LIMITS,
)
SOLO_LIMITS = (
    "One GPU held both shards: nothing here is evidence about peer memory or about a pair.",
    "An identity reference, and never proof of a pair.",
    _SEEDS,
    *_BOTH_LIMITS,
)


def _shown(gpu: Gpu) -> str:
    return f"{gpu.index}: {gpu.name}" + ("" if gpu.whole else " (cut into slices)")


def pair_of(report: GpuReport, command: str) -> tuple[str, str]:
    """The two GPUs that a HOLD takes where none are named.

    Args:
        report: the GPUs that there are.
        command: what asks for them.

    Raises:
        RefusedError: ``NO_GPU_PAIR``, with what is there.
    """
    pair = first_pair(report)
    if pair is not None:
        bare = [uuid for uuid in pair if find(report, uuid).pci_bus_id is None]
        if bare:
            raise RefusedError(
                Refusal(Code.NO_GPU_PAIR, command, "GPUs whose place is told", "no PCI id")
            )
    if pair is None:
        there = ", ".join(_shown(gpu) for gpu in report.gpus) or "no GPU"
        ways = [
            f"{way.source} to {way.target}: read {way.read}, write {way.write}"
            for way in report.p2p
        ]
        raise RefusedError(
            Refusal(
                Code.NO_GPU_PAIR,
                command,
                "two GPUs, not cut into slices, that may read and write each other's memory",
                "; ".join([there, *ways]),
                source="NVML",
                next="pp4 doctor",
            )
        )
    return pair


def admission(
    command: Command,
    source: Source,
    evidence: Sequence[tuple[str, bytes]],
    report: GpuReport,
    gpus: Sequence[str],
) -> Admission:
    """Judge the evidence against what is known before anything is held.

    Libraries and kernels are held against it in gates 0 and 1, where they are first known.
    """
    subject = Subject(
        source_digest=source.digest,
        gpu_models=frozenset(find(report, uuid).name for uuid in gpus),
        drivers=frozenset({report.driver_version or "not told"}),
    )
    judged = admit(command, evidence, subject)
    if isinstance(judged, Refused):
        raise RefusedError(judged.refusal)
    return judged


@dataclass(frozen=True, slots=True)
class Kind:
    """What tells a kind of run from another: what admits it, what it runs, what it may say.

    ``worker``: whether a worker of one GPU makes a receipt of its own after the gates.
    """

    command: Command
    kind: str
    scope: str
    limits: tuple[str, ...]
    gates: tuple[Gate, ...]
    kernels: frozenset[str]
    worker: bool = False


@dataclass(frozen=True, slots=True)
class Made:
    """What a run made.

    Attributes:
        bodies: members of its receipts, the one with the gates first.
        refusal: what kept a later one from being made.
    """

    bodies: tuple[dict[str, object], ...]
    refusal: Refusal | None = None


PAIR = Kind(
    Command.PAIR_KERNELS,
    "qualification",
    "kernels",
    PAIR_LIMITS,
    all_gates.PHYSICAL,
    frozenset({PAIR_KERNEL, SOLO_KERNEL}),
)
FULL = Kind(
    Command.PAIR_FULL,
    "qualification",
    "full",
    FULL_LIMITS,
    all_gates.FULL,
    frozenset({PAIR_KERNEL, SOLO_KERNEL, WORKER_PAIR, WORKER_BIAS}),
)
SOLO = Kind(
    Command.SOLO,
    "solo",
    "solo",
    SOLO_LIMITS,
    all_gates.SOLO,
    frozenset({SOLO_KERNEL}),
    worker=True,
)
KINDS = {"pair": PAIR, "full": FULL, "solo": SOLO}
"""By the name under which a step is asked for them."""
GOOD = "qualified"
"""The verdict of a run without a fault."""


def run_gates(
    run: Kind,
    hold: OpenHold,
    progress: Progress,
    report: GpuReport,
    compiled: Path,
    command: str,
    soak_minutes: int = 0,
    checkpoint: str | None = None,
) -> Made:
    """Run the gates of a kind of run inside a HOLD.

    Args:
        run: what is run.
        hold: under which.
        progress: who watches.
        report: the GPUs as they were before.
        compiled: where binaries are kept.
        command: by which it was asked for.
        soak_minutes: how long exchanges are repeated.
        checkpoint: directory of the drafter that a worker loads; a made-up one where None.

    Raises:
        WrongError: no rank ever answered.
        UncleanError: something may still run.
    """
    whole = replace(PHYSICAL, checkpoint=checkpoint)
    context = Context(hold, physical(hold.gpus), compiled, whole)
    gates = with_soak(run.gates, soak_minutes)
    results = pair_qualify(context, gates, progress)
    receipt.require_answer(context, results, command)
    members = {
        "kind": run.kind,
        "scope": run.scope,
        "limits": [*run.limits, *(whole.limits if run.scope == "full" else ())],
        **receipt.members(hold, context, results, gates, GOOD, run.kernels),
    }
    soaked = soak_result(results)
    if soaked is not None:
        members["soak"] = soaked
    worker = context.record.worker
    if worker is not None:
        members["checkpoint_sha256"] = worker.checkpoint_sha256
        members["input_set_sha256"] = worker.input_set_sha256
    body = gpu_members.body(hold, context, report, members)
    if run.worker and body["verdict"] == GOOD:
        return _with_worker(body, hold, context, report, progress)
    return Made((body,))


def _with_worker(
    body: dict[str, object],
    hold: OpenHold,
    context: Context,
    report: GpuReport,
    progress: Progress,
) -> Made:
    """Add the receipt of a solo worker; that of the gates stands whatever becomes of it."""
    try:
        return Made((body, whole_receipt.record(hold, context, report, progress)))
    except UncleanError:
        raise
    except Pp4Error as error:
        return Made((body,), error.refusal)
