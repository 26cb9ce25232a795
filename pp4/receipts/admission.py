"""Evidence in, admission or refusal out: the only place where an :class:`Admission` is made.

A pure function over bytes.  Which command needs what is one table; there is no entry in it that
takes a rehearsal, so a rehearsal opens nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, NoReturn

from pp4.errors import Code, Pp4Error, Refusal, RefusedError
from pp4.receipts.bindings import Subject, require_bound
from pp4.receipts.canonical import shown
from pp4.receipts.digests import file_digest
from pp4.receipts.models import Receipt
from pp4.receipts.runs import Budget, Measurement, WholeWorker
from pp4.receipts.verify import verify_bytes

__all__ = ["Admission", "Command", "Refused", "Subject", "admit"]


class Command(StrEnum):
    """What wants to open a window, or to start."""

    SOLO = "solo-qualify"
    REHEARSAL = "pair-qualify --dry-run"
    PAIR_KERNELS = "pair-qualify --scope kernels"
    PAIR_FULL = "pair-qualify --scope full"
    BUDGET = "measure budget"
    A1B1 = "measure A1B1"
    B2A2 = "measure B2A2"
    WORKER_ON = "worker with the switch on"


@dataclass(frozen=True, slots=True)
class _Need:
    role: str
    kind: str
    optional: bool = False

    @property
    def label(self) -> str:
        return f"{self.kind} as {self.role}"


_SOLO: Final = _Need("identity_reference", "solo")
_WHOLE: Final = _Need("identity_reference", "whole_worker")
_BUDGET: Final = _Need("budget", "budget")
_FIRST: Final = _Need("first_half", "measurement")
_QUALIFIED: Final = _Need("qualification", "qualification")

NEEDS: Final[Mapping[Command, tuple[_Need, ...]]] = {
    Command.SOLO: (),
    Command.REHEARSAL: (),
    Command.PAIR_KERNELS: (_Need("identity_reference", "solo", optional=True),),
    Command.PAIR_FULL: (_SOLO, _WHOLE),
    Command.BUDGET: (_SOLO, _WHOLE),
    Command.A1B1: (_SOLO, _WHOLE, _BUDGET),
    Command.B2A2: (_SOLO, _WHOLE, _BUDGET, _FIRST),
    Command.WORKER_ON: (_QUALIFIED,),
}
# Facts of the subject without which a command's evidence cannot be judged.
_MUST_KNOW: Final[Mapping[Command, tuple[str, ...]]] = {
    Command.A1B1: ("model_sha256", "shapes", "now"),
    Command.B2A2: ("model_sha256", "shapes", "settings", "gpu_uuids", "first_closed", "now"),
    Command.WORKER_ON: ("gpu_uuids", "drivers", "libraries", "kernels"),
}
_SHARED: Final = (
    "gpu_models",
    "libraries",
    "kernels",
    "checkpoint_sha256",
    "input_set_sha256",
    "model_sha256",
)
_WITH_SUBJECT: Final[Mapping[str, frozenset[str]]] = {
    _BUDGET.label: frozenset({"shapes"}),
    _FIRST.label: frozenset({"settings", "gpu_uuids", "drivers"}),
    _QUALIFIED.label: frozenset({"gpu_uuids", "drivers"}),
}
_MAKES: Final[Mapping[str, str]] = {
    "solo": "pp4 solo-qualify",
    "whole_worker": "pp4 solo-qualify",
    "budget": "pp4 measure budget --hold FILE",
    "measurement": "pp4 measure A1B1 --hold FILE",
    "qualification": "pp4 pair-qualify --hold FILE --scope full",
}
_PROVEN: Final[Mapping[str, Mapping[str, str | bool]]] = {
    "solo": {"verdict": "qualified"},
    "whole_worker": {"verdict": "recorded", "mode": "solo"},
    "budget": {"verdict": "fits"},
    "measurement": {"half": "A1B1", "complete": True},
    "qualification": {"verdict": "qualified", "scope": "full"},
}


@dataclass(frozen=True, slots=True)
class Refused:
    """Evidence does not open the window."""

    refusal: Refusal


class Admission:
    """Proof that evidence was judged for one command; only :func:`admit` makes one.

    Attributes:
        command: what it admits.
        source_digest: the source that both sides must run.
        evidence: (role, kind, sha256 of the file) of each receipt it rests on.
        receipts: the receipts themselves, for gates that compare with them, by ``kind as role``.
    """

    __slots__ = ("command", "evidence", "receipts", "source_digest")

    command: Command
    source_digest: str
    evidence: tuple[tuple[str, str, str], ...]
    receipts: Mapping[str, Receipt]

    def __new__(cls) -> Admission:
        """Refuse: an admission follows from evidence."""
        raise TypeError("an Admission is made by admit() alone")

    def __init_subclass__(cls) -> NoReturn:
        raise TypeError("an Admission has no subclasses")

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"an Admission does not change: {name}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"an Admission does not change: {name}")

    def __reduce__(self) -> NoReturn:
        # Neither copied nor sent: whoever receives one must have judged the evidence itself.
        raise TypeError("an Admission cannot be copied or stored")


def admit(
    command: Command, evidence: Sequence[tuple[str, bytes]], subject: Subject
) -> Admission | Refused:
    """Judge evidence for a command.

    Args:
        command: what wants to start.
        evidence: (role, bytes of the receipt's file).
        subject: what is known of the machine and the plan.

    Returns:
        an admission, or the first reason against it; nothing is raised because of evidence.
    """
    try:
        return _judge(command, evidence, subject)
    except Pp4Error as error:
        return Refused(error.refusal)
    except Exception as error:
        found = shown(f"{type(error).__name__}: {error}")
        return Refused(Refusal(Code.INTERNAL, str(command), "evidence that can be judged", found))


def _judge(command: Command, evidence: Sequence[tuple[str, bytes]], subject: Subject) -> Admission:
    receipts: dict[str, Receipt] = {}
    rows = []
    for role, raw in evidence:
        receipt = _intact(role, raw)
        label = _want_needed(command, role, receipt.kind)
        if label in receipts:
            _refuse(Code.WRONG_ROLE, command, f"one {label}", "two")
        receipts[label] = receipt
        rows.append((role, receipt.kind, file_digest(raw)))
    for need in NEEDS[command]:
        if not need.optional and need.label not in receipts:
            _refuse(Code.EVIDENCE_MISSING, command, need.label, "none", _MAKES[need.kind])
    for label, receipt in receipts.items():
        _want_current(label, receipt, subject)
        _want_proven(label, receipt)
    _want_known(command, subject)
    require_bound(receipts, subject, _SHARED, _WITH_SUBJECT)
    for receipt in receipts.values():
        _want_usable(receipt, subject)
    return _make(command, subject.source_digest, tuple(rows), receipts)


def _make(
    command: Command,
    source_digest: str,
    evidence: tuple[tuple[str, str, str], ...],
    receipts: Mapping[str, Receipt],
) -> Admission:
    admission = object.__new__(Admission)
    for name, value in (
        ("command", command),
        ("source_digest", source_digest),
        ("evidence", evidence),
        ("receipts", dict(receipts)),
    ):
        object.__setattr__(admission, name, value)
    return admission


def _intact(role: str, raw: bytes) -> Receipt:
    name = f"evidence {shown(role, 40)}"
    report = verify_bytes([(name, raw)])
    for check in report.failures:
        where = f"{name}, check {check.name}"
        raise RefusedError(Refusal(check.code, where, check.expected, check.found))
    receipt = report.files[0].receipt
    if receipt is None:
        raise RefusedError(Refusal(Code.SCHEMA, name, "a receipt", "none"))
    return receipt


def _want_needed(command: Command, role: str, kind: str) -> str:
    """Return the label of the table's entry, or refuse: nothing is ignored silently."""
    needs = NEEDS[command]
    found = f"{kind} as {shown(role, 40)}"
    match = next((need for need in needs if (need.role, need.kind) == (role, kind)), None)
    if match is None:
        expected = ", ".join(need.label for need in needs) or "no evidence"
        known = any(need.role == role for need in needs)
        _refuse(Code.WRONG_KIND if known else Code.WRONG_ROLE, command, expected, found)
    return match.label


def _want_current(label: str, receipt: Receipt, subject: Subject) -> None:
    bound = receipt.source.digest
    if bound != subject.source_digest:
        expected = f"source {subject.source_digest}"
        again = _MAKES[receipt.kind]
        _refuse(Code.HISTORICAL, label, expected, f"historical: source {bound}", again)


def _want_proven(label: str, receipt: Receipt) -> None:
    """Refuse a receipt that says itself that its run did not come out well."""
    for name, expected in _PROVEN[receipt.kind].items():
        found = getattr(receipt, name)
        if found != expected:
            code = Code.OVER_BUDGET if found == "over" else Code.NOT_PROVEN
            again = _MAKES[receipt.kind]
            _refuse(code, label, f"{name} {expected}", f"{name} {found}", again)


def _want_known(command: Command, subject: Subject) -> None:
    for name in _MUST_KNOW.get(command, ()):
        if getattr(subject, name) is None:
            code = Code.NOT_RESTORED if name == "first_closed" else Code.SUBJECT_MISMATCH
            _refuse(code, command, f"{name} of this machine or plan", "not known")


def _want_usable(receipt: Receipt, subject: Subject) -> None:
    if isinstance(receipt, Budget):
        _want_budget(receipt, subject)
    elif isinstance(receipt, Measurement):
        _want_restored(receipt, subject)
    elif isinstance(receipt, WholeWorker) and (receipt.query_block, receipt.n_out) != (5, 4):
        found = f"query block {receipt.query_block}, {receipt.n_out} outputs"
        _refuse(Code.NOT_PROVEN, _WHOLE.label, "query block 5, 4 outputs", found)


def _want_budget(receipt: Budget, subject: Subject) -> None:
    again = _MAKES["budget"]
    if subject.now is not None and subject.now >= datetime.fromisoformat(receipt.expires_at):
        found = f"expired at {receipt.expires_at}"
        _refuse(Code.TOO_OLD, _BUDGET.label, "a budget that has not expired", found, again)
    if subject.bound_ns is not None and int(receipt.projected_ns) > subject.bound_ns:
        expected = f"at most {subject.bound_ns} ns"
        _refuse(Code.OVER_BUDGET, _BUDGET.label, expected, f"{receipt.projected_ns} ns", again)


def _want_restored(first: Measurement, subject: Subject) -> None:
    closed = subject.first_closed
    expected = f"HOLD {first.hold.id}, fence {first.hold.fence}, closed and restored"
    if closed is None:
        _refuse(Code.NOT_RESTORED, _FIRST.label, expected, "no tombstone")
    state = "restored" if closed.restored else "not restored"
    found = f"HOLD {closed.hold_id}, fence {closed.fence}, closed and {state}"
    if found != expected:
        _refuse(Code.NOT_RESTORED, _FIRST.label, shown(expected), shown(found), "pp4 hold status")


def _refuse(code: Code, where: str, expected: str, found: str, again: str = "") -> NoReturn:
    raise RefusedError(Refusal(code, str(where), expected, found, next=again))
