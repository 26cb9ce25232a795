"""Plans and reports of fleets as rows and lines for a person."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pp4.fleet.plan import Node, Plan
    from pp4.fleet.report import FleetReport
    from pp4.fleet.triangulation import Suspect

ROUNDS = ("nodes", "GPUs", "round", "pairs", "minutes")
NODES = ("result", "node", "GPUs", "pairs", "passed", "failed", "unknown")
SUSPECTS = ("suspect", "node", "which", "failed pairs", "because of")
PAIRS = ("result", "node", "pair", "because of", "receipts")
_SHOWN = 4


def rounds(plan: Plan) -> list[tuple[object, ...]]:
    """Return a row for each round of nodes that have the same ones."""
    alike: dict[tuple[object, ...], list[Node]] = {}
    for node in plan.nodes:
        alike.setdefault(node.rounds, []).append(node)
    return [
        (
            _names([node.name for node in nodes]),
            nodes[0].gpus,
            number,
            " ".join(f"{one}-{other}" for one, other in pairs),
            plan.round_minutes(pairs),
        )
        for nodes in alike.values()
        for number, pairs in enumerate(nodes[0].rounds, start=1)
    ]


def _names(names: list[str]) -> str:
    if len(names) <= _SHOWN:
        return " ".join(names)
    return f"{names[0]} ... {names[-1]} ({len(names)})"


def nodes(report: FleetReport) -> list[tuple[object, ...]]:
    """Return a row for each node."""
    return [
        (
            "fail" if one.count(False) else "missing" if one.count(None) else "pass",
            one.node.name,
            one.node.gpus,
            len(one.known),
            one.count(True),
            one.count(False),
            one.count(None),
        )
        for one in report.nodes
    ]


def suspects(report: FleetReport) -> list[tuple[object, ...]]:
    """Return a row for each suspect."""
    return [
        (
            suspect.kind,
            one.node.name,
            _which(one.node, suspect),
            " ".join(f"{low}-{high}" for low, high in suspect.pairs),
            suspect.why,
        )
        for one in report.nodes
        for suspect in one.suspects
    ]


def _which(node: Node, suspect: Suspect) -> str:
    if suspect.kind == "node":
        return "all of it"
    gpus = suspect.pairs[0] if suspect.kind == "undecided" else suspect.gpus
    return " and ".join(node.gpu(gpu) for gpu in gpus)


def pairs(report: FleetReport) -> list[tuple[object, ...]]:
    """Return a row for each pair that did not pass."""
    return [
        (
            "fail" if known.passed is False else "missing",
            known.node,
            f"{known.pair[0]}-{known.pair[1]}",
            known.says,
            " ".join(str(reading.path) for reading in known.readings),
        )
        for one in report.nodes
        for known in one.known
        if not known.passed
    ]


def lines(report: FleetReport) -> Iterator[str]:
    """Yield what else there is to say."""
    yield from report.notes
    for reading in report.strays:
        yield f"about no planned pair: {reading.path}: {reading.says}"
