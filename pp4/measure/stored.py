"""Two halves that are stored: verified, summed up anew, and held against what the second says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pp4.errors import Code, Exit, Refusal, RefusedError
from pp4.measure.sealing import NOTHING
from pp4.measure.summary import require_same_summary, require_statistics
from pp4.receipts.canonical import read_file, shown
from pp4.receipts.digests import file_digest
from pp4.receipts.runs import Measurement
from pp4.receipts.verify import verify_bytes

_COMMAND = "pp4 measure summary"


def summary_of(first: Path, second: Path) -> dict[str, Any]:
    """Compute the summary of two halves, and compare the stored one with it.

    Raises:
        RefusedError: a file is no half that verifies, or both may not be combined.
        WrongError: ``CROSS_CHECK``, the stored summary has other digits.
    """
    require_statistics(_COMMAND)
    raw = read_file(first)
    found = require_same_summary(
        _half(first, raw), _half(second, read_file(second)), file_digest(raw)
    )
    code = Exit.INCONCLUSIVE if found.verdict == "UNDECIDED" else Exit.DONE
    return {
        **NOTHING,
        "verdict": found.verdict,
        "exit": int(code),
        "summary": found.model_dump(mode="json"),
    }


def _half(path: Path, raw: bytes) -> Measurement:
    """A half that verifies.

    Raises:
        RefusedError: the first check that it fails; ``WRONG_KIND``, it is something else.
    """
    where = shown(str(path), 300)
    report = verify_bytes([(where, raw)])
    for check in report.failures:
        name = f"{where}, check {check.name}"
        raise RefusedError(Refusal(check.code, name, check.expected, check.found))
    receipt = report.files[0].receipt
    if not isinstance(receipt, Measurement):
        kind = "none" if receipt is None else receipt.kind
        raise RefusedError(Refusal(Code.WRONG_KIND, where, "a measurement", kind))
    return receipt
