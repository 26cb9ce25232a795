"""The run on two GPUs of this machine: under both of their locks, ending in a qualification."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pp4.clock import Clock, SystemClock
from pp4.config import Settings as Machine
from pp4.errors import Code, Refusal, RefusedError
from pp4.hold.exclusion import open_exclusion
from pp4.hold.local import open_local
from pp4.hold.open import OpenHold
from pp4.qualify import receipt, soak
from pp4.qualify.context import Context
from pp4.qualify.gates import PHYSICAL
from pp4.qualify.host import look_at_gpus
from pp4.qualify.pair_qualify import pair_qualify
from pp4.qualify.progress import Progress
from pp4.qualify.receipt import Outcome
from pp4.qualify.settings import physical
from pp4.receipts.admission import Admission, Command, Refused, Subject, admit
from pp4.receipts.digests import Source, installed_source
from pp4.receipts.private import opened
from pp4.transport.local import LocalTransport
from pp4.wire.gpus import Gpu, GpuReport, find, first_pair

COMMAND = "pp4 pair-qualify --hold local"

LIMITS = (
    "Scope kernels: gate 6 (whole-worker identity) was not run; nothing is admitted for serving "
    "or for measuring by this receipt.",
    "Weights and logits were made from seeds; no trained model took part.",
    "A race that needs not show in a run is excluded by the compiled code and by the host model, "
    "not by the runs that are recorded here.",
    "The GPUs' clocks were as they were found; no speed is claimed.",
    "Covers these two GPUs, this driver, these libraries and binaries, and the time of the run.",
    "Not established: GB10, grammar and parser, live throughput.",
)


_AS_THEY_ARE = ("private", "journal")
"""Members in which nothing is replaced: lines of the journal hang together by their digests."""


def pair_of(report: GpuReport) -> tuple[str, str]:
    """The two GPUs that a local HOLD takes.

    Raises:
        RefusedError: ``NO_GPU_PAIR``, with what is there.
    """
    pair = first_pair(report)
    if pair is None:
        there = ", ".join(f"{gpu.index}: {gpu.name}" for gpu in report.gpus) or "no GPU"
        ways = [f"{way.source} to {way.target}: write {way.write}" for way in report.p2p]
        raise RefusedError(
            Refusal(
                Code.NO_GPU_PAIR,
                COMMAND,
                "two GPUs, not cut into slices, that may read and write each other's memory",
                "; ".join([there, *ways]),
                source="NVML",
                next="pp4 doctor",
            )
        )
    return pair


def _admission(source: Source, evidence: Sequence[tuple[str, bytes]]) -> Admission:
    judged = admit(Command.PAIR_KERNELS, evidence, Subject(source_digest=source.digest))
    if isinstance(judged, Refused):
        raise RefusedError(judged.refusal)
    return judged


def _gpu(rank: int, gpu: Gpu, driver: str, after: Gpu) -> dict[str, object]:
    facts = {
        "vbios": gpu.vbios,
        "persistence": gpu.persistence,
        "compute_mode": gpu.compute_mode,
        "nvlinks": gpu.nvlinks,
        "power_limit_mw": gpu.power_limit_mw,
        "sm_mhz_highest": gpu.max_clocks.sm,
        "memory_mhz_highest": gpu.max_clocks.memory,
        "sm_mhz_after": after.clocks.sm,
        "memory_mhz_after": after.clocks.memory,
        "temperature_c_after": after.temperature_c,
        "power_mw_after": after.power_mw,
        "slowed_by_after": None if after.slowed_by is None else " ".join(after.slowed_by),
        "ecc_uncorrected_after": after.ecc_uncorrected,
    }
    return {
        "rank": rank,
        "name": gpu.name,
        "uuid": f"gpu.{rank}.uuid",
        "pci_id": f"gpu.{rank}.pci_id" if gpu.pci_bus_id else None,
        "driver": driver,
        "memory_bytes": None if gpu.memory_total_bytes is None else str(gpu.memory_total_bytes),
        "facts": {name: "not told" if fact is None else fact for name, fact in facts.items()},
    }


def _topology(report: GpuReport, gpus: Sequence[Gpu]) -> dict[str, object]:
    """What the driver says of both ways between two GPUs."""
    rank_of = {gpu.index: rank for rank, gpu in enumerate(gpus)}
    facts: dict[str, object] = {}
    for way in report.p2p:
        if way.source in rank_of and way.target in rank_of:
            name = f"{rank_of[way.source]}_to_{rank_of[way.target]}"
            for what in ("read", "write", "atomics", "nvlink", "topology"):
                facts[f"{name}.{what}"] = getattr(way, what) or "not told"
    return facts


def _private(gpus: Sequence[Gpu]) -> dict[str, str]:
    leaves = {f"gpu.{rank}.uuid": gpu.uuid for rank, gpu in enumerate(gpus)}
    places = {f"gpu.{rank}.pci_id": gpu.pci_bus_id for rank, gpu in enumerate(gpus)}
    return {**leaves, **{name: place for name, place in places.items() if place}}


def without_names(tree: object, names: Mapping[str, str]) -> object:
    """Put the names of private leaves in the place of what they hold, wherever it is said."""
    if isinstance(tree, str):
        for name, value in names.items():
            tree = tree.replace(value, name)
        return tree
    if isinstance(tree, Mapping):
        return {key: without_names(value, names) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [without_names(value, names) for value in tree]
    return tree


def _body(
    hold: OpenHold, context: Context, report: GpuReport, members: dict[str, object]
) -> dict[str, object]:
    gpus = [find(report, uuid) for uuid in hold.gpus]
    driver = report.driver_version or "not told"
    names = _private(gpus)
    shown = {
        "kind": "qualification",
        "scope": "kernels",
        "hardware_executed": True,
        "limits": list(LIMITS),
        "gpus": [
            _gpu(rank, gpu, driver, after)
            for rank, (gpu, after) in enumerate(zip(gpus, context.gpus(), strict=True))
        ],
        "topology": _topology(report, gpus),
        "evidence": [
            {"role": role, "kind": kind, "sha256": digest}
            for role, kind, digest in hold.admission.evidence
        ],
        **{name: part for name, part in members.items() if name not in _AS_THEY_ARE},
    }
    private = members["private"]
    if not isinstance(private, dict):
        raise TypeError("private leaves are an object")
    return {
        **{name: without_names(part, names) for name, part in shown.items()},
        "journal": members["journal"],
        "private": {**private, **opened(names)},
    }


def qualify(
    out: Path,
    progress: Progress,
    machine: Machine,
    *,
    evidence: Sequence[tuple[str, bytes]] = (),
    soak_minutes: int = 0,
    clock: Clock | None = None,
) -> Outcome:
    """Run every gate of scope ``kernels`` on two GPUs of this machine and store a receipt.

    Args:
        out: directory of the receipt; made if it is not there.
        progress: who watches.
        machine: settings of this machine.
        evidence: (role, bytes) of receipts that the run has to match.
        soak_minutes: how long exchanges are repeated after the gates.
        clock: where deadlines come from.

    Returns:
        The outcome; a failed gate is an outcome, not an exception.

    Raises:
        RefusedError: a package, the driver or a pair is missing; a GPU is held; evidence does not
            match; ``out`` cannot be written; pp4 itself was changed during the run.
        UncleanError: something may still run.
    """
    receipt.require_packages(COMMAND)
    report = look_at_gpus()
    pair = pair_of(report)
    source = installed_source()
    admission = _admission(source, evidence)
    exclusion = open_exclusion(machine.host_dir, machine.state_dir)
    with receipt.room(out):
        with open_local(
            admission,
            LocalTransport(),
            clock or SystemClock(),
            gpus=pair,
            exclusion=exclusion,
            state_dir=machine.state_dir,
        ) as hold:
            context = Context(hold, physical(pair), machine.state_dir / "compiled")
            results = pair_qualify(context, PHYSICAL, progress)
            receipt.require_answer(context, results, COMMAND)
            members = receipt.members(hold, context, results, PHYSICAL, "qualified")
            if soak_minutes and members["verdict"] == "qualified":
                members |= soak.soak(context, soak_minutes, progress)
            body = _body(hold, context, report, members)
        # the HOLD is closed and its processes are proven dead: only now is there a claim to make
        receipt.require_same_source(source, COMMAND)
        return receipt.store(body, source, out / f"qualification-{hold.hold_id}.json")
