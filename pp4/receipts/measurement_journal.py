"""What the journal of a HOLD says of the arms, held against the arms that a receipt has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pp4.errors import Code
from pp4.receipts.checks import Check, require
from pp4.receipts.digests import tree_digest
from pp4.receipts.envelope import Fact
from pp4.receipts.gates import JournalLine
from pp4.receipts.runs import MeasuredArm, Measurement

PREFIX: Final = "arm-"
"""Steps of arms are ``arm-A1``, their phases and snapshots ``arm-A1/headline``."""


def journal_of_arms(receipt: Measurement) -> Check:
    """Check that arms began, ended and were sealed as the receipt says.

    A half that was cut may have a journal that ends before its arms, and an arm in it that never
    came as far as its baseline; a complete one has the begin and the end of both.
    """
    lines = [line for line in receipt.journal if line.step.startswith(PREFIX)]
    found = [line.step.removeprefix(PREFIX) for line in lines if line.event == "begin"]
    begun = [name for name in found if "/" not in name]
    here = [arm.arm for arm in receipt.arms]
    common = min(len(begun), len(here))
    odd = []
    if begun[:common] != here[:common] or (receipt.complete and begun != here):
        odd.append(f"arms begun: {', '.join(begun) or 'none'}; here: {', '.join(here)}")
    for arm in receipt.arms:
        odd += _end(arm, lines, receipt.complete)
        odd += _snapshots(arm, lines)
    expected = "the arms of the journal, with their ends and the digests of their snapshots"
    return require("journal-arms", Code.CROSS_CHECK, not odd, expected, "; ".join(odd) or expected)


def _end(arm: MeasuredArm, lines: Sequence[JournalLine], complete: bool) -> list[str]:
    ends = [line.found for line in lines if (line.step, line.event) == (_step(arm), "end")]
    if ends == [arm.verdict] or (not ends and not complete):
        return []
    return [f"{arm.arm} is {arm.verdict}, ended {', '.join(map(str, ends)) or 'never'}"]


def _snapshots(arm: MeasuredArm, lines: Sequence[JournalLine]) -> list[str]:
    sealed = {
        f"{_step(arm)}/{one.label}": tree_digest(one.model_dump(mode="json"))
        for one in arm.snapshots
    }
    return [
        f"another snapshot than {line.step}"
        for line in lines
        if line.event == "snapshot"
        and line.step.startswith(f"{_step(arm)}/")
        and line.detail.get("sha256") != sealed.get(line.step)
    ]


def same_models(receipts: Sequence[Measurement]) -> Check:
    """Check that every arm loaded the same target and prompts, as its engine said.

    A pair of one's own is named by its paths before: what lies there may be another one later.
    """
    found = other_models([facts for receipt in receipts for facts in loaded(receipt)])
    expected = "the same target and prompts in every arm"
    return require("same-models", Code.EVIDENCE_MISMATCH, not found, expected, found or expected)


def loaded(receipt: Measurement) -> list[Mapping[str, Fact]]:
    """Return what the engine of each arm said that it has loaded."""
    return [
        line.detail for line in receipt.journal if (line.step, line.event, line.found) in _LOADED
    ]


def other_models(facts: Sequence[Mapping[str, Fact]]) -> str:
    """Say in what the engines of arms have loaded different things; nothing where they have not."""
    names = sorted({name for one in facts for name in one if len(_several(facts, name)) > 1})
    return "; ".join(f"{name} {' and '.join(_several(facts, name))}" for name in names)


_LOADED: Final = frozenset(
    (f"{PREFIX}{arm}/engine", "end", "pass") for arm in ("A1", "B1", "B2", "A2")
)


def _several(facts: Sequence[Mapping[str, Fact]], name: str) -> list[str]:
    """Return what is said under a name, each once."""
    return list(dict.fromkeys(str(one.get(name)) for one in facts))


def _step(arm: MeasuredArm) -> str:
    return f"{PREFIX}{arm.arm}"
