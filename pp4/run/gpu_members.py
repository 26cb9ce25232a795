"""What a receipt says of GPUs and of the HOLD that had them, without the names of machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pp4.hold.open import OpenHold
from pp4.receipts.private import opened
from pp4.run.naming import private_names, without_names, words_for
from pp4.wire.gpus import Gpu, GpuReport, find

_AS_THEY_ARE = ("private", "journal")
"""Members in which nothing is replaced: lines of the journal hang together by their digests."""


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


def topology(report: GpuReport, gpus: Sequence[Gpu]) -> dict[str, object]:
    """What the driver says of both ways between two GPUs."""
    rank_of = {gpu.index: rank for rank, gpu in enumerate(gpus)}
    facts: dict[str, object] = {}
    for way in report.p2p:
        if way.source in rank_of and way.target in rank_of:
            name = f"{rank_of[way.source]}_to_{rank_of[way.target]}"
            for what in ("read", "write", "atomics", "nvlink", "topology"):
                facts[f"{name}.{what}"] = getattr(way, what) or "not told"
    return facts


def bare(
    hold: OpenHold,
    afterwards: Sequence[Gpu | None],
    report: GpuReport,
    members: Mapping[str, object],
) -> dict[str, object]:
    """Members of any receipt of GPUs, names of machines replaced by those of private leaves.

    Args:
        hold: under which it was made.
        afterwards: the GPUs as they are now, rank 0's first; None each where nobody can say.
        report: the GPUs as they were before.
        members: what else is in it; ``private`` has to be among them.
    """
    gpus = [find(report, uuid) for uuid in hold.gpus]
    driver = report.driver_version or "not told"
    names, words = private_names(gpus), words_for(report, gpus)
    shown = {
        "hardware_executed": True,
        "gpus": [
            _gpu(rank, gpu, driver, after)
            for rank, (gpu, after) in enumerate(zip(gpus, afterwards, strict=True))
        ],
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
        "private": {**private, **opened(names)},
    }
