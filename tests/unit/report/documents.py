"""Documents of sample receipts, as ``pp4 report`` makes them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pp4.measure.describing import describe
from pp4.measure.statistics import interval
from pp4.report.document import Document, document
from pp4.report.given import read


def of_files(paths: Sequence[Path]) -> Document:
    """Read files and describe them with intervals."""
    return document(read(paths), lambda halves: describe(halves, interval))


def of_bytes(directory: Path, **files: bytes) -> Document:
    """The same of receipts in memory."""
    paths = []
    for name, raw in files.items():
        path = directory / f"{name}.json"
        path.write_bytes(raw)
        paths.append(path)
    return of_files(paths)
