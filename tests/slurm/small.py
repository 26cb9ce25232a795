"""Rehearsals as small as a receipt can be, in the place of those that take a minute."""

from pathlib import Path

from pp4.receipts.build import build
from pp4.receipts.store import write_new
from tests.unit.receipts import samples


def leave_receipt(out: Path, *, good: bool) -> int:
    """Write the receipt of a rehearsal, or of one with an arm that failed; -> its exit code."""
    body = samples.rehearsal()
    if not good:
        body["gates"][2]["arms"][0]["found"] = "failed(OUTPUT_MISMATCH)"
        body["verdict"] = "wrong"
    write_new(out / "rehearsal-small.json", build(samples.with_journal(body)))
    return int(not good)
