"""What a receipt of gates says of GPUs; see :mod:`pp4.run.gpu_members`."""

from __future__ import annotations

from collections.abc import Mapping

from pp4.errors import Pp4Error
from pp4.hold.open import OpenHold
from pp4.qualify.context import Context
from pp4.run import gpu_members
from pp4.run.naming import without_host
from pp4.wire.gpus import Gpu, GpuReport, find


def _afterwards(context: Context, count: int) -> tuple[Gpu | None, ...]:
    """The GPUs after the run; a GPU that has gone missing must not cost the receipt of it."""
    try:
        return context.gpus()
    except Pp4Error:
        return (None,) * count


def bare(
    hold: OpenHold, context: Context, report: GpuReport, members: Mapping[str, object]
) -> dict[str, object]:
    """Members of any receipt of GPUs of this run; see :func:`pp4.run.gpu_members.bare`.

    Args:
        hold: under which it was made.
        context: of the run, which has the GPUs as they are now.
        report: the GPUs as they were before.
        members: what else is in it; ``private`` has to be among them.
    """
    return gpu_members.bare(hold, _afterwards(context, len(hold.gpus)), report, members)


def body(
    hold: OpenHold, context: Context, report: GpuReport, members: Mapping[str, object]
) -> dict[str, object]:
    """The same of a receipt with gates: what errors said there, its journal and the topology."""
    gpus = [find(report, uuid) for uuid in hold.gpus]
    made = bare(hold, context, report, {**members, "topology": gpu_members.topology(report, gpus)})
    return {**made, "gates": without_host(made["gates"]), "journal": members["journal"]}
