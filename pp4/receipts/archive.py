"""The archive: a directory of receipts that are never edited, and the index that tells of them.

``python -m pp4.receipts.archive DIRECTORY`` writes the rows of the index anew after a receipt was
put there; everything else in the index is written by people and stays.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pp4.errors import Code, Pp4Error, Refusal, RefusedError
from pp4.receipts.canonical import read_file, refuse, shown
from pp4.receipts.chain import chain_checks, redacted
from pp4.receipts.checks import Check, compare, require
from pp4.receipts.report import FileReport, Report
from pp4.receipts.verify import Policy, verify

INDEX: Final = "README.md"
BEGIN: Final = "<!-- BEGIN receipts -->"
END: Final = "<!-- END receipts -->"
HEAD: Final = ("file", "sha256 of the file", "source it is bound to", "executed", "does not show")
_CELLS: Final = len(HEAD)


def read_archive(directory: Path) -> Report:
    """Verify every receipt as history, and the index against the receipts.

    Evidence has to be in the archive.  Only where redacted copies are, a missing piece is said and
    not held against a receipt: a copy has another file hash than the original that was used.

    Args:
        directory: holds ``*.json``, their signatures and the index.

    Returns:
        one report over all files; of an empty archive with the checks of the index alone.

    Raises:
        RefusedError: ``UNREADABLE``, the directory cannot be listed.
    """
    names = _names(directory)
    receipts = [name for name in names if name.endswith(".json")]
    files = [_history(directory, name) for name in receipts]
    overall = [_nothing_else(names, receipts)]
    whole = not any(map(redacted, files))
    for file in files:
        overall += chain_checks(_resting(file, files), required=whole)
    overall += _index_checks(directory / INDEX, files)
    return Report(tuple(files), tuple(dict.fromkeys(overall)))


def index_row(file: FileReport) -> str:
    """Return the row of the index for one receipt.

    Raises:
        RefusedError: its first failed check; what is not intact is not archived.
    """
    for check in file.checks:
        if check.status == "fail":
            refuse(check.code, f"{file.file}, check {check.name}", check.expected, check.found)
    return f"| {' | '.join(_row(file))} |"


def write_index(directory: Path) -> None:
    """Write the rows between the marks of the index anew, from the receipts.

    Raises:
        RefusedError: a receipt is not intact, the index has no place for rows, or it cannot be
            written.
    """
    path = directory / INDEX
    text = _text(path)
    before, rest = text.split(BEGIN, 1) if BEGIN in text else (text, "")
    if END not in rest:
        refuse(Code.SCHEMA, shown(str(path)), f"{BEGIN} and {END}", "no such marks")
    receipts = [name for name in _names(directory) if name.endswith(".json")]
    rows = [index_row(_history(directory, name)) for name in receipts]
    head = [f"| {' | '.join(HEAD)} |", f"|{'---|' * _CELLS}"]
    table = "\n".join([*head, *rows])
    try:
        path.write_text(f"{before}{BEGIN}\n{table}\n{END}{rest.split(END, 1)[1]}", "utf-8")
    except OSError as error:
        reason = error.strerror or str(error)
        raise RefusedError(
            Refusal(Code.UNWRITABLE, shown(str(path)), "an index that can be written", reason)
        ) from error


def _names(directory: Path) -> list[str]:
    try:
        return sorted(path.name for path in directory.iterdir())
    except OSError as error:
        where, reason = shown(str(directory)), error.strerror or str(error)
        refuse(Code.UNREADABLE, where, "a directory of receipts", reason)


def _history(directory: Path, name: str) -> FileReport:
    report = verify([directory / name], Policy(history=True)).files[0]
    checks = tuple(check.of(name) for check in report.checks)
    return FileReport(name, report.sha256, report.receipt, report.signature, checks)


def _resting(file: FileReport, files: Sequence[FileReport]) -> list[FileReport]:
    """Return the file with the archived files that it rests on, and no other.

    Among all files of an archive a loose one of the wanted kind is no swapped original.
    """
    wanted = {one.sha256 for one in file.receipt.evidence} if file.receipt else set()
    return [file, *(other for other in files if other.sha256 in wanted)]


def _nothing_else(names: Sequence[str], receipts: Sequence[str]) -> Check:
    signatures = {f"{name}.sig" for name in receipts}
    odd = [n for n in names if n not in receipts and n not in signatures and n != INDEX]
    expected = f"receipts, their signatures and {INDEX}"
    found = f"also {', '.join(odd)}" if odd else expected
    return require("archive", Code.CROSS_CHECK, not odd, expected, found)


def _index_checks(path: Path, files: Sequence[FileReport]) -> list[Check]:
    try:
        rows = _rows(_text(path))
    except Pp4Error as error:
        refusal = error.refusal
        return [require("index", refusal.code, False, refusal.expected, refusal.found).of(INDEX)]
    named = [row[0] for row in rows]
    checks = [
        compare("index-files", Code.CROSS_CHECK, [f"`{file.file}`" for file in files], named),
        *(_row_check(file, row) for file in files for row in rows if row[0] == f"`{file.file}`"),
    ]
    return [check.of(INDEX) for check in checks]


def _text(path: Path) -> str:
    try:
        return read_file(path).decode("utf-8")
    except UnicodeDecodeError as error:
        found = f"byte {error.start} is none"
        raise RefusedError(Refusal(Code.NOT_UTF8, shown(str(path)), "UTF-8 text", found)) from error


def _rows(text: str) -> list[tuple[str, ...]]:
    """Return the rows of the one table between the marks, heading left out."""
    _, begin, rest = text.partition(BEGIN)
    inside, end, after = rest.partition(END)
    if not (begin and end) or BEGIN in after or END in after:
        refuse(Code.SCHEMA, INDEX, f"one table between {BEGIN} and {END}", "no such marks, or more")
    lines = [line.strip() for line in inside.splitlines() if line.strip()]
    rows = [tuple(cell.strip() for cell in _cells(line)) for line in lines]
    if len(rows) < 2 or rows[0] != HEAD or not all(set(cell) <= set("-:") for cell in rows[1]):
        refuse(Code.SCHEMA, INDEX, f"a heading: {', '.join(HEAD)}", shown(" ".join(lines[:1])))
    for row in rows:
        if len(row) != _CELLS:
            refuse(Code.SCHEMA, INDEX, f"{_CELLS} cells in a row", f"{len(row)}: {shown(row)}")
    return rows[2:]


def _cells(line: str) -> list[str]:
    if not (line.startswith("|") and line.endswith("|") and len(line) > 1):
        refuse(Code.SCHEMA, INDEX, "rows that begin and end with |", shown(line))
    # A receipt's own words may hold the separator; the row has it escaped.
    marked = line[1:-1].replace("\\|", "\0")
    return [cell.replace("\0", "\\|") for cell in marked.split("|")]


def _row(file: FileReport) -> tuple[str, ...]:
    receipt = file.receipt
    if receipt is None:
        refuse(Code.SCHEMA, file.file, "a receipt", "none")
    gpus: Sequence[object] = getattr(receipt, "gpus", ())
    said = {
        "scope": getattr(receipt, "scope", None),
        "verdict": file.verdict,
        "on": ", ".join(sorted(str(getattr(gpu, "name", "")) for gpu in gpus)) or "no GPU",
        "made": receipt.made_at,
    }
    executed = "; ".join(f"{name} {text}" for name, text in said.items() if text)
    cells = (f"{receipt.kind}: {executed}", " / ".join(receipt.limits))
    return (
        f"`{file.file}`",
        f"`{file.sha256}`",
        f"`{receipt.source.digest}`",
        *(shown(" ".join(cell.split()), sys.maxsize).replace("|", "\\|") for cell in cells),
    )


def _row_check(file: FileReport, row: tuple[str, ...]) -> Check:
    name = f"index-row {file.file}"
    if file.receipt is None:
        return require(name, Code.CROSS_CHECK, False, "a row about a receipt", "it is none")
    for title, expected, found in zip(HEAD, _row(file), row, strict=True):
        if found != expected:
            return compare(name, Code.CROSS_CHECK, f"{title}: {expected}", f"{title}: {found}")
    return require(name, Code.CROSS_CHECK, True, "what the receipt says", "what the receipt says")


if __name__ == "__main__":
    write_index(Path(sys.argv[1]))
