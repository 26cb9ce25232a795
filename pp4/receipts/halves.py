"""Whether two halves belong together: what both must share, and what the second says of the first.

One list of checks for whoever verifies the receipts and for whoever sums them up.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Final

from pp4.errors import Code
from pp4.receipts.bindings import facts_of, mismatch
from pp4.receipts.cells import PRIMARY
from pp4.receipts.checks import Check, compare, require, skipped
from pp4.receipts.envelope import OpenLeaf
from pp4.receipts.gates import Qualification
from pp4.receipts.measurement_checks import other_greedy_outputs, other_rounds
from pp4.receipts.measurement_journal import same_models
from pp4.receipts.models import Receipt
from pp4.receipts.ratios import drift_of, effect_of, log_ratio, paired, spelled
from pp4.receipts.runs import Measurement

_SHARED: Final = ("model_sha256", "settings", "gpu_models", "drivers", "libraries", "kernels")


def belong_together(first: Measurement, second: Measurement, first_sha256: str) -> list[Check]:
    """Return the checks of two halves.

    Args:
        first: the half A1B1.
        second: the half B2A2.
        first_sha256: of the file that holds the first.
    """
    halves = (first.half, second.half)
    complete = (first.complete, second.complete)
    named = [one.sha256 for one in second.evidence if one.role == "first_half"]
    sources = (first.source.digest, second.source.digest)
    return [
        compare("halves", Code.WRONG_ROLE, ("A1B1", "B2A2"), halves),
        compare("halves-complete", Code.NOT_PROVEN, (True, True), complete),
        compare("rests-on-first", Code.EVIDENCE_MISMATCH, [first_sha256], named),
        compare("same-source", Code.EVIDENCE_MISMATCH, *sources),
        *shared(first, second, _SHARED),
        same_models([first, second]),
        same_pair(first, second),
        _same_endpoint(first, second),
        _closed(first, second),
        *_rounds(first, second),
    ]


def summary_of_rounds(first: Measurement, second: Measurement) -> list[Check]:
    """Return the checks of the second half's summary against the rounds of both.

    Effect and drift are exact means and are computed here; the interval needs a bootstrap, and is
    left to ``pp4 measure summary``.
    """
    summary = second.summary
    if summary is None:
        return []
    halves = primary_ratios([first, second])
    if not all(halves):
        found = "no paired rounds of the primary cell"
        return [require("summary-effect", Code.CROSS_CHECK, False, "paired rounds", found)]
    expected = "the interval of a bootstrap over these rounds"
    again = "not computed: pp4 measure summary does"
    return [
        compare("summary-effect", Code.CROSS_CHECK, spelled(effect_of(halves)), summary.effect),
        compare("summary-drift", Code.CROSS_CHECK, spelled(drift_of(halves)), summary.drift),
        skipped("summary-bootstrap", Code.CROSS_CHECK, expected, again),
    ]


def primary_ratios(halves: Sequence[Measurement]) -> list[list[int]]:
    """Return the log ratios of the primary cell in each half, in billionths, by index."""
    batch, temperature = PRIMARY
    return [
        [log_ratio(pair) for pair in paired(half.arms, batch, str(temperature))] for half in halves
    ]


def shared(
    first: Receipt, second: Receipt, names: Sequence[str], where: str = "in both halves"
) -> list[Check]:
    """Return a check for each fact that two receipts must have in common.

    Args:
        first: a receipt.
        second: another one.
        names: facts, by the names of :class:`pp4.receipts.bindings.Subject`.
        where: they have to be the same, for people.
    """
    one, other = facts_of(first), facts_of(second)
    expected = f"the same {where}"
    checks = []
    for name in names:
        mine, theirs = one.get(name), other.get(name)
        found = None if mine == theirs else mismatch(name, mine, theirs)
        word = f"same-{name.replace('_', '-')}"
        checks.append(
            require(word, Code.EVIDENCE_MISMATCH, found is None, expected, found or expected)
        )
    return checks


def same_pair(first: Measurement | Qualification, second: Measurement) -> Check:
    """Compare the GPUs by UUID, rank by rank, as far as they are open."""
    mine, theirs = _uuids(first), _uuids(second)
    expected = "the same GPUs on the same ranks"
    if None in (*mine, *theirs):
        return skipped("same-pair", Code.EVIDENCE_MISMATCH, expected, "redacted: not compared")
    return compare("same-pair", Code.EVIDENCE_MISMATCH, mine, theirs)


def _uuids(receipt: Measurement | Qualification) -> list[str | None]:
    leaves = [receipt.private.get(gpu.uuid) for gpu in receipt.gpus]
    return [leaf.value if isinstance(leaf, OpenLeaf) else None for leaf in leaves]


def _same_endpoint(first: Measurement, second: Measurement) -> Check:
    one, other = (
        (
            half.endpoint.metric,
            half.endpoint.batch,
            Decimal(half.endpoint.temperature),
            Decimal(half.noise_threshold),
        )
        for half in (first, second)
    )
    return compare("same-endpoint", Code.EVIDENCE_MISMATCH, one, other)


def _closed(first: Measurement, second: Measurement) -> Check:
    """Hold what the second says of the first HOLD's end to that HOLD."""
    closed = second.first_half_closed
    expected = f"HOLD {first.hold.id}, fence {first.hold.fence}, restore done"
    found = (
        "no tombstone"
        if closed is None
        else f"HOLD {closed.hold_id}, fence {closed.fence}, restore {closed.restore}"
    )
    return compare("first-closed", Code.NOT_RESTORED, expected, found)


def _rounds(first: Measurement, second: Measurement) -> list[Check]:
    """Rounds of one index have one cell in both halves, and greedily one right output."""
    pairs = list(zip(first.arms[0].rounds, second.arms[0].rounds, strict=False))
    return [
        compare("same-rounds", Code.EVIDENCE_MISMATCH, [], other_rounds(pairs)),
        compare("same-greedy-outputs", Code.OUTPUT_MISMATCH, [], other_greedy_outputs(pairs)),
    ]
