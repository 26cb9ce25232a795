"""A rehearsal that failed, as small as a receipt can be: the stand-in of a faulty pair."""

from pathlib import Path

from pp4.receipts.build import build
from pp4.receipts.store import write_new
from tests.unit.receipts import samples


def leave_receipt(out: Path) -> int:
    """Write the receipt of a rehearsal in which one arm failed; -> the exit code of such a run."""
    body = samples.rehearsal()
    body["gates"][2]["arms"][0]["found"] = "failed(OUTPUT_MISMATCH)"
    body["verdict"] = "wrong"
    write_new(out / "rehearsal-failed.json", build(samples.with_journal(body)))
    return 1
