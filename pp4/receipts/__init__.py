"""Receipts: canonical bytes, digests, models, admission, verification, storage.

This package imports nothing of pp4 but its errors, and no torch: a receipt stays checkable on any
machine, years later.

``build`` makes the bytes of a receipt, ``write_new`` stores them, ``verify`` checks files and
``admit`` decides whether evidence opens a window.
"""

from pp4.receipts.admission import Admission, Command, Refused, Subject, admit
from pp4.receipts.build import build, seal
from pp4.receipts.digests import file_digest, installed_source, source_digest
from pp4.receipts.private import opened, redact
from pp4.receipts.report import FileReport, Report
from pp4.receipts.store import write_new
from pp4.receipts.verify import Policy, verify, verify_bytes

__all__ = [
    "Admission",
    "Command",
    "FileReport",
    "Policy",
    "Refused",
    "Report",
    "Subject",
    "admit",
    "build",
    "file_digest",
    "installed_source",
    "opened",
    "redact",
    "seal",
    "source_digest",
    "verify",
    "verify_bytes",
    "write_new",
]
