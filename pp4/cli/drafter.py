"""``pp4 drafter ...``: checkpoints of drafters."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from pp4.cli.call import AsJson, call_of
from pp4.errors import Exit

drafter = typer.Typer(help="Checkpoints of DSpark drafters.")
_LOOKING: Final = "pp4.drafter.inspection"
_LIMIT_S: Final = 60.0
"""Seconds for reading headers: some 20 KB of a drafter, some MB of a target in many files."""


@drafter.command("inspect")
def inspect(
    context: typer.Context,
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="Directory with config.json and safetensors.")
    ],
    target: Annotated[
        Path | None,
        typer.Option(help="Directory of the target, for what the drafter's checkpoint leaves out."),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Say what a checkpoint holds, which rank gets what, and whether it can draft by sampling."""
    from pp4.run.machine import ask_machine

    # Another process: this one may not import the side that drafts.
    argv = [sys.executable, "-P", "-m", _LOOKING, str(path)]
    found = ask_machine([*argv, *([] if target is None else [str(target)])], limit_s=_LIMIT_S)
    call_of(context).console.checkpoint(found)
    return Exit.DONE
