"""Many receipts at a glance, and the chains of evidence of some."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pp4.errors import Exit
from pp4.receipts.models import Receipt
from pp4.receipts.records import Incident, Preparation, RefusalReceipt
from pp4.receipts.report import FileReport
from pp4.receipts.runs import Measurement, WholeWorker
from pp4.receipts.verify import verify
from pp4.report.evidence import Link, trees, word_of
from pp4.report.given import look, read


@dataclass(frozen=True, slots=True)
class Row:
    """One file.

    Attributes:
        kind: of the receipt; ``none`` where it is none.
        verdict: its own; what is wrong where it does not verify.
        made: when, as the receipt says.
        subject: what it is about.
        hold: id and fence; empty where there was none.
        file: its name as given.
        intact: whether it verifies by itself.
    """

    kind: str
    verdict: str
    made: str
    subject: str
    hold: str
    file: str
    intact: bool


def rows(paths: Sequence[Path]) -> tuple[list[Row], Exit]:
    """Look at each file by itself; one that does not verify is listed as such.

    Returns:
        a row for each file, newest first, and how bad the worst of them is.
    """
    reports = [verify([path]) for path in paths]
    made = [_row(file) for report in reports for file in report.files]
    made.sort(key=lambda row: row.file)
    made.sort(key=lambda row: row.made, reverse=True)
    exits = {report.exit for report in reports}
    worst = next((code for code in (Exit.WRONG, Exit.REFUSED) if code in exits), Exit.DONE)
    return made, worst


def _row(file: FileReport) -> Row:
    receipt = file.receipt
    failed = [check for check in file.checks if check.status == "fail"]
    if receipt is None or failed:
        wrong = f"does not verify: {failed[0].code}" if failed else "unreadable"
        return Row(file.kind or "none", wrong, "", "", "", file.file, False)
    hold = getattr(receipt, "hold", None)
    return Row(
        kind=receipt.kind,
        verdict=word_of(receipt),
        made=receipt.made_at or "",
        subject=_subject(receipt),
        hold=f"{hold.id}, fence {hold.fence}" if hold is not None else "",
        file=file.file,
        intact=True,
    )


def _subject(receipt: Receipt) -> str:
    if isinstance(receipt, RefusalReceipt):
        return receipt.command
    if isinstance(receipt, Incident):
        return f"{receipt.what} ({receipt.hold_id}, fence {receipt.fence})"
    if isinstance(receipt, Preparation):
        return f"{len(receipt.outputs)} files, {len(receipt.replacements)} replacements"
    names: dict[str, int] = {}
    for gpu in receipt.gpus:
        names[gpu.name] = names.get(gpu.name, 0) + 1
    on = ", ".join(f"{count} {name}" for name, count in names.items()) or "no GPU"
    part = {Measurement: "half", WholeWorker: "mode"}.get(type(receipt), "scope")
    which = getattr(receipt, part, None)
    return f"{which}, {on}" if which else on


def chain(named: Sequence[Path], around: Sequence[Path]) -> tuple[Link, ...]:
    """Return the chains of evidence of receipts.

    Args:
        named: receipts whose chains are asked for; without any, those of ``around`` that no other
            one rests on.
        around: further files in which evidence is looked for; what is no receipt is passed over.

    Raises:
        WrongError: a named receipt contradicts itself.
        RefusedError: a named receipt will not do.
    """
    known = {one.sha256: one for one in look(around)}
    first = {one.sha256: one for path in named for one in read([path])}
    used = {reference.sha256 for one in first.values() for reference in one.receipt.evidence}
    roots = [name for name in first if name not in used] if first else None
    return trees(list({**known, **first}.values()), roots)
