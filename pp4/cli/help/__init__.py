"""What ``--help`` says of each command, in one table, and the order in which commands are listed.

The table lies beside the commands and not in them: an option is explained where it is read, what a
command needs and leaves where a newcomer looks for it.  A test fails for a command without an
entry, and for an entry without a command.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import typer
from typer.core import TyperGroup
from typer.main import get_command_name

from pp4.cli.help.fleets import HELP as _FLEETS
from pp4.cli.help.hosts import HELP as _HOSTS
from pp4.cli.help.measuring import HELP as _MEASURING
from pp4.cli.help.page import Help
from pp4.cli.help.qualifying import HELP as _QUALIFYING
from pp4.cli.help.receipts import HELP as _RECEIPTS
from pp4.cli.help.workers import HELP as _WORKERS

__all__ = ["HELP", "LINES", "SECTIONS", "ByPath", "Help", "attach", "commands"]

HELP: Final[Mapping[str, Help]] = {
    **_QUALIFYING,
    **_MEASURING,
    **_RECEIPTS,
    **_HOSTS,
    **_WORKERS,
    **_FLEETS,
}
"""What is said of each command, by its words after ``pp4``."""

SECTIONS: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("Rehearse, without a GPU", ("doctor", "pair-qualify --dry-run")),
    ("Qualify", ("solo-qualify", "pair-qualify", "fleet")),
    ("Measure", ("measure", "report", "replay")),
    ("Verify, offline and on any machine", ("verify-receipt", "receipts", "status", "gate")),
    ("Operate", ("worker", "hold", "host", "drafter", "prepare", "explain")),
)
"""Commands along the path of a user; a row may name a command with an option."""

LINES: Final[Mapping[str, str]] = {
    "pair-qualify --dry-run": "Every gate on this CPU; a receipt that opens nothing",
    "fleet": "Many hosts of several GPUs: pairs, Slurm, suspects",
    "measure": "OFF against ON on a qualified pair, in two HOLDs",
    "receipts": "At a glance, as a tree, as copies for others",
    "replay": "How many drafted tokens a target accepts, offline",
    "worker": "Draft over a socket; ask a worker how it is",
    "hold": "HOLDs of a host: look, close, recover, clear",
    "host": "What a host needs before HOLDs are opened on it",
    "drafter": "What a drafter's checkpoint holds",
}
"""The lines of rows that have no entry in the table above."""


class ByPath(TyperGroup):
    """Lists commands along the path of a user, whatever order they were made in."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the sections; what stands in none of them comes last."""
        listed = {row.split()[0] for _, rows in SECTIONS for row in rows}
        rest = tuple(name for name in self.list_commands(ctx) if name not in listed)
        sections = (*SECTIONS, *((("More", rest),) if rest else ()))
        # one column for all of them, so that the eye finds the text
        widest = max(len(row) for _, rows in sections for row in rows)
        for title, rows in sections:
            with formatter.section(title):
                formatter.write_dl([(row.ljust(widest), self._line(row)) for row in rows])

    def _line(self, row: str) -> str:
        return LINES[row] if row in LINES else self.commands[row].get_short_help_str()


def attach(app: typer.Typer) -> None:
    """Give every command of an application its line and its page; called once all are there."""
    for path, command in commands(app):
        said = HELP.get(path)
        if said is not None:
            command.short_help, command.epilog = said.short, said.epilog
    for group in app.registered_groups:
        # a shell that completes shows it too
        group.short_help = LINES.get(group.name or "", group.short_help)


def commands(app: typer.Typer, above: str = "") -> Iterator[tuple[str, Any]]:
    """Every command below an application, by its words, as typer has registered it."""
    for command in app.registered_commands:
        name = command.name or get_command_name(getattr(command.callback, "__name__", ""))
        yield f"{above}{name}", command
    for group in app.registered_groups:
        if group.typer_instance is not None:
            yield from commands(group.typer_instance, f"{above}{group.name} ")
