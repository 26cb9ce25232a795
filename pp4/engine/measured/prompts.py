"""Prompts of a measurement, and which of them a round has, with which keys."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pp4.errors import Code, Refusal, RefusedError
from pp4.receipts.canonical import read_file, shown

LIMIT: Final = 64 << 20
"""Bytes of the largest file of prompts."""
_LINE: Final = "a JSON list of token ids on each line"


@dataclass(frozen=True, slots=True)
class Prompts:
    """Token ids of each prompt, as they were read.

    Attributes:
        tokens: of each prompt, at least one.
        sha256: of the file.
    """

    tokens: tuple[tuple[int, ...], ...]
    sha256: str


def read_prompts(path: Path) -> Prompts:
    """Read a file of JSON lines, each a list of token ids.

    Raises:
        RefusedError: ``UNREADABLE`` or ``TOO_LARGE``; ``NOT_JSON``: a line is no such list, or
            there is none.
    """
    raw, where = read_file(path, LIMIT), shown(str(path))
    lines = raw.removesuffix(b"\n").split(b"\n") if raw else []
    if not lines:
        raise RefusedError(Refusal(Code.NOT_JSON, where, _LINE, "an empty file"))
    tokens = tuple(_prompt(line, f"{where}, line {n}") for n, line in enumerate(lines, 1))
    return Prompts(tokens, hashlib.sha256(raw).hexdigest())


def _prompt(line: bytes, where: str) -> tuple[int, ...]:
    try:
        tree = json.loads(line)
    except (ValueError, RecursionError) as error:
        found = shown(str(error))
        raise RefusedError(Refusal(Code.NOT_JSON, where, _LINE, found)) from error
    # a bool is an int, and no token
    if not isinstance(tree, list) or not tree or any(type(token) is not int for token in tree):
        raise RefusedError(
            Refusal(Code.NOT_JSON, where, _LINE, shown(line.decode(errors="replace")))
        )
    return tuple(tree)


def prompts_of(index: int, batch: int, prompts: int) -> list[int]:
    """Numbers of the prompts of a round, one of each request.

    Args:
        index: of the round in its phase.
        batch: requests.
        prompts: that there are, at least ``batch``.
    """
    return [(index * batch + request) % prompts for request in range(batch)]


def keys_of(seed: int, phase: str, index: int, batch: int) -> list[int]:
    """Keys of a round's requests, 64 bits each; they follow from these numbers alone."""
    return [_word(seed, phase, index, batch, request) for request in range(batch)]


def _word(*name: object) -> int:
    text = " ".join(map(str, ("pp4 measured 1", *name)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
