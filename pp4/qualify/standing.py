"""Which qualifications stand for this machine as it is now, and what took away the others.

``gate`` answers for one receipt whether a worker with the switch on may start, by admission and by
what the policy asks beyond it; ``status`` looks at all there are and names every reason.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pp4.errors import Code, Exit, Pp4Error, Refusal, RefusedError
from pp4.qualify.reasons import (
    Reason,
    StandingPolicy,
    changed,
    of_check,
    own_reasons,
    subject_through,
)
from pp4.receipts.admission import Command, Refused, Subject, admit
from pp4.receipts.canonical import parse, read_file, shown
from pp4.receipts.checks import Status
from pp4.receipts.digests import file_digest, installed_source
from pp4.receipts.gates import Qualification
from pp4.receipts.models import KINDS
from pp4.receipts.verify import Policy, verify_bytes
from pp4.run.machine import subject_of
from pp4.wire.facts import read
from pp4.wire.machine import Machine

__all__ = [
    "Answer",
    "Reason",
    "Standing",
    "StandingPolicy",
    "exit_of",
    "gate",
    "kept",
    "machine_subject",
    "receipts_in",
    "status",
    "summary",
]

KEPT: Final = "receipts"
"""Where runs leave their receipts below the directory of state."""
_AGAIN: Final = "pp4 pair-qualify --hold local --scope full"


@dataclass(frozen=True, slots=True)
class Standing:
    """One qualification, held against this machine.

    Attributes:
        file: its name.
        sha256: of the file, None where it could not be read.
        receipt: the model, None where the file is no intact qualification.
        reasons: everything against it; none means that it stands.
    """

    file: str
    sha256: str | None
    receipt: Qualification | None
    reasons: tuple[Reason, ...]

    @property
    def stands(self) -> bool:
        """Whether it admits a worker with the switch on, here and now."""
        return not self.reasons

    @property
    def gpus(self) -> str:
        """The GPUs that it is about, by model."""
        return ", ".join(gpu.name for gpu in self.receipt.gpus) if self.receipt else "unknown"

    def as_dict(self) -> dict[str, object]:
        """Return plain values for ``--json``."""
        receipt = self.receipt
        return {
            "file": self.file,
            "sha256": self.sha256,
            "scope": receipt and receipt.scope,
            "verdict": receipt and receipt.verdict,
            "made_at": receipt and receipt.made_at,
            "gpus": self.gpus,
            "stands": self.stands,
            "reasons": [reason.as_dict() for reason in self.reasons],
        }


@dataclass(frozen=True, slots=True)
class Answer:
    """May a worker with the switch on start on this machine, on this evidence?

    Attributes:
        standing: the receipt with every reason against it.
        refusal: the first reason, in the shape of all refusals; None where it may start.
    """

    standing: Standing
    refusal: Refusal | None

    @property
    def exit(self) -> Exit:
        """0 where it may start, 3 where not."""
        return Exit.DONE if self.refusal is None else Exit.REFUSED

    def as_dict(self) -> dict[str, object]:
        """Return plain values for ``--json``."""
        return {
            "admitted": self.refusal is None,
            "exit": int(self.exit),
            **self.standing.as_dict(),
            "refusal": None if self.refusal is None else self.refusal.as_dict(),
        }


def machine_subject(
    facts: Mapping[str, object],
    source_digest: str | None = None,
    uuids: Collection[str] | None = None,
) -> Subject:
    """Return what evidence is held against.

    Args:
        facts: what :class:`pp4.wire.machine.Machine` describes.
        source_digest: of the source that runs; the installed one where None.
        uuids: the GPUs that are meant; all where None.

    Raises:
        WrongError: ``BAD_FRAME``, the facts are not of that shape.
    """
    return subject_of(read(Machine, facts), source_digest or installed_source().digest, uuids)


def gate(
    raw: bytes,
    facts: Mapping[str, object],
    policy: StandingPolicy | None = None,
    file: str = "receipt",
) -> Answer:
    """Judge whether a worker with the switch on may start.

    Args:
        raw: bytes of the receipt's file.
        facts: what :class:`pp4.wire.machine.Machine` describes.
        policy: what else ends a qualification; nothing where None.
        file: what to call it.

    Raises:
        WrongError: ``BAD_FRAME``, the facts are not of that shape.
    """
    policy = policy or StandingPolicy()
    machine = read(Machine, facts)
    standing = _standing(file, raw, machine, policy)
    subject = subject_through(standing.receipt, machine, policy)
    admitted = admit(Command.WORKER_ON, [("qualification", raw)], subject)
    if isinstance(admitted, Refused):
        refusal = replace(admitted.refusal, source=shown(file))
        if refusal.code is Code.SUBJECT_MISMATCH:
            refusal = replace(refusal, next=_AGAIN)
        if standing.stands:
            # Admission decides; a reason that is not among ours is still one.
            reason = Reason("receipt", refusal.code, refusal.expected, refusal.found)
            standing = replace(standing, reasons=(reason,))
        return Answer(standing, refusal)
    for first in standing.reasons:
        where = f"{Command.WORKER_ON}, {first.what}"
        refusal = Refusal(first.code, where, first.expected, first.found, shown(file))
        return Answer(standing, replace(refusal, next=_AGAIN))
    return Answer(standing, None)


def status(
    receipts: Sequence[Path],
    facts: Mapping[str, object] | None,
    policy: StandingPolicy | None = None,
    unknown: Refusal | None = None,
) -> list[Standing]:
    """Hold every qualification among the files against this machine.

    Args:
        receipts: files; those of another kind are passed over, and of equal ones the first counts.
        facts: what :class:`pp4.wire.machine.Machine` describes; None where the machine cannot
            say, and then nothing stands.
        policy: what else ends a qualification; nothing where None.
        unknown: why the machine cannot say.

    Returns:
        those that stand first, then the newest first.

    Raises:
        WrongError: ``BAD_FRAME``, the facts are not of that shape.
    """
    policy = policy or StandingPolicy()
    machine = None if facts is None else read(Machine, facts)
    found: dict[str, Standing] = {}
    for path in receipts:
        name = str(path)
        try:
            raw = read_file(path)
        except Pp4Error as error:
            refusal = error.refusal
            reason = Reason("receipt", refusal.code, refusal.expected, refusal.found)
            found[name] = Standing(name, None, None, (reason,))
            continue
        if _claimed_kind(raw) in (None, "qualification"):
            standing = _standing(name, raw, machine, policy, unknown)
            found.setdefault(file_digest(raw), standing)
    newest = sorted(found.values(), key=_made_at, reverse=True)
    return sorted(newest, key=lambda standing: not standing.stands)


def receipts_in(places: Sequence[Path]) -> list[Path]:
    """Return files as they are given, and for each directory the ``*.json`` files right in it.

    Raises:
        RefusedError: ``UNREADABLE``, a directory that is there cannot be listed.
    """
    paths: list[Path] = []
    for place in places:
        try:
            inside = sorted(place.iterdir()) if place.is_dir() else [place]
        except OSError as error:
            reason = error.strerror or str(error)
            raise RefusedError(
                Refusal(Code.UNREADABLE, shown(str(place)), "a directory of receipts", reason)
            ) from error
        paths += [path for path in inside if path.suffix == ".json" or path == place]
    return paths


def kept(state_dir: Path) -> list[Path]:
    """Return the receipts that runs on this machine left with its state, if there are any.

    Raises:
        RefusedError: ``UNREADABLE``, their directory cannot be listed.
    """
    directory = state_dir / KEPT
    return receipts_in([directory]) if directory.exists() else []


def summary(standings: Sequence[Standing]) -> str:
    """Say in one line what this machine is qualified for."""
    for standing in standings:
        if standing.stands:
            return f"qualified: a worker with the switch on may start, by {standing.file}"
    if not standings:
        return "qualified for nothing: there is no qualification"
    nearest = min(standings, key=lambda standing: len({r.what for r in standing.reasons}))
    whats = ", ".join(dict.fromkeys(reason.what for reason in nearest.reasons))
    return f"qualified for nothing: {nearest.file} does not stand, because of {whats}"


def exit_of(standings: Sequence[Standing]) -> Exit:
    """Return 0 where any qualification stands, 3 where none does."""
    return Exit.DONE if any(standing.stands for standing in standings) else Exit.REFUSED


def _made_at(standing: Standing) -> str:
    return (standing.receipt and standing.receipt.made_at) or ""


def _claimed_kind(raw: bytes) -> str | None:
    """Return the kind that a file says it is of, None where it is no receipt at all."""
    try:
        tree = parse(raw, "receipt")
    except Pp4Error:
        return None
    kind = tree.get("kind") if isinstance(tree, dict) else None
    return kind if isinstance(kind, str) and kind in KINDS else None


def _standing(
    file: str,
    raw: bytes,
    machine: Machine | None,
    policy: StandingPolicy,
    unknown: Refusal | None = None,
) -> Standing:
    asked = Policy(max_age=policy.max_age, now=policy.now)
    report = verify_bytes([(file, raw)], asked).files[0]
    failed = [check for check in report.checks if check.status is Status.FAIL]
    reasons = [of_check(check) for check in failed]
    receipt = report.receipt
    if receipt is not None and receipt.kind != "qualification":
        reasons.append(Reason("receipt", Code.WRONG_KIND, "qualification", receipt.kind))
    if not isinstance(receipt, Qualification) or any(r.what == "receipt" for r in reasons):
        return Standing(file, report.sha256, None, tuple(reasons))
    reasons += own_reasons(receipt, policy)
    if machine is None:
        code = unknown.code if unknown else Code.SUBJECT_MISMATCH
        why = f"{unknown.where}: {unknown.found}" if unknown else "it cannot say what it is"
        reasons.append(Reason("machine", code, "facts of this machine", f"none: {why}"))
    else:
        reasons += changed(receipt, machine, policy)
    return Standing(file, report.sha256, receipt, tuple(reasons))
