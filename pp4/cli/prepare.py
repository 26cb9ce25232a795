"""``pp4 prepare``: stage a reviewed runner tree for an experiment."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pp4.cli.call import AsJson, call_of
from pp4.errors import Exit


def prepare(
    context: typer.Context,
    manifest: Annotated[
        Path,
        typer.Argument(metavar="MANIFEST", help="TOML, such as launch/manifests/runner.toml."),
    ],
    out: Annotated[
        Path, typer.Option(metavar="TREE", help="Directory to make; it must not exist.")
    ],
    source: Annotated[
        Path | None,
        typer.Option(metavar="TREE", help="The reviewed tree; that of the manifest otherwise."),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Stage a reviewed tree: each package and passage replaced exactly once, guards kept."""
    from pp4.launch.prepare import prepare as staged

    call_of(context).console.facts(staged(manifest, source, out).as_dict())
    return Exit.DONE
