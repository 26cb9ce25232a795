"""What every command gets, and what most of them take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from pp4.config import Settings
from pp4.console import Console

AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]


@dataclass(slots=True)
class Call:
    """What every command gets.

    Attributes:
        settings: of this call.
        console: of this call.
        running: whether something that the command started may still run.
    """

    settings: Settings
    console: Console
    running: bool = False


def call_of(context: typer.Context) -> Call:
    """The call that a command belongs to."""
    call = context.obj
    if not isinstance(call, Call):
        raise TypeError("pp4 commands are started through pp4.cli.main")
    return call
