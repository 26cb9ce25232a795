"""What a mutant is: a name, a defect in words, and edits that fit their source exactly once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pp4.errors import BadInputError


@dataclass(frozen=True, slots=True)
class Edit:
    """One replacement in one file.

    Attributes:
        file: path below ``pp4/kernels``, for instance ``device/exchange.py``.
        old: text that stands there exactly once.
        new: text that takes its place.
    """

    file: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Mutant:
    """A defect that somebody has to catch.

    Attributes:
        name: a Python identifier.
        what: the defect in words.
        edits: how the product's source becomes the mutant, in this order.
    """

    name: str
    what: str
    edits: tuple[Edit, ...]


def apply(mutant: Mutant, sources: Mapping[str, str]) -> dict[str, str]:
    """Return the sources of a mutant.

    Args:
        mutant: what to change.
        sources: text by file, of the product.

    Returns:
        Text by file; the files that no edit names are as they were.

    Raises:
        BadInputError: an edit names no file of the product, or its text does not stand there
            exactly once; the number of matches is named.
    """
    edited = dict(sources)
    for place, edit in enumerate(mutant.edits, 1):
        where = f"{mutant.name}: edit {place} of {edit.file}"
        if edit.file not in edited:
            raise BadInputError.of(where, f"one of {', '.join(sorted(sources))}", "no such file")
        matches = edited[edit.file].count(edit.old) if edit.old else 0
        if matches != 1 or edit.new == edit.old:
            raise BadInputError.of(where, "a text that stands there once", f"{matches} matches")
        edited[edit.file] = edited[edit.file].replace(edit.old, edit.new)
    return edited
