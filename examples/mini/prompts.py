"""Prompts of the mini pair: windows of the held-out files, as JSON lines of token ids.

``python -m examples.mini.prompts --text /usr/lib/python3.11 --out prompts.jsonl`` writes them; the
same text gives the same bytes.  The windows of one length that the held-out files are cut into, in
the order of their paths, are taken at equal distances, so that every large file has some.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from examples.mini import text, tokenization
from examples.mini.documents import HERE, documents, write_lines
from pp4.errors import BadInputError, Exit, Pp4Error

COUNT: Final = 64
LENGTH: Final = 96


def windows(found: Sequence[Sequence[int]], count: int, length: int) -> list[list[int]]:
    """Take windows of documents, no two of which overlap or are equal.

    Args:
        found: token ids of each document.
        count: windows to take.
        length: tokens of each.

    Raises:
        BadInputError: there are too few.
    """
    # a dict keeps the first of equal ones, in order
    ordered = list(
        dict.fromkeys(
            tuple(tokens[first : first + length])
            for tokens in found
            for first in range(0, len(tokens) - length + 1, length)
        )
    )
    if len(ordered) < count:
        expected = f"{count} windows of {length} tokens"
        raise BadInputError.of("held-out text", expected, str(len(ordered)))
    return [list(ordered[number * len(ordered) // count]) for number in range(count)]


def write(path: Path, prompts: Sequence[Sequence[int]]) -> None:
    """Write one line for each prompt; see :func:`examples.mini.documents.write_lines`."""
    write_lines(path, prompts)


def main(arguments: Sequence[str]) -> int:
    """Write prompts, or the refusal as one JSON object; -> the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.mini.prompts",
        description="Prompts of text that the mini pair has not seen.",
    )
    parser.add_argument("--text", type=Path, required=True, help="directory of Python files")
    parser.add_argument("--out", type=Path, required=True, help="the file to write")
    given = parser.parse_args(arguments)
    try:
        sources, _ = text.read(given.text)
        tokenizer = tokenization.read(HERE / "target" / tokenization.TOKENIZER)
        found = documents(tokenizer, text.dealt(sources)["heldout"])
        write(given.out, windows(found, COUNT, LENGTH))
    except Pp4Error as error:
        sys.stderr.write(json.dumps({"refusal": error.refusal.as_dict()}) + "\n")
        return int(error.exit)
    sys.stdout.write(f"{COUNT} prompts of {LENGTH} tokens\n")
    return int(Exit.DONE)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
