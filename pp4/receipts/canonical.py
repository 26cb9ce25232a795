"""Bytes in, tree out, and back: the only door through which receipt text enters.

A receipt has exactly one byte form, RFC 8785 (the JSON Canonicalization Scheme).  Everything that
could give one text two meanings is refused here, before any model sees it: repeated names, numbers
that a double cannot hold, text that is not UTF-8, nesting without end.
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NoReturn

import rfc8785

from pp4.errors import Code, Pp4Error, Refusal, RefusedError, WrongError

LIMIT: Final = 16 * 1024 * 1024
"""Largest receipt in bytes; a longer file is refused by its size, without being read."""
DEPTH: Final = 64
"""Deepest nesting of lists and objects."""
VALUES: Final = 500_000
"""Most values (objects, lists and scalars) in one receipt; a rehearsal has about 3,000, the longest
half about 400,000.  It bounds the time and memory that a file within LIMIT can cost, tiny values
being the dearest."""
SAFE_INTEGER: Final = 2**53 - 1
"""Largest integer that survives every JSON reader (RFC 7493, section 2.2)."""

_BOM: Final = b"\xef\xbb\xbf"


def shown(value: object, width: int = 120) -> str:
    """Return ``value`` as one short line of printable ASCII, safe for any terminal."""
    text = value if isinstance(value, str) else repr(value)
    text = text.encode("ascii", "backslashreplace").decode("ascii")
    text = "".join(sign if sign.isprintable() else f"\\x{ord(sign):02x}" for sign in text)
    return text if len(text) <= width else f"{text[: width - 3]}..."


def refuse(code: Code, where: str, expected: str, found: str) -> NoReturn:
    """Raise the refusal of a file that cannot be read as a receipt.

    Raises:
        RefusedError: always.
    """
    raise RefusedError(Refusal(code, where, expected, found))


def read_file(path: Path, limit: int = LIMIT) -> bytes:
    """Return the bytes of a regular file of at most ``limit`` bytes.

    Pipes, devices and directories are refused by their type, before they are opened and once more
    after, so that nothing can block and nothing can be swapped in between.

    Raises:
        RefusedError: UNREADABLE or TOO_LARGE.
    """
    where = shown(str(path))
    flags = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_CLOEXEC"))
    flags |= getattr(os, "O_BINARY", 0) | getattr(os, "O_NOCTTY", 0)
    try:
        _want_regular(os.stat(path), where, limit)
        descriptor = os.open(path, flags)
        with os.fdopen(descriptor, "rb") as stream:
            _want_regular(os.fstat(descriptor), where, limit)
            raw = stream.read(limit + 1)
    except (OSError, ValueError) as error:
        # ValueError: a name with a NUL inside never reaches the kernel.
        reason = getattr(error, "strerror", None) or str(error)
        refuse(Code.UNREADABLE, where, "a readable file", shown(reason))
    if len(raw) > limit:
        refuse(Code.TOO_LARGE, where, f"at most {limit} bytes", f"more than {limit} bytes")
    return raw


def _want_regular(status: os.stat_result, where: str, limit: int) -> None:
    if not stat.S_ISREG(status.st_mode):
        kinds = {
            stat.S_IFDIR: "a directory",
            stat.S_IFIFO: "a named pipe",
            stat.S_IFSOCK: "a socket",
            stat.S_IFCHR: "a character device",
            stat.S_IFBLK: "a block device",
        }
        found = kinds.get(stat.S_IFMT(status.st_mode), "something that is not a file")
        refuse(Code.UNREADABLE, where, "a regular file", found)
    if status.st_size > limit:
        refuse(Code.TOO_LARGE, where, f"at most {limit} bytes", f"{status.st_size} bytes")


def parse(raw: bytes, where: str) -> object:
    """Return the tree of JSON text, with every ambiguity refused.

    Whether ``raw`` is also the canonical form is a separate question, see
    :func:`require_canonical`.

    Args:
        raw: the whole file.
        where: what to name in a refusal.

    Raises:
        RefusedError: TOO_LARGE, NOT_UTF8, NOT_JSON, DUPLICATE_KEY, NOT_FINITE, NUMBER_RANGE or
            TOO_DEEP.
    """
    if len(raw) > LIMIT:
        refuse(Code.TOO_LARGE, where, f"at most {LIMIT} bytes", f"{len(raw)} bytes")
    try:
        text = raw.removeprefix(_BOM).decode("utf-8")
    except UnicodeDecodeError as error:
        found = f"byte 0x{raw.removeprefix(_BOM)[error.start]:02x} at offset {error.start}"
        refuse(Code.NOT_UTF8, where, "UTF-8 text", found)
    if raw.count(b",[") > VALUES:
        # No hook sees a list, and an empty one takes thirty times its text.
        _too_many(where)
    reader = _Reader(where)
    try:
        tree = json.loads(
            text,
            object_pairs_hook=reader.pairs,
            parse_constant=reader.constant,
            parse_float=reader.real,
            parse_int=reader.integer,
        )
    except Pp4Error:
        raise
    except RecursionError:
        refuse(Code.TOO_DEEP, where, f"nesting of at most {DEPTH}", "nesting without end")
    except ValueError as error:
        found = "an empty file" if not text.strip() else shown(str(error))
        refuse(Code.NOT_JSON, where, "one JSON document", found)
    _bound(tree, where)
    return tree


class _Reader:
    """The hooks of one parse: each refuses what JSON text can say but a receipt must not."""

    def __init__(self, where: str) -> None:
        self._where = where
        # Each counts a part of the values alone, so that a file is given up while it is read.
        self._objects = 0
        self._members = 0
        self._numbers = 0

    def _number(self) -> None:
        self._numbers += 1
        if self._numbers > VALUES:
            _too_many(self._where)

    def pairs(self, pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
        self._objects += 1
        self._members += len(pairs)
        if max(self._objects, self._members) > VALUES:
            _too_many(self._where)
        members = dict(pairs)
        if len(members) != len(pairs):
            counts = Counter(name for name, _ in pairs)
            twice = next(name for name, count in counts.items() if count > 1)
            refuse(Code.DUPLICATE_KEY, self._where, "each name once", f"{shown(twice)} twice")
        return members

    def constant(self, text: str) -> NoReturn:
        refuse(Code.NOT_FINITE, self._where, "finite numbers", shown(text))

    def real(self, text: str) -> float:
        self._number()
        number = float(text)
        if not math.isfinite(number):
            refuse(Code.NOT_FINITE, self._where, "finite numbers", shown(text))
        return number

    def integer(self, text: str) -> int:
        self._number()
        # The length goes first: Python itself refuses to read thousands of digits.
        if len(text) > 17 or abs(int(text)) > SAFE_INTEGER:
            expected = f"integers up to {SAFE_INTEGER}; larger ones as strings"
            refuse(Code.NUMBER_RANGE, self._where, expected, shown(text))
        return int(text)


def _too_many(where: str) -> NoReturn:
    refuse(Code.TOO_LARGE, where, f"at most {VALUES} values", "more values")


def _bound(tree: object, where: str) -> None:
    """Refuse what is too deep, too many, or text that no UTF-8 file can hold, without recursion."""
    level: list[object] = [tree]
    depth = 0
    count = 0
    while level:
        count += len(level)
        if count > VALUES:
            _too_many(where)
        if any(isinstance(value, dict | list) for value in level):
            depth += 1
        if depth > DEPTH:
            refuse(Code.TOO_DEEP, where, f"nesting of at most {DEPTH}", "deeper nesting")
        below: list[object] = []
        for value in level:
            if isinstance(value, str):
                _want_encodable(value, where)
            elif isinstance(value, dict):
                for name in value:
                    _want_encodable(name, where)
                below.extend(value.values())
            elif isinstance(value, list):
                below.extend(value)
        level = below


def _want_encodable(text: str, where: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        found = f"a lone surrogate U+{ord(text[error.start]):04X}"
        refuse(Code.NOT_UTF8, where, "text that UTF-8 can hold", found)


def dump(tree: object, where: str = "receipt") -> bytes:
    """Return the canonical bytes of a tree of ``dict``, ``list``, ``str``, ``int``, ``bool``, None.

    Raises:
        RefusedError: the tree holds something that has no canonical form (a number out of range,
            a lone surrogate, a type that JSON does not have).
    """
    try:
        return rfc8785.dumps(tree)  # type: ignore[arg-type]
    except rfc8785.IntegerDomainError as error:
        refuse(Code.NUMBER_RANGE, where, f"integers up to {SAFE_INTEGER}", shown(str(error)))
    except rfc8785.FloatDomainError as error:
        refuse(Code.NOT_FINITE, where, "finite numbers", shown(str(error)))
    except RecursionError:
        refuse(Code.TOO_DEEP, where, f"nesting of at most {DEPTH}", "nesting without end")
    except (ValueError, TypeError) as error:
        # ValueError is wider than the package's own class: names are sorted by UTF-16, and a lone
        # surrogate in a name surfaces as UnicodeEncodeError.
        refuse(Code.NOT_JSON, where, "values that JSON has", shown(str(error)))


def difference(raw: bytes, canonical: bytes) -> str | None:
    """Say in one line where ``raw`` leaves its canonical form, or None where it does not."""
    if raw == canonical:
        return None
    if raw.startswith(_BOM):
        return "a byte order mark at offset 0"
    at = next(
        (i for i, (a, b) in enumerate(zip(raw, canonical, strict=False)) if a != b),
        min(len(raw), len(canonical)),
    )
    if at >= len(raw):
        return f"the file ends at offset {at}, {len(canonical) - at} bytes early"
    return f"byte 0x{raw[at]:02x} at offset {at} of {len(raw)}"


def require_canonical(raw: bytes, tree: object, where: str) -> None:
    """Refuse a file that differs from its canonical bytes by so much as a space.

    Raises:
        WrongError: NOT_CANONICAL.
    """
    found = difference(raw, dump(tree, where))
    if found is not None:
        raise WrongError(
            Refusal(Code.NOT_CANONICAL, where, "the file in its RFC 8785 form, nothing else", found)
        )
