"""Receipts that need no figure: a few facts each, fair to what they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from pp4.receipts.models import Receipt
from pp4.receipts.records import Incident, Preparation, RefusalReceipt
from pp4.receipts.runs import WholeWorker
from pp4.report.words import span


@dataclass(frozen=True, slots=True)
class Fact:
    """A name and what it is."""

    name: str
    text: str


def facts_of(receipt: Receipt) -> tuple[Fact, ...]:
    """Return what a receipt without figures says; nothing for kinds that have a view."""
    tell = _TOLD.get(type(receipt))
    return tuple(Fact(name, text) for name, text in tell(receipt)) if tell else ()


def _whole_worker(receipt: WholeWorker) -> Iterator[tuple[str, str]]:
    yield "verdict", receipt.verdict
    yield "mode", receipt.mode
    yield "GPUs", ", ".join(gpu.name for gpu in receipt.gpus)
    yield "query block", f"{receipt.query_block}, at least {receipt.n_out} positions"
    blocks = sum(len(one.blocks) for one in receipt.outputs)
    yield "outputs", f"{blocks} blocks in {len(receipt.outputs)} sets, by digest"
    yield "took", span(int(receipt.elapsed_ns))
    yield "checkpoint", receipt.checkpoint_sha256
    yield "input set", receipt.input_set_sha256


def _preparation(receipt: Preparation) -> Iterator[tuple[str, str]]:
    yield "verdict", receipt.verdict
    yield "files", f"{len(receipt.inputs)} reviewed, {len(receipt.outputs)} staged"
    for edit in receipt.replacements:
        yield "replaced", f"{edit.what}: {edit.path}"
    for guard in receipt.guards:
        lines = f"line {guard.line_before} before, {guard.line_after} after"
        yield "guard", f"{guard.name}: {guard.path}, {lines}"
    yield "manifest", receipt.manifest_sha256
    yield "runner", receipt.reviewed_runner_sha256


def _refusal(receipt: RefusalReceipt) -> Iterator[tuple[str, str]]:
    refusal = receipt.refusal
    yield "command", receipt.command
    yield "code", f"{refusal.code}, exit {receipt.exit}"
    yield "where", f"{refusal.where} on {refusal.host}"
    yield "expected", refusal.expected
    yield "found", refusal.found
    yield "contacted", "another machine was spoken to" if receipt.contacted else "no machine"
    yield "left", refusal.left
    yield "next", refusal.next


def _incident(receipt: Incident) -> Iterator[tuple[str, str]]:
    yield "what", receipt.what
    yield "state", receipt.state
    yield "HOLD", f"{receipt.hold_id}, fence {receipt.fence}"
    for one in receipt.survivors:
        yield "survivor", f"process {one.pid}, state {one.state}"
    for text in receipt.unproven:
        yield "not proven", text
    lines = "torn at its end" if receipt.journal_torn else "whole"
    yield "journal", f"{len(receipt.journal)} lines, {lines}"


_TOLD: Final[dict[type, Callable[[Any], Iterator[tuple[str, str]]]]] = {
    WholeWorker: _whole_worker,
    Preparation: _preparation,
    RefusalReceipt: _refusal,
    Incident: _incident,
}
