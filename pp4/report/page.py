"""One self-contained page: no script, nothing from anywhere else, readable offline and in print."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from pp4.report.document import Document
from pp4.report.evidence import missing
from pp4.report.layout import Part, Section
from pp4.report.measured import part_of
from pp4.report.others import budget_section, gates_section, head_of, plain_section
from pp4.report.palette import DARK, LIGHT, variables
from pp4.report.words import typeset

_TEMPLATES: Final = Path(__file__).parent / "templates"


def page(document: Document) -> bytes:
    """Draw a report.

    Args:
        document: what it says.

    Returns:
        the page as UTF-8; equal documents give equal bytes.
    """
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES, encoding="utf-8"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    parts = list(_parts(document))
    environment.filters.update(typeset=_typeset, name=_name)
    text = environment.get_template("page.html.j2").render(
        parts=parts,
        title=f"{parts[0].head.word}: {parts[0].head.eyebrow}",
        limits=document.limits,
        count=document.count,
        chain=document.chain,
        missing=missing(document.chain),
        light=Markup(variables(LIGHT)),
        dark=Markup(variables(DARK)),
        style=Markup((_TEMPLATES / "page.css").read_text("utf-8")),
    )
    return text.encode("utf-8")


def _parts(document: Document) -> Iterator[Part]:
    """Yield the parts of a page: one a comparison; what else there is stands in the last one."""
    rest = tuple(_rest(document))
    if not document.comparisons:
        yield Part(head_of(document), rest)
        return
    marks = ("" if number == 0 else f"c{number}-" for number in range(len(document.comparisons)))
    *earlier, last = [part_of(*both) for both in zip(document.comparisons, marks, strict=True)]
    yield from earlier
    yield Part(last.head, (*last.sections, *rest))


def _rest(document: Document) -> Iterator[Section]:
    halves = {
        (half.hold.id, half.hold.fence): "first" if half.half == "A1B1" else "second"
        for comparison in document.comparisons
        for half in comparison.receipts
    }
    for number, gates in enumerate(document.gates):
        hold = gates.receipt.hold
        held = halves.get((hold.id, hold.fence), "")
        yield gates_section(
            gates, number, held if gates.given.receipt.kind == "qualification" else ""
        )
    for number, budget in enumerate(document.budgets):
        yield budget_section(budget, number)
    for number, plain in enumerate(document.plain):
        yield plain_section(plain, number)


def _typeset(text: str) -> Markup:
    """Escape a text of our own and set its numbers."""
    return Markup(typeset(str(escape(_visible(text)))))


def _name(file: str) -> str:
    """Name a file without the directories of whoever drew the page."""
    return PurePath(file).name or file


def _visible(value: object) -> object:
    """Spell out what a reader could not see: names in receipts come from strangers."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in value)
