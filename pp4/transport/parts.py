"""Files that arrive in parts: what both transports agree on."""

from __future__ import annotations

from typing import Final

from pp4.errors import BadInputError, Code, Refusal, RefusedError

CHUNK: Final = 1 << 15
"""Bytes of one request; what every SFTP server takes."""


def carried(word: str) -> bool:
    """Whether a word can be an argument or a path on a host: no NUL, and not lost in encoding."""
    try:
        word.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return "\0" not in word


def part_of(path: str) -> str:
    """Where a file lies until it is whole.

    Raises:
        BadInputError: the path cannot be that of a file.
    """
    if not path or path.endswith("/") or not carried(path):
        raise BadInputError.of("path", "the path of a file", repr(path)[:200])
    return f"{path}.part"


def unwritable(where: str, found: str) -> RefusedError:
    """The refusal of a file that cannot be made; the words may be another program's."""
    return RefusedError(
        Refusal(
            Code.UNWRITABLE,
            where,
            "a file that can be written",
            found.rstrip(". "),
            left="the part that was written, if any",
        )
    )
