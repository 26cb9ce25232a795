"""A copy of a receipt for others: as it is, or with the names of machines blacked out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from pp4.errors import Code, Exit, Refusal, RefusedError, WrongError
from pp4.receipts.build import seal
from pp4.receipts.canonical import parse, read_file, shown
from pp4.receipts.private import redact
from pp4.receipts.report import Report
from pp4.receipts.verify import verify_bytes


def exported(path: Path, *, redacted: bool) -> bytes:
    """Return the bytes of a copy that verifies.

    Args:
        path: the receipt.
        redacted: whether every private leaf is blacked out.  The receipt's digest stays; its file
            hash does not, so what refers to the file, and its signature, belong to the open one.

    Raises:
        RefusedError: it cannot be read or is no receipt; ``CROSS_CHECK``: a name of a machine
            stands outside of ``private`` as well, where the digest covers it.
        WrongError: it contradicts itself.
    """
    name = shown(str(path))
    raw = read_file(path)
    _require_intact(verify_bytes([(name, raw)]), name)
    if not redacted:
        return raw
    tree = parse(raw, name)
    if not isinstance(tree, dict):
        raise TypeError("what verified is an object")
    _require_unnamed(tree, name)
    copy = seal(redact(tree))
    _require_intact(verify_bytes([(name, copy)]), name)
    return copy


def _require_intact(report: Report, name: str) -> None:
    if not report.failures:
        return
    first = report.failures[0]
    refusal = Refusal(
        first.code, f"{name}: {first.name}", first.expected, first.found, "verify-receipt"
    )
    raise WrongError(refusal) if report.exit is Exit.WRONG else RefusedError(refusal)


def _require_unnamed(tree: Mapping[str, object], name: str) -> None:
    """Refuse a receipt that names a machine where nothing can be blacked out."""
    private = tree.get("private")
    leaves = private if isinstance(private, Mapping) else {}
    open_values = {
        leaf: str(value["value"])
        for leaf, value in leaves.items()
        if isinstance(value, Mapping) and value.get("value")
    }
    rest = {member: value for member, value in tree.items() if member != "private"}
    for leaf, value in open_values.items():
        # As a whole word: a host that is called "vm" is not named by "nvml".
        word = re.compile(rf"(?<![0-9A-Za-z]){re.escape(value)}(?![0-9A-Za-z])")
        place = next((place for place, text in _texts(rest, "") if word.search(text)), None)
        if place is not None:
            expected = "names of machines below `private` alone"
            found = f"{place} holds what private.{leaf} holds"
            raise RefusedError(Refusal(Code.CROSS_CHECK, name, expected, shown(found)))


def _texts(value: object, place: str) -> Iterator[tuple[str, str]]:
    """Yield every text below a value with its place, names of members included."""
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, Mapping):
        for member, below in value.items():
            inside = f"{place}.{member}" if place else str(member)
            yield inside, str(member)
            yield from _texts(below, inside)
    elif isinstance(value, list):
        for number, below in enumerate(value):
            yield from _texts(below, f"{place}[{number}]")
