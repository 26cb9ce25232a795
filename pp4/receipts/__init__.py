"""Receipts: canonical bytes, digests, models, admission, verification, storage.

This package imports nothing of pp4 but its errors, and no torch: a receipt stays checkable on any
machine, years later.

``build`` makes the bytes of a receipt, ``write_new`` stores them, ``verify`` checks files and
``admit`` decides whether evidence opens a window.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

_WHERE = {
    "Admission": "admission",
    "Command": "admission",
    "FileReport": "report",
    "Policy": "verify",
    "Refused": "admission",
    "Report": "report",
    "Subject": "admission",
    "admit": "admission",
    "build": "build",
    "file_digest": "digests",
    "installed_source": "digests",
    "opened": "private",
    "redact": "private",
    "seal": "build",
    "source_digest": "digests",
    "verify": "verify",
    "verify_bytes": "verify",
    "write_new": "store",
}


def __getattr__(name: str) -> Any:
    """Load a part when it is asked for: a relay needs canonical bytes, and no models."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
