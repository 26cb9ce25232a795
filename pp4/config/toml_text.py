"""TOML text, read in one place: the HOLD file and the manifest of a preparation."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from typing import Final, NoReturn

from pp4.config.tables import Real
from pp4.receipts.canonical import shown

_PLACE: Final = re.compile(r" ?\(at (line [0-9]+, column [0-9]+|end of document)\)$")


def toml_table(
    raw: bytes, file: str, what: str, refuse: Callable[[str, str, str], NoReturn]
) -> dict[str, object]:
    """Return the top table of TOML text; numbers with a fraction as they are written.

    Args:
        raw: the whole file.
        file: its name, for a refusal.
        what: what it is, with its article.
        refuse: raises the refusal of a place, what was expected there and what was found.
    """
    try:
        # A byte order mark is how some editors begin a file; it says nothing.
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        refuse(file, f"{what} in UTF-8", f"byte 0x{raw[error.start]:02x} at offset {error.start}")
    try:
        return tomllib.loads(text, parse_float=Real)
    except RecursionError:
        refuse(file, f"{what} in TOML", "nesting without end")
    except ValueError as error:
        # Wider than the parser's own class: Python refuses integers of thousands of digits.
        message = str(error)
        place = _PLACE.search(message)
        where = f"{file}, {place[1]}" if place else file
        refuse(where, f"{what} in TOML", shown(_PLACE.sub("", message)))
