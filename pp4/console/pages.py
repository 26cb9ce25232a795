"""A page of ``pp4 explain`` in lines: whole ones for a program, filled ones for a terminal."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pp4.explain import Page

WIDEST: Final = 100
"""Columns; the eye loses lines that are longer, however wide a terminal is."""
_INDENT: Final = 11
_COMMAND: Final = re.compile(r"`[^`]*`")
_BLANK: Final = "\x00"


def lines(page: Page, width: int | None) -> list[str]:
    """Return the lines of a page.

    Args:
        page: what is shown.
        width: columns of a terminal; None for a line of each part, as long as it is.
    """
    found = [str(page.code)]
    for title, text in (("cause", page.cause), ("left", page.left), ("way out", page.way_out)):
        first = f"  {title:<8} "
        found += [first + text] if width is None else _filled(first, text, min(width, WIDEST))
    return found


def _filled(first: str, text: str, width: int) -> list[str]:
    """Fill lines; a command stays in one piece, so that it can be copied."""
    whole = _COMMAND.sub(lambda command: command.group().replace(" ", _BLANK), text)
    filled = textwrap.wrap(
        whole,
        width,
        initial_indent=first,
        subsequent_indent=" " * _INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_BLANK, " ") for line in filled]
