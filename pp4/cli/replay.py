"""``pp4 replay``: frozen held-out inputs through the producer and the verifier."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from pp4.cli import completing
from pp4.cli.call import AsJson, call_of
from pp4.config import INTERPRETED, ON_GPUS
from pp4.errors import Exit, UsageError, WrongError

_PROGRAM: Final = "pp4.engine.replay.program"
_DEFAULT: Final = "run"


class _FileFirst(TyperGroup):
    """Takes a first word that names no command for the file to replay."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the name of the default command in front of everything else."""
        named = bool(args) and (args[0] in self.commands or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if named else [_DEFAULT, *args])


replay = typer.Typer(
    cls=_FileFirst,
    subcommand_metavar="HELDOUT | make-heldout ...",
    help="Replay frozen held-out inputs (pp4 replay HELDOUT), or make such a file.",
)
_LIMIT_S: Final = 600
Limit = Annotated[int, typer.Option(min=1, max=86_400, help="Seconds until it is given up.")]


@replay.command(_DEFAULT)
def run(
    context: typer.Context,
    heldout: Annotated[
        Path,
        typer.Argument(
            metavar="HELDOUT",
            help="A file of pp4 replay make-heldout.",
            autocompletion=completing.heldout,
        ),
    ],
    device: Annotated[
        str, typer.Option(help="interpreter (on a CPU) or cuda: where the kernel runs.")
    ] = "interpreter",
    part: Annotated[
        int | None,
        typer.Option(help="Replay so many blocks; all on a GPU, 16 in an interpreter otherwise."),
    ] = None,
    limit_s: Limit = _LIMIT_S,
    as_json: AsJson = False,
) -> int:
    """Replay a file (the word run may be left out): acceptance, truncation loss and digests."""
    found = _asked(
        "replay",
        {"heldout": str(heldout), "device": device, "part": part},
        ON_GPUS if device == "cuda" else INTERPRETED,
        limit_s,
    )
    call_of(context).console.replay(found)
    return Exit.DONE


@replay.command("make-heldout")
def make_heldout(
    context: typer.Context,
    target: Annotated[Path, typer.Option(help="Directory of the target.")],
    drafter: Annotated[Path, typer.Option(help="Directory of the drafter.")],
    tokens: Annotated[
        Path, typer.Option(help="JSON list of held-out documents, each a list of token ids.")
    ],
    out: Annotated[Path, typer.Option(help="The file to make; it must not exist.")],
    documents: Annotated[int, typer.Option(help="Documents, each long enough.")] = 8,
    blocks: Annotated[int, typer.Option(help="Blocks of each document.")] = 4,
    length: Annotated[int, typer.Option(help="Tokens that are kept of each document.")] = 96,
    device: Annotated[str, typer.Option(help="cpu or cuda: where both models run.")] = "cpu",
    limit_s: Limit = _LIMIT_S,
    as_json: AsJson = False,
) -> int:
    """Make a held-out file of a target, its drafter and text that neither has seen."""
    asked = {
        "target": str(target),
        "drafter": str(drafter),
        "tokens": str(tokens),
        "out": str(out),
        "documents": documents,
        "blocks": blocks,
        "length": length,
        "device": device,
    }
    found = _asked("make", asked, ON_GPUS if device == "cuda" else INTERPRETED, limit_s)
    call_of(context).console.facts(found)
    return Exit.DONE


def _asked(
    verb: str, arguments: Mapping[str, object], environment: Mapping[str, str], limit_s: int
) -> Mapping[str, object]:
    """Ask another process: this one may not import the side that drafts."""
    from pp4.run.machine import ask_machine
    from pp4.run.receipt import require_packages

    require_packages("pp4 replay")
    argv = [sys.executable, "-P", "-m", _PROGRAM, verb, json.dumps(arguments)]
    kinds = {int(Exit.WRONG): WrongError, int(Exit.USAGE): UsageError}
    return ask_machine(argv, limit_s=limit_s, environment=environment, kinds=kinds, where=_PROGRAM)
