"""What every receipt of a run of gates has in common: its arms, its kernels, its verdict."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from pathlib import Path

from pp4.errors import Code, Refusal, WrongError
from pp4.hold.open import OpenHold
from pp4.qualify.context import Context
from pp4.qualify.gates import Gate
from pp4.qualify.pair_qualify import VERDICT_EXIT, ArmResult, verdict
from pp4.receipts.digests import Source
from pp4.receipts.hardware_checks import PAIR_KERNEL, SOLO_KERNEL, WORKER_BIAS, WORKER_PAIR
from pp4.run.receipt import Outcome, hold_of, kernel_row, private_of_host
from pp4.run.receipt import store as store_ended

DEFINITION = "dyadic24-floor-first-v1"
WORKER_GATE = 6


def require_answer(context: Context, results: Sequence[ArmResult], command: str) -> None:
    """Refuse to write a receipt about a run in which no rank ever spoke.

    Raises:
        WrongError: ``RANK_DIED`` with what the first arm ran into.
    """
    if not context.record.definition:
        first = results[0].finding.facts.get("refusal", results[0].found)
        raise WrongError(Refusal(Code.RANK_DIED, command, "rank processes that answer", str(first)))


def _gates(results: Sequence[ArmResult], gates: Sequence[Gate]) -> list[dict[str, object]]:
    names = {gate.number: gate.name for gate in gates}
    return [
        {"gate": number, "name": names[number], "arms": [_arm(result) for result in arms]}
        for number, arms in groupby(results, key=lambda result: result.step.gate)
    ]


def _arm(result: ArmResult) -> dict[str, object]:
    return {
        "arm": result.step.arm,
        "expected": result.step.expected,
        "found": result.found,
        "gating": result.step.gating,
        # whatever failed at its first try was tried once
        "repetitions": max(1, result.finding.repetitions),
        "elapsed_ns": str(result.elapsed_ns),
        "limit_ns": str(result.limit_ns),
        "facts": {
            name: list(fact) if isinstance(fact, tuple) else fact
            for name, fact in result.finding.facts.items()
        },
    }


def _kernels(context: Context, names: Collection[str] | None) -> list[dict[str, object]]:
    whole = context.record.whole
    loaded = {
        PAIR_KERNEL: context.record.primed,
        SOLO_KERNEL: context.record.solo,
        WORKER_PAIR: () if whole is None else whole.served.kernels,
        WORKER_BIAS: () if whole is None else whole.served.bias,
    }
    rows = [kernel_row(name, one) for name, ones in loaded.items() for one in ones]
    if context.settings.solo:
        # two processes ran on one device, and a receipt of it has one rank
        rows = [row for row in rows if row["rank"] == 0]
    return [row for row in rows if names is None or row["name"] in names]


def _settings(context: Context, gates: Sequence[Gate]) -> dict[str, object]:
    """Every number of the run; those of a worker where one was run."""
    facts = context.settings.as_facts()
    if any(gate.number == WORKER_GATE for gate in gates):
        facts |= {f"worker_{name}": fact for name, fact in context.whole.as_facts().items()}
    plain = {name: list(fact) if isinstance(fact, tuple) else fact for name, fact in facts.items()}
    return {**plain, **context.record.versions}


def members(
    hold: OpenHold,
    context: Context,
    results: Sequence[ArmResult],
    gates: Sequence[Gate],
    good: str,
    kernels: Collection[str] | None = None,
) -> dict[str, object]:
    """Members that a rehearsal and the receipts of GPUs share.

    Args:
        hold: under which it ran.
        context: what the arms recorded.
        results: every arm of the plan.
        gates: the plan.
        good: the verdict of a run without a fault.
        kernels: names of those that it is about; all that were primed where None.
    """
    return {
        "verdict": verdict(results, good),
        "definition": {"id": DEFINITION, "sha256": context.record.definition},
        "hold": hold_of(hold),
        "settings": _settings(context, gates),
        "gates": _gates(results, gates),
        "kernels": _kernels(context, kernels),
        "libraries": [library.model_dump() for library in context.record.libraries],
        "journal": [dict(line) for line in hold.journal.lines],
        "private": private_of_host(),
    }


def store(body: Mapping[str, object], source: Source, path: Path) -> Outcome:
    """Seal a receipt whose verdict says how the run ended; see :func:`pp4.run.receipt.store`."""
    text = str(body["verdict"])
    return store_ended(body, source, path, text, VERDICT_EXIT[text])
