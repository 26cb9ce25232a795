"""What is known of each planned pair: its receipts, verified offline, or why there is none."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pp4.errors import Code, Exit, Pp4Error, Refusal, RefusedError
from pp4.fleet.plan import Node, Plan
from pp4.fleet.rounds import Pair
from pp4.fleet.slurm import EXIT, LOG, Body, pair_directory
from pp4.receipts.canonical import read_file, shown
from pp4.receipts.checks import Status
from pp4.receipts.envelope import OpenLeaf
from pp4.receipts.gates import Qualification
from pp4.receipts.records import Incident, RefusalReceipt
from pp4.receipts.verify import verify

_LONGEST_LOG: Final = 1 << 20
_REFUSAL: Final = re.compile(r"^code +([A-Z][A-Z0-9_]*)$", re.ASCII | re.MULTILINE)
_GOOD: Final = frozenset({"qualified", "rehearsed"})
_BAD: Final = frozenset({"wrong", "timeout", "unclean"})
"""Verdicts of gates that ran and did not hold; any other verdict is no evidence either way."""
_ENDED: Final[Mapping[str, str]] = {
    "1": "failed before a receipt was made",
    "2": "the command line was not understood",
    "3": "refused",
    "4": "inconclusive",
    "5": "a wait of the host ran out",
    "6": "unclean: something may still run",
    "130": "interrupted",
    "143": "told to end",
}
Place = tuple[str, Pair]
"""A node's name and one of its pairs."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One receipt.

    Attributes:
        path: its file.
        passed: what it says of its pair; None where it is no evidence.
        says: the same in words.
        uuids: of the pair that it is about; None where it does not tell.
        digest: its own, None where it is no receipt.
        tampered: it contradicts itself, which is more than being no evidence.
    """

    path: Path
    passed: bool | None
    says: str
    uuids: frozenset[str] | None = None
    digest: str | None = None
    tampered: bool = False


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of one planned pair.

    Attributes:
        node: its node.
        pair: numbers of its GPUs.
        passed: whether it passed; False where any receipt says that it failed; None where
            nothing is known.
        says: why, in words.
        readings: its receipts.
    """

    node: str
    pair: Pair
    passed: bool | None
    says: str
    readings: tuple[Reading, ...]


@dataclass(slots=True)
class _Collection:
    """Receipts by pair, while files are read."""

    plan: Plan
    body: Body
    by_place: dict[Place, list[Reading]] = field(default_factory=dict)
    strays: list[Reading] = field(default_factory=list)
    seen: dict[str, Path] = field(default_factory=dict)

    def add(self, path: Path, place: Place | None) -> None:
        """Read a receipt that lies in the directory of a pair, or anywhere."""
        reading = self._judged(_read(path, self.body), place)
        about = place or self._about(reading)
        if about is None:
            self.strays.append(reading)
        else:
            self.by_place.setdefault(about, []).append(reading)

    def _judged(self, reading: Reading, place: Place | None) -> Reading:
        if reading.digest is None or reading.passed is None:
            return reading
        first = self.seen.setdefault(reading.digest, reading.path)
        if first != reading.path:
            return _no_evidence(reading, f"the receipt of {shown(str(first))} once more")
        if place is not None and reading.uuids is not None and self._about(reading) != place:
            return _no_evidence(reading, "about other GPUs than those of this pair")
        return reading

    def _about(self, reading: Reading) -> Place | None:
        for node in self.plan.nodes if reading.uuids else ():
            for pair in node.pairs if node.uuids else ():
                if frozenset(node.uuids[gpu] for gpu in pair) == reading.uuids:
                    return node.name, pair
        return None


def collect(
    plan: Plan, body: Body, directory: Path | None, files: Iterable[Path]
) -> tuple[list[Known], list[Reading]]:
    """Read every receipt, and say what is known of each planned pair.

    Args:
        plan: whose pairs.
        body: the kind of receipt that is evidence.
        directory: of the run, whose pairs have directories; None where there is none.
        files: further receipts, which tell by the UUIDs in them which pair they are about.

    Returns:
        What is known of each pair, in the order of the plan; and receipts about none of them.

    Raises:
        RefusedError: ``UNREADABLE``, a directory cannot be listed.
    """
    found = _Collection(plan, body)
    for node, pair in _planned(plan) if directory is not None else ():
        for path in _receipts_in(pair_directory(directory or Path(), node, pair)):
            found.add(path, (node.name, pair))
    for path in files:
        found.add(path, None)
    known = [
        _known(node, pair, found.by_place.get((node.name, pair), ()), directory)
        for node, pair in _planned(plan)
    ]
    return known, found.strays


def _planned(plan: Plan) -> Iterator[tuple[Node, Pair]]:
    return ((node, pair) for node in plan.nodes for pair in node.pairs)


def receipts_in(directory: Path) -> list[Path]:
    """Return the files of a directory that are named like receipts, by name.

    Raises:
        RefusedError: ``UNREADABLE``, it cannot be listed.
    """
    try:
        return sorted(path for path in directory.iterdir() if path.suffix == ".json")
    except OSError as error:
        reason = error.strerror or str(error)
        raise RefusedError(
            Refusal(Code.UNREADABLE, shown(str(directory)), "a directory of receipts", reason)
        ) from error


def _receipts_in(directory: Path) -> list[Path]:
    return receipts_in(directory) if directory.exists() else []


def _read(path: Path, body: Body) -> Reading:
    report = verify([path])
    (file,) = report.files
    receipt = file.receipt
    if not file.intact or receipt is None:
        first = next(check for check in file.checks if check.status is Status.FAIL)
        says = f"{first.code}: {first.found}"
        return Reading(path, None, says, tampered=report.exit is Exit.WRONG)
    if isinstance(receipt, Incident):
        return Reading(path, None, f"an incident: {receipt.what} ({receipt.state})")
    if isinstance(receipt, RefusalReceipt):
        return Reading(path, None, f"refused: {receipt.refusal.code}")
    if receipt.kind != body:
        return Reading(path, None, f"a receipt of kind {receipt.kind}, not {body}")
    verdict = file.verdict or "none"
    passed = True if verdict in _GOOD else False if verdict in _BAD else None
    uuids = _uuids(receipt) if isinstance(receipt, Qualification) else None
    if uuids is None and body == "qualification":
        return Reading(path, None, "its UUIDs are blacked out: nobody can tell which pair it is")
    return Reading(path, passed, f"verdict {verdict}", uuids, receipt.digest)


def _uuids(receipt: Qualification) -> frozenset[str] | None:
    leaves = [receipt.private.get(gpu.uuid) for gpu in receipt.gpus]
    told = [leaf.value for leaf in leaves if isinstance(leaf, OpenLeaf)]
    return frozenset(told) if len(told) == len(leaves) else None


def _no_evidence(reading: Reading, says: str) -> Reading:
    return Reading(reading.path, None, says, reading.uuids, reading.digest, reading.tampered)


def _known(node: Node, pair: Pair, readings: Sequence[Reading], directory: Path | None) -> Known:
    said = {reading.passed for reading in readings}
    passed = False if False in said else True if True in said else None
    words = [reading.says for reading in readings]
    if passed is None and directory is not None:
        words.append(_ended(pair_directory(directory, node, pair)))
    return Known(node.name, pair, passed, "; ".join(words) or "no receipt", tuple(readings))


def _ended(place: Path) -> str:
    """Say how a command without a verdict ended."""
    if not place.exists():
        return "not run"
    try:
        text = read_file(place / EXIT, 16).decode("ascii", "replace").strip()
    except Pp4Error:
        return "it was killed, or still runs: there is no exit code"
    said = f"exit code {shown(text)}"
    return f"{said}, {_ENDED[text]}{_refused(place)}" if text in _ENDED else said


def _refused(place: Path) -> str:
    """The code of the refusal that a command ended with, by its log; nothing where it has none."""
    try:
        log = read_file(place / LOG, _LONGEST_LOG).decode("utf-8", "replace")
    except Pp4Error:
        return ""
    codes = _REFUSAL.findall(log)
    return f": {codes[-1]}" if codes else ""
