"""What the receipts of a fleet say together: pairs, suspects, what is missing, exit code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Final

from pp4.errors import Code, Exit, Refusal, UsageError
from pp4.fleet.evidence import Known, Reading, collect, receipts_in
from pp4.fleet.plan import Node, Plan, read_plan
from pp4.fleet.slurm import RUN, Body, read_run
from pp4.fleet.triangulation import ALL, Suspect, triangulate

WORDS: Final = {True: "passed", False: "failed", None: "unknown"}
_REHEARSAL: Final = (
    "these are rehearsals on the nodes' CPUs: nothing here is about any GPU, whatever is named"
)


@dataclass(frozen=True, slots=True)
class NodeReport:
    """One node.

    Attributes:
        node: of the plan.
        known: of each of its pairs.
        suspects: what its failed pairs point at.
    """

    node: Node
    known: tuple[Known, ...]
    suspects: tuple[Suspect, ...]

    def count(self, passed: bool | None) -> int:
        """Return how many pairs passed, failed, or are unknown."""
        return sum(one.passed is passed for one in self.known)

    @property
    def unjudged(self) -> tuple[int, ...]:
        """GPUs of which no pair was judged: nothing is known of them."""
        judged = {gpu for one in self.known if one.passed is not None for gpu in one.pair}
        return tuple(gpu for gpu in range(self.node.gpus) if gpu not in judged)


@dataclass(frozen=True, slots=True)
class FleetReport:
    """All nodes of a plan.

    Attributes:
        body: the kind of receipt that was looked for.
        nodes: in the order of the plan.
        strays: receipts that are about no planned pair.
    """

    body: Body
    nodes: tuple[NodeReport, ...]
    strays: tuple[Reading, ...]

    @property
    def exit(self) -> Exit:
        """0: every pair passed; 1: a pair failed, or a receipt was changed; 4: some are unknown."""
        known = [one for node in self.nodes for one in node.known]
        readings = [*self.strays, *(reading for one in known for reading in one.readings)]
        if any(one.passed is False for one in known) or any(one.tampered for one in readings):
            return Exit.WRONG
        return Exit.DONE if all(one.passed for one in known) else Exit.INCONCLUSIVE

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the report has to know of it."""
        said = [_REHEARSAL] if self.body == "rehearsal" else []
        for one in self.nodes:
            if one.unjudged:
                gpus = ", ".join(one.node.gpu(gpu) for gpu in one.unjudged)
                said.append(f"{one.node.name}: no pair with GPU {gpus} was judged")
        return tuple(said)

    def as_dict(self) -> dict[str, object]:
        """Return plain values for ``--json``."""
        return {
            "exit": int(self.exit),
            "body": self.body,
            "nodes": [_node_record(one) for one in self.nodes],
            "strays": [_reading_record(one) for one in self.strays],
            "notes": list(self.notes),
        }


def report(places: Sequence[Path], plan: Path | None = None, share: Fraction = ALL) -> FleetReport:
    """Read what a fleet left, and say who is suspect.

    Args:
        places: the directory of a run (``pp4 fleet emit``), directories of receipts, receipts.
        plan: the plan's file, where no directory of a run is given.
        share: see :func:`pp4.fleet.triangulation.triangulate`.

    Raises:
        UsageError: no plan, or more than one.
        Pp4Error: what reading the plan refuses; ``UNREADABLE``, a place cannot be listed.
        BadInputError: a share that means nothing.
    """
    runs = [place for place in places if (place / RUN).exists()]
    if len(runs) + (plan is not None) != 1:
        found = ", ".join(map(str, [*runs, *([plan] if plan else [])])) or "neither"
        expected = f"one directory with a {RUN}, or --plan FILE and receipts"
        raise UsageError(
            Refusal(Code.USAGE, "pp4 fleet report", expected, found, next="pp4 fleet report --help")
        )
    files = [
        path
        for place in places
        if place not in runs
        for path in (receipts_in(place) if place.is_dir() else [place])
    ]
    if plan is not None:
        return judged(read_plan(plan), "qualification", None, files, share)
    run = read_run(runs[0])
    return judged(run.plan, run.body, runs[0], files, share)


def judged(
    plan: Plan, body: Body, directory: Path | None, files: Sequence[Path], share: Fraction = ALL
) -> FleetReport:
    """Judge a plan by what :func:`pp4.fleet.evidence.collect` finds.

    Raises:
        RefusedError: ``UNREADABLE``.
        BadInputError: a share that means nothing.
    """
    known, strays = collect(plan, body, directory, files)
    nodes = []
    for node in plan.nodes:
        own = tuple(one for one in known if one.node == node.name)
        suspects = triangulate({one.pair: one.passed for one in own}, share)
        nodes.append(NodeReport(node, own, tuple(suspects)))
    return FleetReport(body, tuple(nodes), tuple(strays))


def _node_record(one: NodeReport) -> dict[str, object]:
    node = one.node
    return {
        "name": node.name,
        "gpus": node.gpus,
        "uuids": list(node.uuids),
        "passed": one.count(True),
        "failed": one.count(False),
        "unknown": one.count(None),
        "unjudged": list(one.unjudged),
        "suspects": [_suspect_record(node, suspect) for suspect in one.suspects],
        "pairs": [
            {
                "gpus": list(known.pair),
                "result": WORDS[known.passed],
                "says": known.says,
                "receipts": [_reading_record(reading) for reading in known.readings],
            }
            for known in one.known
        ],
    }


def _suspect_record(node: Node, suspect: Suspect) -> dict[str, object]:
    return {
        "kind": suspect.kind,
        "gpus": list(suspect.gpus),
        "uuids": [node.uuids[gpu] for gpu in suspect.gpus] if node.uuids else [],
        "pairs": [list(pair) for pair in suspect.pairs],
        "why": suspect.why,
    }


def _reading_record(reading: Reading) -> dict[str, object]:
    return {
        "file": str(reading.path),
        "result": WORDS[reading.passed],
        "says": reading.says,
        "tampered": reading.tampered,
    }
