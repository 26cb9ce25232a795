"""``pp4 receipts ...``: receipts at a glance, chains of evidence, copies for others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pp4.cli import completing
from pp4.cli.call import AsJson, call_of
from pp4.errors import Exit

receipts = typer.Typer(help="Receipts at a glance, chains of evidence, copies for others.")


@receipts.command("table")
def table(
    context: typer.Context,
    places: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[PLACE...]",
            help="Receipts, or directories of them; those kept on this machine otherwise.",
            autocompletion=completing.receipts,
        ),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """List receipts, newest first, each verified by itself.

    Exit code 1 where one contradicts itself, 3 where a file is no receipt that will do.
    """
    from pp4.qualify.standing import kept, receipts_in
    from pp4.report.listing import rows

    call = call_of(context)
    paths = receipts_in(places) if places else kept(call.settings.state_dir)
    found, code = rows(paths)
    call.console.receipts_table(found, code)
    return int(code)


@receipts.command("tree")
def tree(
    context: typer.Context,
    places: Annotated[
        list[Path],
        typer.Argument(
            metavar="PLACE...",
            help="Receipts whose evidence is asked for, and directories in which it is looked for.",
            autocompletion=completing.receipts,
        ),
    ],
    as_json: AsJson = False,
) -> int:
    """Show what receipts rest on, by the digests that are found; missing links are said.

    Exit code 1 where a receipt that was found does not verify, 4 where one is missing.
    """
    from pp4.qualify.standing import receipts_in
    from pp4.report.evidence import missing
    from pp4.report.listing import chain

    named = [place for place in places if not place.is_dir()]
    links = chain(named, receipts_in([place for place in places if place.is_dir()]))
    call_of(context).console.receipts_tree(links)
    if not all(link.intact for root in links for link in root.every()):
        return Exit.WRONG
    return Exit.INCONCLUSIVE if missing(links) else Exit.DONE


@receipts.command("export")
def export(
    context: typer.Context,
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="The receipt.", autocompletion=completing.receipts),
    ],
    out: Annotated[Path, typer.Option(help="File for the copy; it must not exist.")],
    redact: Annotated[
        bool,
        typer.Option(
            "--redact", help="Black out host names, UUIDs and PCI ids; it still verifies."
        ),
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Copy a receipt that verifies, with the names of machines blacked out where asked.

    The copy keeps its digest, not its file hash: receipts that rest on it, and its signature,
    belong to the open one.
    """
    from pp4.receipts.digests import file_digest
    from pp4.receipts.export import exported
    from pp4.receipts.store import write_new

    raw = exported(file, redacted=redact)
    write_new(out, raw)
    call_of(context).console.facts(
        {"copy": str(out), "redacted": redact, "sha256": file_digest(raw)}
    )
    return Exit.DONE
