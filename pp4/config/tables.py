"""One table of a HOLD file: what is asked of it is checked, and what nobody asks for refuses.

TOML has types of its own, and none is turned into another one here: ``"30"`` is no number, 1 is
not true.  Whoever wrote the wrong one meant something by it.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, time
from typing import Final, NoReturn

from pp4.config.keys import KEYS
from pp4.errors import Code, Refusal, RefusedError
from pp4.receipts.canonical import shown

LONGEST: Final = 4096
"""Most characters of one string."""
_NAMED: Final = 64
_PAGE: Final = "docs/hold-file.md"
_WHOLE: Final = 1 << 63


@dataclass(frozen=True, slots=True)
class Real:
    """A number with a fraction, as it is written: no binary fraction comes in between."""

    text: str


def said(value: object) -> str:
    """Return what was found as one short line, without the text of a private key."""
    if isinstance(value, str):
        # It would end up on a screen, in a log or in a receipt.
        if "PRIVATE KEY" in value:
            return "the text of a private key (not shown)"
        return shown(repr(value))
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        # Python refuses to print an integer of thousands of digits.
        return str(value) if -_WHOLE <= value < _WHOLE else "an integer of more than 64 bits"
    if isinstance(value, Real):
        return shown(value.text)
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    return "a date or time" if isinstance(value, date | datetime | time) else type(value).__name__


def refuse(where: str, expected: str, found: str, again: str = "") -> NoReturn:
    """Raise the refusal of a HOLD file.

    Raises:
        RefusedError: ``BAD_HOLD_FILE``, always.
    """
    raise RefusedError(Refusal(Code.BAD_HOLD_FILE, where, expected, found, _PAGE, next=again))


@dataclass(frozen=True, slots=True)
class Table:
    """One table, or one entry of a list of tables.

    Attributes:
        file: the file, for messages.
        name: dotted name; empty for the top of the file.
        entries: what stands in it.
        kind: its row in ``KEYS``.
        entry: its number in a list of tables, counted from 1.

    Raises:
        RefusedError: ``BAD_HOLD_FILE``, an unknown key; the nearest known one is named.
    """

    file: str
    name: str
    entries: Mapping[str, object]
    kind: str
    entry: int | None = None

    def __post_init__(self) -> None:
        known = KEYS[self.kind]
        for key in self.entries:
            if key not in known:
                refuse(self.where(key), _meant(key, self.kind), f"the unknown key {said(key)}")

    def where(self, key: str = "") -> str:
        """Return the file and the dotted key, for a message."""
        dotted = ".".join(part for part in (self.name, shown(key, _NAMED)) if part)
        which = "" if self.entry is None else f", entry {self.entry}"
        return f"{self.file}, {dotted}{which}"

    def refuse(
        self, key: str, expected: str, found: str | None = None, again: str = ""
    ) -> NoReturn:
        """Refuse the value of a key.

        Args:
            key: the key.
            expected: what it has to be.
            found: what it is; the value itself if none is given.
            again: the next command.

        Raises:
            RefusedError: ``BAD_HOLD_FILE``, always.
        """
        missing = key not in self.entries
        value = "nothing" if missing else said(self.entries[key])
        refuse(self.where(key), expected, value if found is None else found, again)

    def has(self, key: str) -> bool:
        """Whether the key is there."""
        return key in self.entries

    def string(self, key: str, expected: str, again: str = "") -> str:
        """Return a string, whatever is in it.

        Raises:
            RefusedError: ``BAD_HOLD_FILE``, the key is missing or no string.
        """
        value = self.entries.get(key)
        if not isinstance(value, str):
            self.refuse(key, expected, again=again)
        return value

    def text(self, key: str, expected: str) -> str:
        """Return one line of printable text that is not empty.

        Raises:
            RefusedError: ``BAD_HOLD_FILE``, the key is missing or something else.
        """
        value = self.string(key, expected)
        fault = flaw(value)
        if fault:
            self.refuse(key, f"{expected}: {fault}")
        return value

    def integer(self, key: str, low: int, high: int, default: int) -> int:
        """Return a whole number within bounds, both included.

        Raises:
            RefusedError: ``BAD_HOLD_FILE``.
        """
        value = self.entries.get(key, default)
        # True is an int in Python, and 1 is not true in TOML.
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            self.refuse(key, f"a whole number from {low} to {high}")
        return value

    def truth(self, key: str, default: bool) -> bool:
        """Return true or false.

        Raises:
            RefusedError: ``BAD_HOLD_FILE``.
        """
        value = self.entries.get(key, default)
        if not isinstance(value, bool):
            self.refuse(key, "true or false")
        return value

    def items(self, key: str, expected: str) -> list[object]:
        """Return a list that is not empty.

        Raises:
            RefusedError: ``BAD_HOLD_FILE``.
        """
        value = self.entries.get(key)
        if not isinstance(value, list) or not value:
            self.refuse(key, expected)
        return value

    def table(self, key: str) -> Table:
        """Return the table below a key.

        Raises:
            RefusedError: ``BAD_HOLD_FILE``, it is missing, no table, or has an unknown key.
        """
        name = f"{self.name}.{key}" if self.name else key
        value = self.entries.get(key)
        if not isinstance(value, dict):
            self.refuse(key, f"a table [{name}]")
        return Table(self.file, name, value, name)

    def tables(self, key: str) -> tuple[Table, ...]:
        """Return the tables of a list, none where the key is not there.

        Raises:
            RefusedError: ``BAD_HOLD_FILE``, it is no list of tables, or one has an unknown key.
        """
        value = self.entries.get(key, [])
        if not isinstance(value, list):
            self.refuse(key, f"[[{key}]] with two brackets, since there can be several")
        for one in value:
            if not isinstance(one, dict):
                self.refuse(key, f"tables alone, each under [[{key}]]", f"{said(one)} among them")
        return tuple(Table(self.file, key, one, key, at) for at, one in enumerate(value, 1))

    def one_or_more(self, key: str, kind: str) -> tuple[Table, ...]:
        """Return the table below a key, or the tables of the list there.

        Args:
            key: the key.
            kind: their row in ``KEYS``.

        Raises:
            RefusedError: ``BAD_HOLD_FILE``, it is neither, an empty list, or has an unknown key.
        """
        name = f"{self.name}.{key}"
        value = self.entries.get(key)
        if isinstance(value, dict):
            return (Table(self.file, name, value, kind),)
        expected = f"a table {{ {', '.join(KEYS[kind])} }}, or a list of such tables"
        found = []
        for at, one in enumerate(self.items(key, expected), 1):
            if not isinstance(one, dict):
                self.refuse(key, expected, f"{said(one)} in the list")
            found.append(Table(self.file, name, one, kind, at))
        return tuple(found)


def flaw(text: str) -> str:
    """Return the rule that a line of text breaks, empty where it breaks none."""
    if not text:
        return "not empty"
    if not text.isprintable():
        return "one line of printable characters"
    return f"at most {LONGEST} characters" if len(text) > LONGEST else ""


def _meant(key: str, kind: str) -> str:
    known = KEYS[kind]
    plain = key[:_NAMED].lower().replace("-", "_")
    near = difflib.get_close_matches(plain, known, n=1)
    if near:
        return f"a known key; the nearest is {near[0]}"
    other = next((name for name, keys in KEYS.items() if plain in keys and name), "")
    elsewhere = f"; {plain} is a key of [{other}]" if other else ""
    return f"one of {', '.join(known)}{elsewhere}"
