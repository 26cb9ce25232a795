"""Whether a measurement may begin: everything that can be judged before anything is contacted.

Files of this machine are read, and nothing else happens: no connection, no process.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from pp4.clock import SystemClock
from pp4.config.hold_file import HoldFile, read_evidence
from pp4.errors import Code, Refusal, RefusedError
from pp4.measure import schedule as schedules
from pp4.measure.far import COMMANDS
from pp4.measure.first_half import Ended, ended
from pp4.measure.summary import require_statistics
from pp4.receipts.admission import NEEDS, Admission, Command, Refused, Subject, admit
from pp4.receipts.bindings import ClosedHold
from pp4.receipts.canonical import parse, read_file, shown
from pp4.receipts.digests import Source, tree_digest
from pp4.receipts.envelope import OpenLeaf
from pp4.receipts.models import Receipt, read_model
from pp4.receipts.runs import Budget, Measurement
from pp4.run.bundled import Bundled, bundled, pair_there
from pp4.run.refused import recorded
from pp4.wire.holds import Plan
from pp4.wire.measuring import Pair, Schedule, Work

IDENTITY: Final = "identity_reference"
BUDGET: Final = "budget"
FIRST: Final = "first_half"
RESERVE: Final = 16 << 20
"""Bytes that have to be free for rounds and receipts: about four times what a long half takes."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What somebody asks for.

    Attributes:
        work: a budget, or a half.
        command: as it was given, for refusals.
        file: the HOLD file.
        given: (role, path) of receipts that options name, beside the HOLD file's.
        out: directory of receipts.
    """

    work: Work
    command: str
    file: HoldFile
    given: Sequence[tuple[str, Path]]
    out: Path


@dataclass(frozen=True, slots=True)
class Known:
    """The evidence as it was read.

    Attributes:
        evidence: (role, bytes) of what the command needs.
        first: the file of the first half, None where there is none.
        passed_over: roles of the HOLD file that this command has no use for.
    """

    evidence: tuple[tuple[str, bytes], ...]
    first: Path | None
    passed_over: tuple[str, ...]

    def receipts(self, role: str) -> Iterable[Receipt]:
        """Those of a role that can be read; that they are in order is judged elsewhere."""
        for one, raw in self.evidence:
            if one == role:
                try:
                    # the text is judged before the model sees it
                    parse(raw, role)
                    yield read_model(raw, role)
                except RefusedError:
                    continue

    @property
    def budget(self) -> Budget | None:
        """What was projected, for people; it is not judged here."""
        found = (one for one in self.receipts(BUDGET) if isinstance(one, Budget))
        return next(found, None)


@dataclass(frozen=True, slots=True)
class Judged:
    """A measurement that may begin.

    Attributes:
        asked: what was asked for; the GPUs of its HOLD file are the first half's where the file
            leaves them open and there is a first half.
        source: that runs.
        schedule: every number that is fixed beforehand.
        pair: what decodes, as the host finds it.
        bundled: the pair that comes with pp4, None for one that is on the host already.
        plan: what the host holds evidence against.
        evidence: (role, bytes).
        admission: proof that it was judged.
        first: how the first HOLD ended, for the second half.
    """

    asked: Asked
    source: Source
    schedule: Schedule
    pair: Pair
    bundled: Bundled | None
    plan: Plan
    evidence: tuple[tuple[str, bytes], ...]
    admission: Admission
    first: Ended | None

    @property
    def identity(self) -> tuple[tuple[str, bytes], ...]:
        """The evidence that the gates need."""
        return tuple(one for one in self.evidence if one[0] == IDENTITY)


def admitted(asked: Asked, source: Source, show: Callable[[Known], None]) -> Judged:
    """Judge whether a measurement may begin; a refusal leaves a receipt of its own.

    Args:
        asked: what is asked for.
        source: that runs.
        show: is told the evidence, before it is judged.

    Raises:
        RefusedError: what keeps the measurement from beginning; nothing was contacted.
    """
    read = Known((), None, ())
    try:
        read = known(asked)
        show(read)
        judged = judge(asked, read, source)
        _require_room(asked.out)
        return judged
    except RefusedError as error:
        raise recorded(error, asked.command, source, read.evidence, asked.out) from error


def _require_room(out: Path) -> None:
    """Refuse a disk on which the rounds of a half might find no place.

    Raises:
        RefusedError: ``UNWRITABLE``.
    """
    there = next(path for path in (out, *out.absolute().parents) if path.exists())
    free = shutil.disk_usage(there).free
    if free < RESERVE:
        expected = f"{RESERVE >> 20} MiB for rounds and receipts"
        found = f"{free >> 20} MiB"
        raise RefusedError(Refusal(Code.UNWRITABLE, shown(str(out), 300), expected, found))


def rehearsed(asked: Asked, source: Source) -> Judged:
    """What a rehearsal runs: the bundled pair, a few rounds, and no evidence.

    Raises:
        RefusedError: the pair cannot be found.
    """
    schedule, ours, pair = schedules.REHEARSED, bundled(), pair_there()
    plan = Plan(
        model_sha256=model_digest(schedule, pair, ours),
        shapes=schedules.shapes(schedule),
        settings=schedules.settings(schedule),
    )
    judged = admit(Command.REHEARSAL, [], Subject(source_digest=source.digest))
    if isinstance(judged, Refused):
        raise RefusedError(judged.refusal)
    return Judged(asked, source, schedule, pair, ours, plan, (), judged, None)


def known(asked: Asked) -> Known:
    """Read the evidence that a command needs, the HOLD file's and what options name.

    One receipt that both name is one; one HOLD file serves all commands, so what only another one
    needs is passed over, which is said.

    Raises:
        RefusedError: ``EVIDENCE_MISSING``, ``EVIDENCE_MISMATCH``, ``UNREADABLE``.
    """
    roles = {need.role for need in NEEDS[COMMANDS[asked.work]]}
    wanted = tuple(one for one in asked.file.evidence if one.role in roles)
    passed_over = tuple(sorted({one.role for one in asked.file.evidence} - roles))
    found = read_evidence(replace(asked.file, evidence=wanted))
    found += [(role, read_file(path)) for role, path in asked.given]
    paths = [(one.role, one.path) for one in wanted] + list(asked.given)
    first = next((path for role, path in reversed(paths) if role == FIRST), None)
    return Known(tuple(dict.fromkeys(found)), first, passed_over)


def judge(asked: Asked, evidence: Known, source: Source) -> Judged:
    """Judge what is known before any contact.

    Raises:
        RefusedError: what keeps the measurement from beginning; nothing was contacted.
    """
    file = asked.file
    if asked.work == "B2A2":
        require_statistics(asked.command)
    schedule = schedules.from_model(file.model)
    ours = bundled() if file.model is None or file.model.target is None else None
    pair = pair_there() if ours else _pair_of(file)
    first = ended(evidence.first, len(file.restore)) if evidence.first else None
    gpus = _gpus(file, evidence)
    plan = Plan(
        model_sha256=model_digest(schedule, pair, ours),
        shapes=schedules.shapes(schedule),
        settings=schedules.settings(schedule),
        first_closed=first.as_told() if first else None,
    )
    subject = replace(
        _planned(plan, first),
        source_digest=source.digest,
        gpu_uuids=None if gpus == "auto" else frozenset(gpus),
        checkpoint_sha256=ours.checkpoint_sha256 if ours else None,
        bound_ns=int(file.bound_s * 1e9),
        now=SystemClock().wall(),
    )
    judged = admit(COMMANDS[asked.work], evidence.evidence, subject)
    if isinstance(judged, Refused):
        raise RefusedError(judged.refusal)
    held_file = replace(file, host=replace(file.host, gpus=gpus))
    return Judged(
        replace(asked, file=held_file),
        source,
        schedule,
        pair,
        ours,
        plan,
        evidence.evidence,
        judged,
        first,
    )


def _planned(plan: Plan, first: Ended | None) -> Subject:
    """What the plan alone says."""
    return Subject(
        source_digest="",
        model_sha256=plan.model_sha256,
        shapes=plan.shapes,
        settings=plan.settings,
        first_closed=ClosedHold(first.hold, first.fence, first.restore == "done")
        if first
        else None,
    )


def model_digest(schedule: Schedule, pair: Pair, ours: Bundled | None) -> str:
    """Digest of what decodes.

    Args:
        schedule: of which depth, batch sizes and temperatures count.
        pair: the checkpoints and prompts.
        ours: the bundled pair, whose files count with their digests; of a pair that is on the host
            only the paths are known here, and they count as they are written.
    """
    return tree_digest(
        {
            "pair": ours.rows() if ours else pair.model_dump(),
            "depth": schedule.depth,
            "batches": list(schedule.batches),
            "temperatures": list(schedule.temperatures),
        }
    )


def _pair_of(file: HoldFile) -> Pair:
    model = file.model
    if model is None or not (model.target and model.drafter and model.prompts):
        raise ValueError("a HOLD file names all three of a pair, or none")
    return Pair(target=model.target, drafter=model.drafter, prompts=model.prompts)


def _gpus(file: HoldFile, evidence: Known) -> tuple[str, ...] | Literal["auto"]:
    """The GPUs that are asked for: those of the first half where the HOLD file leaves them open.

    Raises:
        RefusedError: ``SUBJECT_MISMATCH``, they had other ranks in the first half.  Other GPUs than
            its own are refused by admission.
    """
    named, held = file.host.gpus, _pair_of_first(evidence)
    if named == "auto" or held is None:
        return held or named
    if named != held and set(named) == set(held):
        where, expected = "gpus of the HOLD file", f"ranks as in the first half: {', '.join(held)}"
        raise RefusedError(Refusal(Code.SUBJECT_MISMATCH, where, expected, ", ".join(named)))
    return named


def _pair_of_first(evidence: Known) -> tuple[str, ...] | None:
    """The GPUs of the first half, rank 0 first; None where they cannot be told."""
    for first in evidence.receipts(FIRST):
        if isinstance(first, Measurement):
            leaves = [first.private.get(gpu.uuid) for gpu in first.gpus]
            names = tuple(leaf.value for leaf in leaves if isinstance(leaf, OpenLeaf))
            return names if len(names) == len(leaves) else None
    return None
