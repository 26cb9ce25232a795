"""A page for every code: what caused it, what it leaves behind, and the way out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pp4.errors import Code, Refusal, UsageError
from pp4.explain.commands import PAGES as _COMMANDS
from pp4.explain.drafters import PAGES as _DRAFTERS
from pp4.explain.gates import PAGES as _GATES
from pp4.explain.holds import PAGES as _HOLDS
from pp4.explain.hosts import PAGES as _HOSTS
from pp4.explain.page import Page
from pp4.explain.preparation import PAGES as _PREPARATION
from pp4.explain.receipts import PAGES as _RECEIPTS

__all__ = ["PAGES", "Page", "page"]

PAGES: Final[Mapping[Code, Page]] = {
    **_COMMANDS,
    **_RECEIPTS,
    **_HOLDS,
    **_HOSTS,
    **_GATES,
    **_DRAFTERS,
    **_PREPARATION,
}
"""All pages, one for each member of :class:`pp4.errors.Code`."""


def page(code: str) -> Page:
    """Return the page of a code, whatever the case it is typed in.

    Raises:
        UsageError: there is no such code; the nearest ones are named.
    """
    try:
        return PAGES[Code(code.strip().upper())]
    except (KeyError, ValueError):
        import difflib

        near = difflib.get_close_matches(code.strip().upper(), [str(c) for c in Code], n=3)
        expected = f"a code such as {', '.join(near)}" if near else "a code of pp4"
        found = ascii(code[:60])
        raise UsageError(
            Refusal(Code.USAGE, "explain", expected, found, next="pp4 explain")
        ) from None
