"""Members of the receipt of a half or a budget that only the receiving host can tell."""

from __future__ import annotations

from collections.abc import Sequence

from pp4.errors import Pp4Error
from pp4.hold.open import OpenHold
from pp4.receipts.hardware_checks import WORKER_BIAS, WORKER_PAIR
from pp4.run import gpu_members
from pp4.run.host import look_at_gpus
from pp4.run.receipt import hold_of, kernel_row, private_of_host
from pp4.wire.frozen import Served
from pp4.wire.gpus import Gpu, GpuReport, find


def kernels_of(served: Served) -> list[dict[str, object]]:
    """What the ranks of a worker have loaded, as receipts have it."""
    loaded = ((WORKER_PAIR, served.kernels), (WORKER_BIAS, served.bias))
    return [kernel_row(name, one) for name, ones in loaded for one in ones]


def libraries_of(served: Sequence[Served]) -> list[dict[str, object]]:
    """What any of the workers has mapped."""
    return _once([one.model_dump() for each in served for one in each.libraries], ("name",))


def _kernels(served: Sequence[Served]) -> list[dict[str, object]]:
    rows = [row for each in served for row in kernels_of(each)]
    return _once(rows, ("name", "rank", "target"))


def _once(rows: Sequence[dict[str, object]], names: Sequence[str]) -> list[dict[str, object]]:
    """Each row once; of arms that have loaded different things the second was never begun."""
    found: dict[tuple[object, ...], dict[str, object]] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in names), row)
    return list(found.values())


def members(
    hold: OpenHold, served: Sequence[Served], report: GpuReport | None
) -> dict[str, object]:
    """Members of the receipt, with the journal as far as it is written.

    Args:
        hold: under which the arms ran.
        served: what their workers said; of what none of them has loaded nothing is said.
        report: the GPUs as they were before; None in a rehearsal, which looks at none.
    """
    common: dict[str, object] = {"hold": hold_of(hold), "private": private_of_host()}
    for name, rows in (("kernels", _kernels(served)), ("libraries", libraries_of(served))):
        # an arm that is off has no kernel of its own: what the gates have loaded stands then
        if rows:
            common[name] = rows
    journal = [dict(line) for line in hold.journal.lines]
    if report is None:
        return {**common, "gpus": [], "journal": journal}
    shown = gpu_members.bare(hold, _afterwards(hold), report, common)
    return {**shown, "journal": journal}


def _afterwards(hold: OpenHold) -> tuple[Gpu | None, ...]:
    """The GPUs after the run; a GPU that has gone missing must not cost what was found on it."""
    try:
        report = look_at_gpus()
        return tuple(find(report, uuid) for uuid in hold.gpus)
    except Pp4Error:
        return (None,) * len(hold.gpus)
