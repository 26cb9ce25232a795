"""Gate 1: what was compiled and loaded, and when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pp4.errors import Code
from pp4.wire.facts import Primed


def primed(ones: Sequence[Primed], first_launch_ns: int, meanwhile: str) -> Code | None:
    """Equal binaries on both ranks, launches refused before and only after both were loaded."""
    if len({(one.key, one.ptx_sha256, one.cubin_sha256) for one in ones}) != 1 or len(ones) != 2:
        return Code.KERNELS_DIFFER
    late = max(one.primed_ns for one in ones) > first_launch_ns
    if late or meanwhile != Code.UNPRIMED:
        return Code.LAUNCHED_BEFORE_PRIMED
    return None


def crowded(ones: Sequence[Primed], rows: int, refused: Code | None) -> Code | None:
    """More blocks are resident than rows can wait, and a rendezvous of as many rows is refused.

    Args:
        ones: what both ranks primed.
        rows: rows of the largest batch.
        refused: how such a rendezvous ended; None where nothing is resident anywhere.
    """
    resident = [one.resident for one in ones if one.resident is not None]
    if not resident and refused is None:
        return None
    fits = len(resident) == len(ones) and rows < min(resident)
    return None if fits and refused is Code.OCCUPANCY else Code.OCCUPANCY


def unprimed(refusals: Sequence[Mapping[str, str] | None]) -> Code | None:
    """Both ranks refused for want of a primed kernel: the same code has other places as well."""
    places = [None if one is None else (one["code"], one["where"]) for one in refusals]
    wanted = (Code.UNPRIMED.value, "kernel sampled_fused")
    return Code.UNPRIMED if places == [wanted, wanted] else None


def one_specialisation(
    ones: Sequence[Primed], primed: Sequence[Primed], cached: tuple[int, int] | None | None
) -> Code | None:
    """What was compiled again is what was primed, and came out of the cache.

    Args:
        ones: what both ranks primed again after the launches.
        primed: what both ranks primed.
        cached: binaries in the cache before and after; None where compilations are counted, and
            another run may fill the same cache meanwhile.
    """
    wanted = {(one.ptx_sha256, one.cubin_sha256) for one in primed}
    found = {(one.ptx_sha256, one.cubin_sha256) for one in ones}
    if len(ones) != 2 or len(wanted) != 1 or found != wanted:
        return Code.KERNELS_DIFFER
    if cached is None:
        return None
    before, after = cached
    return None if before and before == after else Code.COMPILED_AFTER_PRIMING
