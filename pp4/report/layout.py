"""What a page is made of: sections with figures, tables and a sentence each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pp4.report.plots.sheet import Drawing

MOST_PANELS: Final = 16
"""Small figures of one section, more than a measurement has; its tables have the rest."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under a heading.

    Attributes:
        caption: what it is; a screen reader says it first.
        head: names of the columns, with units.
        rows: texts, as many as there are columns.
        words: how many columns from the left are words; the others are numbers.
        marked: rows that are set in bold.
        wraps: whether the last column is long text.
    """

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: int = 1
    marked: frozenset[int] = frozenset()
    wraps: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """A figure with what stands around it.

    Attributes:
        title: above it; empty where the section's is enough.
        note: beside the title.
        drawing: the figure.
        table: below it, always open.
    """

    drawing: Drawing
    title: str = ""
    note: str = ""
    table: Table | None = None


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page with a heading of its own.

    Attributes:
        name: of its place in the page, unique.
        title: heading.
        lead: what a reader takes along.
        panels: figures; several small ones stand side by side.
        tables: always open.
        details: tables that a reader opens.
        notes: sentences below.
        small: whether its figures are small ones, side by side.
        breaks: whether it begins on a page of its own in print.
    """

    name: str
    title: str
    lead: str
    panels: tuple[Panel, ...] = ()
    tables: tuple[Table, ...] = ()
    details: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
    small: bool = False
    breaks: bool = False


@dataclass(frozen=True, slots=True)
class Head:
    """The first thing that is seen.

    Attributes:
        eyebrow: what this is.
        word: the verdict's.
        sentence: what it says.
        figures: its numbers on one line; may be empty.
        because: why that word.
        notes: what has to be known beside it.
        drawing: a scale, where there is one.
        facts: name and text of what it is about.
    """

    eyebrow: str
    word: str
    sentence: str
    figures: str = ""
    because: str = ""
    notes: tuple[str, ...] = ()
    drawing: Drawing | None = None
    facts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Part:
    """Everything about one comparison, or about one other receipt."""

    head: Head
    sections: tuple[Section, ...]
