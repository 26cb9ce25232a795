"""What every command gets, and what most of them take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from pp4.config import Settings
from pp4.console import Console

if TYPE_CHECKING:
    from pp4.qualify.reasons import StandingPolicy

AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]
MaxAge = Annotated[
    str | None, typer.Option(help="A qualification ends after: 45 (seconds), 30m, 12h, 90d, 4w.")
]
SameBoot = Annotated[bool, typer.Option("--same-boot", help="A qualification ends with a reboot.")]


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


def standing_policy(max_age: str | None, same_boot: bool) -> StandingPolicy:
    """What ends a qualification, by the options of a command."""
    from pp4.clock import SystemClock, parse_span
    from pp4.qualify.reasons import StandingPolicy

    return StandingPolicy(
        max_age=None if max_age is None else parse_span(max_age, "--max-age"),
        same_boot=same_boot,
        now=SystemClock().wall(),
    )
