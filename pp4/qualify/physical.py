"""Runs on GPUs that a HOLD has: the pair, and one GPU alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pp4.errors import Code, Pp4Error, Refusal, RefusedError
from pp4.hold.open import OpenHold
from pp4.qualify import gates as all_gates
from pp4.qualify import receipt
from pp4.qualify.context import Context
from pp4.qualify.gates import Gate
from pp4.qualify.naming import private_names, without_host, without_names, words_for
from pp4.qualify.pair_qualify import pair_qualify
from pp4.qualify.progress import Progress
from pp4.qualify.settings import physical
from pp4.qualify.soak import result as soak_result
from pp4.qualify.soak import with_soak
from pp4.receipts.admission import Admission, Command, Refused, Subject, admit
from pp4.receipts.digests import Source
from pp4.receipts.private import opened
from pp4.wire.gpus import Gpu, GpuReport, find, first_pair

_BOTH_LIMITS = (
    "Weights and logits were made from seeds; no trained model took part.",
    "The GPUs' clocks were as they were found; no speed is claimed.",
    "Covers these GPUs, this driver, these libraries and binaries, and the time of the run.",
    "Not established: GB10, grammar and parser, live throughput.",
)
PAIR_LIMITS = (
    "Scope kernels: gate 6 (whole-worker identity) was not run; nothing is admitted for serving "
    "or for measuring by this receipt.",
    "A race that need not show in a run is excluded by the compiled code and by the host model, "
    "not by the runs that are recorded here.",
    *_BOTH_LIMITS,
)
SOLO_LIMITS = (
    "One GPU held both shards: nothing here is evidence about peer memory or about a pair.",
    "An identity reference, and never proof of a pair.",
    *_BOTH_LIMITS,
)


_AS_THEY_ARE = ("private", "journal")
"""Members in which nothing is replaced: lines of the journal hang together by their digests."""


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


def _afterwards(context: Context, count: int) -> tuple[Gpu | None, ...]:
    """The GPUs after the run; a GPU that has gone missing must not cost the receipt of it."""
    try:
        return context.gpus()
    except Pp4Error:
        return (None,) * count


def _gpu(rank: int, gpu: Gpu, driver: str, after: Gpu | None) -> dict[str, object]:
    facts: dict[str, object] = {
        "vbios": gpu.vbios,
        "persistence": gpu.persistence,
        "compute_mode": gpu.compute_mode,
        "nvlinks": gpu.nvlinks,
        "power_limit_mw": gpu.power_limit_mw,
        "sm_mhz_highest": gpu.max_clocks.sm,
        "memory_mhz_highest": gpu.max_clocks.memory,
    }
    if after is not None:
        slowed = None if after.slowed_by is None else " ".join(after.slowed_by)
        facts |= {
            "sm_mhz_after": after.clocks.sm,
            "memory_mhz_after": after.clocks.memory,
            "temperature_c_after": after.temperature_c,
            "power_mw_after": after.power_mw,
            "slowed_by_after": slowed,
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


def _body(
    hold: OpenHold, context: Context, report: GpuReport, members: Mapping[str, object]
) -> dict[str, object]:
    """Members of a receipt of GPUs, names of machines replaced by those of private leaves."""
    gpus = [find(report, uuid) for uuid in hold.gpus]
    driver = report.driver_version or "not told"
    names, words = private_names(gpus), words_for(report, gpus)
    shown = {
        "hardware_executed": True,
        "gpus": [
            _gpu(rank, gpu, driver, after)
            for rank, (gpu, after) in enumerate(
                zip(gpus, _afterwards(context, len(gpus)), strict=True)
            )
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
        **{name: without_names(part, words) for name, part in shown.items()},
        "gates": without_host(without_names(members["gates"], words)),
        "journal": members["journal"],
        "private": {**private, **opened(names)},
    }


@dataclass(frozen=True, slots=True)
class Kind:
    """What tells a kind of run from another: what admits it, what it runs, what it may say."""

    command: Command
    kind: str
    scope: str
    limits: tuple[str, ...]
    gates: tuple[Gate, ...]
    kernels: frozenset[str]


PAIR = Kind(
    Command.PAIR_KERNELS,
    "qualification",
    "kernels",
    PAIR_LIMITS,
    all_gates.PHYSICAL,
    frozenset({"sampled_fused.pair", "sampled_fused.solo"}),
)
SOLO = Kind(
    Command.SOLO,
    "solo",
    "solo",
    SOLO_LIMITS,
    all_gates.SOLO,
    frozenset({"sampled_fused.solo"}),
)
KINDS = {"pair": PAIR, "solo": SOLO}
"""By the name under which a step is asked for them."""


def run_gates(
    run: Kind,
    hold: OpenHold,
    progress: Progress,
    report: GpuReport,
    compiled: Path,
    command: str,
    soak_minutes: int = 0,
) -> dict[str, object]:
    """Run the gates of a kind of run inside a HOLD; -> members of the receipt.

    Args:
        run: what is run.
        hold: under which.
        progress: who watches.
        report: the GPUs as they were before.
        compiled: where binaries are kept.
        command: by which it was asked for.
        soak_minutes: how long exchanges are repeated.

    Raises:
        WrongError: no rank ever answered.
        UncleanError: something may still run.
    """
    context = Context(hold, physical(hold.gpus), compiled)
    gates = with_soak(run.gates, soak_minutes)
    results = pair_qualify(context, gates, progress)
    receipt.require_answer(context, results, command)
    members = {
        "kind": run.kind,
        "scope": run.scope,
        "limits": list(run.limits),
        **receipt.members(hold, context, results, gates, "qualified", run.kernels),
    }
    soaked = soak_result(results)
    if soaked is not None:
        members["soak"] = soaked
    return _body(hold, context, report, members)
