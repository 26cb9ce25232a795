"""The shape of a page."""

from __future__ import annotations

from dataclasses import dataclass

from pp4.errors import Code


@dataclass(frozen=True, slots=True)
class Page:
    """What a person needs to know about a code.

    Attributes:
        code: the code.
        cause: what makes pp4 say it.
        left: what is left behind when it is said.
        way_out: what to do now.
    """

    code: Code
    cause: str
    left: str
    way_out: str

    def as_dict(self) -> dict[str, str]:
        """Return plain strings for ``--json``."""
        return {
            "code": str(self.code),
            "cause": self.cause,
            "left": self.left,
            "way_out": self.way_out,
        }


def pages(*rows: tuple[Code, str, str, str]) -> dict[Code, Page]:
    """Return pages by code.

    Raises:
        ValueError: a code has two pages; one of them would be lost silently.
    """
    made = {row[0]: Page(*row) for row in rows}
    if len(made) != len(rows):
        raise ValueError("a code has two pages")
    return made
