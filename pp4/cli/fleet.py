"""``pp4 fleet ...``: qualify many hosts of several GPUs, by a scheduler that is there already."""

from __future__ import annotations

import re
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Final

import typer

from pp4.cli import completing
from pp4.cli.call import AsJson, call_of
from pp4.errors import Code, Exit, Refusal, UsageError

fleet = typer.Typer(help="Many hosts of several GPUs: plan pairs, scripts for Slurm, suspects.")
emit = typer.Typer(help="Write what a scheduler runs.")
fleet.add_typer(emit, name="emit")


_SHARE: Final = re.compile(r"1|0\.[0-9]{1,6}", re.ASCII)


class Mode(StrEnum):
    """Which pairs are run."""

    EXHAUSTIVE = "exhaustive"
    QUICK = "quick"


@fleet.command("plan")
def plan(
    context: typer.Context,
    nodes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NODE...]", help="NAME=NUMBER of its GPUs, or NAME=UUID,UUID... of all."
        ),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--nodes", help="A file with one such node on each line.")
    ] = None,
    mode: Annotated[
        Mode,
        typer.Option(
            help="exhaustive: every pair once. quick: two partners for every GPU, which leaves "
            "most links untried and may not tell several faulty GPUs apart."
        ),
    ] = Mode.EXHAUSTIVE,
    minutes: Annotated[
        int, typer.Option(min=1, max=90, help="That the qualification of a pair may take.")
    ] = 15,
    together: Annotated[
        bool,
        typer.Option(
            "--together",
            help="Run the pairs of a round at the same time; one after another otherwise, so that "
            "no pair has another's traffic.",
        ),
    ] = False,
    out: Annotated[Path | None, typer.Option(help="File for the plan; it must not exist.")] = None,
    as_json: AsJson = False,
) -> int:
    """Make rounds of disjoint GPU pairs within each node, and say how long they take."""
    from pp4.fleet.nodes import parse_nodes, read_nodes
    from pp4.fleet.plan import make_plan
    from pp4.receipts.store import write_new

    texts = [(f"node {text.partition('=')[0]!r}", text) for text in nodes or []]
    named = parse_nodes([*texts, *(read_nodes(file) if file else [])])
    made = make_plan(named, mode.value, minutes, together=together)
    if out is not None:
        write_new(out, made.raw())
    call_of(context).console.fleet_plan(made)
    return Exit.DONE


@emit.command("slurm")
def emit_slurm(
    context: typer.Context,
    plan: Annotated[
        Path,
        typer.Argument(
            metavar="PLAN",
            help="A file of pp4 fleet plan --out.",
            autocompletion=completing.receipts,
        ),
    ],
    out: Annotated[
        Path, typer.Option(help="A new directory, which all nodes see under the same path.")
    ],
    pp4: Annotated[
        str, typer.Option("--pp4", help="How the nodes call pp4: a name, or an absolute path.")
    ] = "pp4",
    rehearse: Annotated[
        bool,
        typer.Option(
            "--rehearse", help="Rehearse on the nodes' CPUs, to try the scheduler without GPUs."
        ),
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Write a batch script for each node: an array of exclusive jobs, one after another."""
    from pp4.fleet.plan import read_plan
    from pp4.fleet.slurm import emit as write

    scripts = write(read_plan(plan), out, program=pp4, rehearse=rehearse)
    call_of(context).console.facts({"script": [str(path) for path in scripts]})
    return Exit.DONE


@fleet.command("report")
def report(
    context: typer.Context,
    places: Annotated[
        list[Path],
        typer.Argument(
            metavar="PLACE...",
            help="The directory of a run; receipts, or directories of them, with --plan.",
            autocompletion=completing.receipts,
        ),
    ],
    plan: Annotated[
        Path | None,
        typer.Option(help="The plan that receipts belong to.", autocompletion=completing.receipts),
    ] = None,
    share: Annotated[
        str,
        typer.Option(
            help="A GPU that passed with some is suspect once it failed this share of its pairs; "
            "1: never."
        ),
    ] = "1",
    as_json: AsJson = False,
) -> int:
    """Verify the receipts of a fleet, and name the GPUs, links and nodes that are suspect."""
    from pp4.fleet.report import report as read

    found = read(places, plan, _fraction(share))
    call_of(context).console.fleet_report(found)
    return int(found.exit)


def _fraction(text: str) -> Fraction:
    from pp4.receipts.canonical import shown

    if not _SHARE.fullmatch(text):
        where = "pp4 fleet report --share"
        raise UsageError(Refusal(Code.USAGE, where, "1, or a number such as 0.75", shown(text)))
    return Fraction(text)
