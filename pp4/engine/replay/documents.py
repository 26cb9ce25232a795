"""Reads held-out documents, as token ids, and cuts a window out of each."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pp4.errors import BadInputError, Code, Refusal, RefusedError
from pp4.receipts.canonical import read_file, shown

LIMIT: Final = 64 << 20
"""Bytes of the largest file of token ids."""


@dataclass(frozen=True, slots=True)
class Documents:
    """Token ids of held-out text.

    Attributes:
        tokens: of each document.
        sha256: of the file.
    """

    tokens: tuple[tuple[int, ...], ...]
    sha256: str


def read_documents(path: Path) -> Documents:
    """Read a JSON list of documents, each a list of token ids.

    Raises:
        RefusedError: ``UNREADABLE`` or ``TOO_LARGE``; ``NOT_JSON``: no such list.
    """
    raw, where = read_file(path, LIMIT), shown(str(path))
    expected = "a JSON list of documents, each a list of token ids"
    try:
        tree = json.loads(raw)
    except (ValueError, RecursionError) as error:
        found = shown(str(error))
        raise RefusedError(Refusal(Code.NOT_JSON, where, expected, found)) from error
    lists = isinstance(tree, list) and all(isinstance(one, list) for one in tree)
    # a bool is an int, and no token
    if not lists or not all(type(token) is int for one in tree for token in one):
        raise RefusedError(Refusal(Code.NOT_JSON, where, expected, shown(type(tree).__name__)))
    return Documents(tuple(map(tuple, tree)), hashlib.sha256(raw).hexdigest())


def windows(
    documents: Documents, *, count: int, length: int, vocabulary: int
) -> list[tuple[int, ...]]:
    """Cut a window of one length out of each of the first documents that are long enough.

    Where in its document a window lies follows from the file's digest and the document's number.

    Args:
        documents: of held-out text.
        count: windows.
        length: tokens of each.
        vocabulary: of the target.

    Raises:
        BadInputError: too few documents are long enough, or a token is none of the target.
    """
    found: list[tuple[int, ...]] = []
    for number, tokens in enumerate(documents.tokens):
        if len(found) == count:
            break
        _check_tokens(number, tokens, vocabulary)
        spare = len(tokens) - length
        if spare >= 0:
            first = _word(documents.sha256, number) % (spare + 1)
            found.append(tokens[first : first + length])
    if len(found) < count:
        raise BadInputError.of(
            "documents", f"{count} of {length} tokens or more", f"{len(found)} of them"
        )
    return found


def _check_tokens(number: int, tokens: Sequence[int], vocabulary: int) -> None:
    for place, token in enumerate(tokens):
        if not 0 <= token < vocabulary:
            where = f"document {number}, token {place}"
            raise BadInputError.of(where, f"0 to {vocabulary - 1}", str(token))


def _word(*name: object) -> int:
    """64 bits that follow from a name."""
    text = " ".join(map(str, ("pp4 heldout 1", *name)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


def words_of_block(sha256: str, document: int, block: int) -> tuple[int, int]:
    """Return the key of a block, 64 bits, and its round, 32 bits; both follow from its name."""
    round = _word(sha256, document, block, "round") >> 32
    return _word(sha256, document, block, "key"), round
