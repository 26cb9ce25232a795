"""Cross-checks of receipts that carry gates: do verdict, arms and journal tell one story?

Every function returns checks and raises nothing; each check stands for itself, so that one
failure never hides another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from pp4.errors import Code
from pp4.receipts.checks import Check, compare, require
from pp4.receipts.gates import Arm, GateBody, JournalLine, Qualification, Rehearsal, Solo
from pp4.receipts.hardware_checks import hardware_checks
from pp4.receipts.journal import first_break, head
from pp4.receipts.plan_checks import plan_checks
from pp4.receipts.substance import reference_checks, substance_checks

REQUIRED_GATES: Final[Mapping[str, tuple[int, ...]]] = {
    "kernels": (0, 1, 2, 3, 4, 5, 7),
    "full": (0, 1, 2, 3, 4, 5, 6, 7),
    # One GPU has no peer that could time out, and is itself what gate 6 compares with.
    "solo": (0, 1, 2, 3, 4, 7),
}
GOOD_VERDICTS: Final = frozenset({"qualified", "rehearsed"})

GateReceipt = Rehearsal | Qualification | Solo


def arms_of(receipt: GateBody) -> Iterator[tuple[str, Arm]]:
    """Yield ``gate-N/arm`` with each arm, in the order of the receipt."""
    for gate in receipt.gates:
        for arm in gate.arms:
            yield f"gate-{gate.gate}/{arm.arm}", arm


def gate_checks(receipt: GateReceipt) -> list[Check]:
    """Return every cross-check of a receipt with gates."""
    good = receipt.verdict in GOOD_VERDICTS
    checks = journal_checks(receipt.journal, receipt.hold.journal_head)
    checks += [
        _gates_present(receipt),
        _arms_present(receipt),
        _names_unique(receipt),
        _controls_caught(receipt),
        _verdict(receipt),
        _numbers(receipt),
        _plan(receipt),
        *plan_checks(receipt, receipt.kind, receipt.scope),
        *substance_checks(receipt, good=good),
    ]
    if isinstance(receipt, Rehearsal):
        checks += _rehearsed(receipt)
    else:
        checks += hardware_checks(receipt, good=good)
    if isinstance(receipt, Qualification) and good:
        checks += reference_checks(receipt)
    return checks


def journal_checks(lines: Sequence[JournalLine], journal_head: str | None) -> list[Check]:
    """Return the checks of the chain; without ``journal_head`` only the links are checked."""
    raw = [line.model_dump(mode="json") for line in lines]
    broken = first_break(raw)
    if broken is None:
        text = f"{len(raw)} lines, each with the hash of the one before"
        checks = [require("journal-chain", Code.JOURNAL_CHAIN, True, text, text)]
    else:
        place = f"line {broken.index}: "
        checks = [
            require(
                "journal-chain",
                Code.JOURNAL_CHAIN,
                False,
                place + broken.expected,
                place + broken.found,
            )
        ]
    if journal_head is not None:
        checks.append(compare("journal-head", Code.JOURNAL_CHAIN, head(raw), journal_head))
    return checks


def _gates_present(receipt: GateReceipt) -> Check:
    expected = REQUIRED_GATES[receipt.scope]
    found = tuple(gate.gate for gate in receipt.gates)
    return compare("gates-present", Code.GATE_NOT_RUN, expected, found)


def _arms_present(receipt: GateReceipt) -> Check:
    poor = []
    for gate in receipt.gates:
        passes = any(arm.expected == "pass" and arm.gating for arm in gate.arms)
        controls = any(arm.expected != "pass" and arm.gating for arm in gate.arms)
        if not passes:
            poor.append(f"gate {gate.gate}: no arm that must pass")
        if not controls:
            poor.append(f"gate {gate.gate}: no gating arm that must be caught")
    expected = "in every gate an arm that must pass and one that must be caught"
    return require(
        "arms-present", Code.GATE_NOT_RUN, not poor, expected, "; ".join(poor) or expected
    )


def _names_unique(receipt: GateReceipt) -> Check:
    counts = Counter(name for name, _ in arms_of(receipt))
    twice = sorted(name for name, count in counts.items() if count > 1)
    return require(
        "arm-names", Code.CROSS_CHECK, not twice, "each arm once", f"twice: {twice or 'none'}"
    )


def _controls_caught(receipt: GateReceipt) -> Check:
    missed = [
        f"{name} expected {arm.expected}, found {arm.found}"
        for name, arm in arms_of(receipt)
        if arm.gating and arm.expected != "pass" and arm.found != arm.expected
    ]
    # A run that already says it failed may carry a missed control: that is its finding, and the
    # receipt is honest about it.  Only a good verdict turns it into a lie.
    holds = not missed or receipt.verdict not in GOOD_VERDICTS
    return require(
        "controls-caught",
        Code.CONTROL_NOT_CAUGHT,
        holds,
        "every gating control caught, or a verdict that says otherwise",
        "; ".join(missed) or "every gating control caught",
    )


def _verdict(receipt: GateReceipt) -> Check:
    unlike = [
        f"{name} {arm.found}"
        for name, arm in arms_of(receipt)
        if arm.gating and arm.found != arm.expected
    ]
    refuted = [text for text in unlike if " not_run(" not in text]
    verdict = receipt.verdict
    if verdict in GOOD_VERDICTS:
        holds, expected = not unlike, f"{verdict} only with every gating arm as expected"
    elif verdict == "unclean":
        # Something may still run although every arm came out right: teardown is not an arm.
        holds, expected = True, "unclean with any arms"
    elif verdict == "wrong":
        holds, expected = bool(refuted), "wrong only with an arm that ran and came out otherwise"
    elif verdict == "timeout":
        holds, expected = bool(unlike), "timeout only with an arm that did not come out"
    else:
        holds = bool(unlike) and not refuted
        expected = f"{verdict} only with arms that did not run and none that failed"
    found = f"{verdict} with {len(unlike)} gating arms otherwise: {'; '.join(unlike) or 'none'}"
    return require("verdict", Code.CROSS_CHECK, holds, expected, found)


def _numbers(receipt: GateReceipt) -> Check:
    odd = []
    for name, arm in arms_of(receipt):
        ran = not arm.found.startswith("not_run(")
        if ran and arm.repetitions == 0:
            odd.append(f"{name} {arm.found} after 0 repetitions")
        if arm.found == arm.expected and int(arm.elapsed_ns) > int(arm.limit_ns):
            odd.append(f"{name} took {arm.elapsed_ns} ns of {arm.limit_ns} ns")
    expected = "findings rest on repetitions and stay within their limits"
    return require("arm-numbers", Code.CROSS_CHECK, not odd, expected, "; ".join(odd) or expected)


def _plan(receipt: GateReceipt) -> Check:
    """Compare the journal's steps with the arms, in order.

    An arm that did not run may be absent from the journal, or have begun without an end.
    """
    steps = [
        (line.event, line.step, line.found)
        for line in receipt.journal
        if line.event in ("begin", "end") and line.step.startswith("gate-")
    ]
    position = 0
    for name, arm in arms_of(receipt):
        wanted = [("begin", name, None), ("end", name, arm.found)]
        for want in wanted:
            if position < len(steps) and steps[position] == want:
                position += 1
            elif arm.found.startswith("not_run("):
                break
            else:
                found = _line(steps[position]) if position < len(steps) else "the end"
                return require("journal-plan", Code.PLAN_MISMATCH, False, _line(want), found)
    rest = steps[position:]
    expected = f"{position} lines of steps, in the order of the arms, and no other"
    return require(
        "journal-plan", Code.PLAN_MISMATCH, not rest, expected, _line(rest[0]) if rest else expected
    )


def _line(step: tuple[str, str, str | None]) -> str:
    event, name, found = step
    return f"{event} {name}" + (f" {found}" if found is not None else "")


def _rehearsed(receipt: Rehearsal) -> list[Check]:
    """Hold a rehearsal to what it is: it rests on nothing about hardware."""
    hardware = [
        f"{reference.kind} as {reference.role}"
        for reference in receipt.evidence
        if reference.kind not in ("rehearsal", "refusal", "incident")
    ]
    return [
        require(
            "rehearsal-evidence",
            Code.WRONG_ROLE,
            not hardware,
            "a rehearsal that rests on nothing about hardware",
            "; ".join(hardware) or "none",
        ),
    ]
