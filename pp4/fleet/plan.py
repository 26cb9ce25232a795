"""A plan: for each node its rounds of pairs, and how long they take; a value and one file form."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from pp4.fleet import nodes
from pp4.fleet.forms import read_form, validated
from pp4.fleet.rounds import MOST_GPUS, Pair, Round, all_pairs, exhaustive, quick
from pp4.receipts.canonical import dump
from pp4.receipts.envelope import Model

SCHEMA: Final = "pp4-fleet-plan/1"
MOST_MINUTES: Final = 90
"""A HOLD ends after so many minutes, so no qualification takes longer."""
Mode = Literal["exhaustive", "quick"]
Gpu = Annotated[int, Field(ge=0, lt=MOST_GPUS)]


Name = Annotated[str, StringConstraints(pattern=rf"^{nodes.NAME}$")]
Uuid = Annotated[str, StringConstraints(pattern=rf"^{nodes.UUID}$")]


class Node(Model):
    """A node, its GPUs and its rounds.

    Attributes:
        name: as Slurm knows it.
        gpus: how many it has.
        uuids: of GPU 0, 1, ...; empty where only the number is known.
        rounds: disjoint pairs of numbers of GPUs in each, no pair twice.
    """

    name: Name
    gpus: Annotated[int, Field(ge=2, le=MOST_GPUS)]
    uuids: tuple[Uuid, ...]
    rounds: Annotated[tuple[tuple[tuple[Gpu, Gpu], ...], ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _sound(self) -> Self:
        if self.uuids and len(self.uuids) != self.gpus:
            raise ValueError("a node has as many UUIDs as GPUs, or none")
        for pairs in self.rounds:
            busy = [gpu for pair in pairs for gpu in pair]
            if not busy or len(set(busy)) != len(busy):
                raise ValueError("a round has pairs, and no GPU is in two of them")
            if any(one >= other for one, other in pairs) or max(busy) >= self.gpus:
                raise ValueError("a pair has two GPUs of its node, the lower number first")
        if len(set(self.pairs)) != len(self.pairs):
            raise ValueError("a pair is in one round")
        return self

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """Every pair, round by round."""
        return tuple(pair for pairs in self.rounds for pair in pairs)

    def gpu(self, number: int) -> str:
        """Return what a GPU is called: its number, and its UUID where that is known."""
        return f"{number} ({self.uuids[number]})" if self.uuids else str(number)


class Plan(Model):
    """Which pairs of which nodes are qualified when.

    Attributes:
        schema_: version of this form.
        mode: how the rounds were made.
        minutes: that the qualification of a pair may take.
        together: whether the pairs of a round run at the same time, or one after another.
        nodes: each with rounds of its own; nodes do not wait for each other.
    """

    schema_: Literal["pp4-fleet-plan/1"] = Field(alias="schema")
    mode: Mode
    minutes: Annotated[int, Field(ge=1, le=MOST_MINUTES)]
    together: bool
    nodes: Annotated[tuple[Node, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        names = [node.name for node in self.nodes]
        uuids = [uuid for node in self.nodes for uuid in node.uuids]
        if len(set(names)) != len(names) or len(set(uuids)) != len(uuids):
            raise ValueError("a node has a name of its own, and a GPU is in one node")
        return self

    def batches(self, node: Node) -> tuple[Round, ...]:
        """Return what runs at the same time on a node: its rounds, or pair after pair."""
        return node.rounds if self.together else tuple((pair,) for pair in node.pairs)

    def round_minutes(self, pairs: Sequence[Pair]) -> int:
        """Return the most minutes that a round takes."""
        return self.minutes * (1 if self.together else len(pairs))

    def node_minutes(self, node: Node) -> int:
        """Return the most minutes that a node works, without waiting for it."""
        return sum(self.round_minutes(pairs) for pairs in node.rounds)

    @property
    def total_minutes(self) -> int:
        """The most minutes from the first start to the last end, if all nodes are free at once."""
        return max(self.node_minutes(node) for node in self.nodes)

    def raw(self) -> bytes:
        """Return the canonical bytes (RFC 8785) of the plan's file."""
        return dump(self.model_dump(mode="json", by_alias=True), "plan")

    def as_dict(self) -> dict[str, object]:
        """Return the plan and its times as plain values."""
        return {
            "plan": self.model_dump(mode="json", by_alias=True),
            "minutes": {
                "nodes": {
                    node.name: {
                        "rounds": [self.round_minutes(pairs) for pairs in node.rounds],
                        "total": self.node_minutes(node),
                    }
                    for node in self.nodes
                },
                "total": self.total_minutes,
            },
            "notes": list(self.notes),
        }

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the plan has to know of it."""
        said = [
            f"at most {self.total_minutes} minutes from start to end if all nodes are free at "
            f"once, {self.minutes} for each pair, without time in the queue"
        ]
        left = sum(all_pairs(node.gpus) - len(node.pairs) for node in self.nodes)
        if left:
            said.append(
                f"{left} pairs are not run, and nothing will be known of their links; one faulty "
                "GPU in a node is named, several may stay undecided"
            )
        if not all(node.uuids for node in self.nodes):
            said.append("without UUIDs of all GPUs the plan can be rehearsed, and nothing else")
        return tuple(said)


def make_plan(
    named: Sequence[nodes.NamedNode], mode: Mode, minutes: int, *, together: bool
) -> Plan:
    """Make a plan.

    Args:
        named: nodes, each with 2 to 64 GPUs.
        mode: ``exhaustive`` for every pair, ``quick`` for two partners of every GPU.
        minutes: that the qualification of a pair may take, 1 to 90.
        together: whether the pairs of a round run at the same time.

    Raises:
        RefusedError: ``SCHEMA``, what was given makes no plan.
    """
    rounds = exhaustive if mode == "exhaustive" else quick
    tree = {
        "schema": SCHEMA,
        "mode": mode,
        "minutes": minutes,
        "together": together,
        "nodes": [
            {
                "name": node.name,
                "gpus": node.gpus,
                "uuids": list(node.uuids),
                "rounds": [[list(pair) for pair in pairs] for pairs in rounds(node.gpus)],
            }
            for node in named
        ],
    }
    return validated(Plan, dump(tree), "plan")


def read_plan(path: Path) -> Plan:
    """Read the file of a plan.

    Raises:
        RefusedError: it cannot be read, is no JSON, or no plan (``UNKNOWN_VERSION``, ``SCHEMA``).
        WrongError: ``NOT_CANONICAL``: it is spelled otherwise than plans are.
    """
    return read_form(Plan, SCHEMA, path)
