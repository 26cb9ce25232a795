"""What a run in a HOLD wants: gates, evidence and GPUs, judged before anything is held."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pp4.config.hold_file import HoldFile, read_evidence
from pp4.errors import Code, Refusal, RefusedError
from pp4.qualify import physical, rehearsal
from pp4.qualify.far import Gates, Work
from pp4.receipts.admission import Admission
from pp4.receipts.digests import Source
from pp4.run.windows import REHEARSAL_GPUS
from pp4.wire.gpus import GpuReport, find
from pp4.wire.holds import Given

LOCAL = "local"
"""What ``--hold`` calls the embedded HOLD file of this machine."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What somebody wants to be run.

    Attributes:
        work: which gates.
        named: what ``--hold`` named: :data:`LOCAL`, or anything else for a file.
        evidence: (role, bytes) of receipts that the run has to match, beside the HOLD file's.
        of_file: whether the HOLD file's belong to it; in a HOLD in which more is done than the
            gates, they need not.
        gpu: UUID, its beginning, or index of the one GPU of ``solo``; the first where None.
        soak_minutes: how long exchanges are repeated after the gates.
        checkpoint: directory of a drafter on the host, for a worker, or ``mini`` for the one that
            comes with pp4, which is brought there; one is made up where None.
    """

    work: Work
    named: str = LOCAL
    evidence: Sequence[tuple[str, bytes]] = ()
    gpu: str | None = None
    soak_minutes: int = 0
    checkpoint: str | None = None
    of_file: bool = True

    @property
    def command(self) -> str:
        """The command as somebody gave it, for refusals."""
        if self.work == "solo":
            return f"pp4 solo-qualify{self.option}"
        more = {"rehearsal": " --dry-run-device", "full": " --scope full"}.get(self.work, "")
        return f"pp4 pair-qualify --hold {LOCAL if self.named == LOCAL else 'FILE'}{more}"

    @property
    def option(self) -> str:
        """What a command needs that is to find the host of the HOLD again."""
        return "" if self.named == LOCAL else " --hold FILE"


@dataclass(frozen=True, slots=True)
class Chosen:
    """What is asked of a host, once it was judged.

    Attributes:
        gpus: UUIDs, rank 0 first; names of none in a rehearsal.
        admitted: what the evidence admits.
        evidence: it, ready to travel.
        report: the host's GPUs, None in a rehearsal.
        told: what the step is told.
    """

    gpus: tuple[str, ...]
    admitted: Admission
    evidence: tuple[Given, ...]
    report: GpuReport | None
    told: Gates


def evidence_for(file: HoldFile, wanted: Wanted) -> list[tuple[str, bytes]]:
    """The receipts that a run has to match; a HOLD file's are about the pair that it names.

    Raises:
        RefusedError: ``EVIDENCE_MISSING``, ``EVIDENCE_MISMATCH``: of the HOLD file's.
    """
    if wanted.work == "solo":
        return list(wanted.evidence)
    given = [*(read_evidence(file) if wanted.of_file else ()), *wanted.evidence]
    return [] if wanted.work == "rehearsal" else given


def choose(
    file: HoldFile,
    wanted: Wanted,
    given: Sequence[tuple[str, bytes]],
    source: Source,
    look: Callable[[], GpuReport],
) -> Chosen:
    """Choose GPUs, and judge the evidence against what is known before they are held.

    Args:
        file: which host, and which of its GPUs.
        wanted: what is run.
        given: (role, bytes) of its evidence.
        source: what runs.
        look: asks the host about its GPUs; not called for a rehearsal.

    Raises:
        RefusedError: what the host refuses; ``NO_GPU_PAIR``; what admission refuses.
        Pp4Error: what the way to the host ends in.
    """
    report = None if wanted.work == "rehearsal" else look()
    if report is None:
        gpus = REHEARSAL_GPUS if file.host.gpus == "auto" else file.host.gpus
        admitted = rehearsal.admission(source)
    else:
        gpus = _gpus(file, wanted, report)
        command = physical.KINDS[wanted.work].command
        admitted = physical.admission(command, source, given, report, gpus)
    evidence = tuple(Given.of(role, raw) for role, raw in given)
    told = Gates(
        work=wanted.work,
        command=wanted.command,
        evidence=evidence,
        soak_minutes=wanted.soak_minutes,
        checkpoint=wanted.checkpoint,
    )
    return Chosen(gpus, admitted, evidence, report, told)


def _gpus(file: HoldFile, wanted: Wanted, report: GpuReport) -> tuple[str, ...]:
    named = () if file.host.gpus == "auto" else file.host.gpus
    there = {gpu.uuid for gpu in report.gpus}
    missing = [uuid for uuid in named if uuid not in there]
    if missing:
        found = ", ".join(sorted(there)) or "no GPU"
        where, expected = "gpus of the HOLD file", ", ".join(missing)
        raise RefusedError(Refusal(Code.NO_GPU_PAIR, where, expected, found, next="pp4 doctor"))
    if named:
        gpus = tuple(gpu for gpu in report.gpus if gpu.uuid in named)
        report = report.model_copy(update={"gpus": gpus})
    if wanted.work == "solo":
        return (find(report, wanted.gpu or (named[0] if named else "0")).uuid,)
    # what keeps a pair from being one is said before anything is held
    pair = physical.pair_of(report, wanted.command)
    return named or pair
