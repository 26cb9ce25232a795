"""``pp4 report``: receipts drawn for people."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pp4.cli import completing
from pp4.cli.call import AsJson, call_of
from pp4.errors import Exit

if TYPE_CHECKING:
    from pp4.receipts.figures import Figures
    from pp4.receipts.runs import Measurement


def report(
    context: typer.Context,
    receipts: Annotated[
        list[Path],
        typer.Argument(
            metavar="RECEIPT...",
            help="Receipts of any kind, and their evidence.",
            autocompletion=completing.receipts,
        ),
    ],
    html: Annotated[
        Path | None,
        typer.Option(help="File for a self-contained page (pp4[report]); it must not exist."),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Draw receipts, verified first: a table here, and one page that is readable offline."""
    from pp4.receipts.store import write_new
    from pp4.report.document import document
    from pp4.report.given import read
    from pp4.report.packages import require_page

    if html is not None:
        require_page()
    made = document(read(receipts), _describe)
    if html is not None:
        from pp4.report.page import page

        write_new(html, page(made))
    call_of(context).console.drawn(made, html)
    return Exit.DONE


def _describe(halves: Sequence[Measurement]) -> Figures:
    """Compute the figures of every cell; without numpy those that are about chance are left out."""
    from importlib.util import find_spec

    from pp4.measure.describing import describe

    if find_spec("numpy") is None:
        return describe(halves)
    from pp4.measure.statistics import interval

    return describe(halves, interval)
