"""Files inside a checkpoint's directory, and the JSON in them; nothing outside is opened."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any, Final

from pp4.drafter.checkpoint.problems import Problem, refused, shown

DOCUMENT_LIMIT: Final = 16 * 1024 * 1024
"""Bytes of the largest config, index or tensor header; a drafter's take some 20 KB."""


class _DuplicateError(ValueError):
    """A key stands twice in one object."""


def inside(directory: Path, name: str) -> Path:
    """Return the regular file of that name in a directory.

    Args:
        directory: of the checkpoint.
        name: a plain name, without a way to other directories.

    Raises:
        RefusedError: ``BAD_CHECKPOINT``: another kind of name; no such file, or not a regular one;
            a link that leads out of the directory.
    """
    if name in ("", ".", "..") or not {"/", "\\", "\0"}.isdisjoint(name):
        problem = Problem(name, "the plain name of a file beside config.json", shown(name))
        raise refused(directory, [problem])
    path = directory / name
    try:
        real = path.resolve(strict=True)
        mode = os.stat(real).st_mode
        home = directory.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        found = getattr(error, "strerror", None) or "a link without end"
        raise refused(directory, [Problem(name, "a readable file", found)]) from error
    if real.parent != home:
        raise refused(
            directory,
            [Problem(name, "a file in the directory itself", "a link that leads out of it")],
            next=f"cp -rL {shown(str(directory))} COPY",
        )
    if not stat.S_ISREG(mode):
        raise refused(directory, [Problem(name, "a regular file", "something else")])
    return real


def read_document(directory: Path, name: str) -> dict[str, Any]:
    """Return the JSON object in a file of the directory.

    Raises:
        RefusedError: ``BAD_CHECKPOINT``: see :func:`inside`; or the file is too long, no JSON
            object, or gives one key twice.
    """
    path = inside(directory, name)
    try:
        with path.open("rb") as file:
            raw = file.read(DOCUMENT_LIMIT + 1)
    except OSError as error:
        found = error.strerror or str(error)
        raise refused(directory, [Problem(name, "a readable file", found)]) from error
    if len(raw) > DOCUMENT_LIMIT:
        found = f"more than {DOCUMENT_LIMIT} bytes"
        raise refused(directory, [Problem(name, f"at most {DOCUMENT_LIMIT} bytes", found)])
    try:
        return parse_object(raw)
    except ValueError as error:
        problem = Problem(name, "one JSON object, each key once", shown(str(error)))
        raise refused(directory, [problem]) from error


def parse_object(raw: bytes) -> dict[str, Any]:
    """Return the JSON object that the bytes are.

    Raises:
        ValueError: they are no UTF-8, no JSON, no object, nested too deeply, hold a number that is
            not finite, or a key stands twice.
    """
    try:
        tree = json.loads(
            raw.decode("utf-8"), object_pairs_hook=_once, parse_constant=_not_a_number
        )
    except RecursionError as error:
        raise ValueError("nesting without end") from error
    if not isinstance(tree, dict):
        raise ValueError(f"a {type(tree).__name__}")
    return tree


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    tree = dict(pairs)
    if len(tree) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _DuplicateError(f"the key {twice!r} twice")
    return tree


def _not_a_number(text: str) -> float:
    raise ValueError(f"the number {text}")
