"""Held-out documents of the mini pair as token ids: what ``pp4 replay make-heldout`` takes.

``python -m examples.mini.documents --text DIR --out FILE`` takes the held-out files of the text
that the pair was trained on, one document for each file.  ``--every`` takes all files of a
directory whose text the pair has never seen, for instance the standard library's own tests.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from tokenizers import Tokenizer

from examples.mini import text, tokenization
from pp4.errors import Code, Exit, Pp4Error, Refusal, RefusedError, reason_of

HERE = Path(__file__).parent


def documents(tokenizer: Tokenizer, sources: Sequence[text.Source]) -> list[list[int]]:
    """Token ids of each file, the end token before it, as in training."""
    return [tokenization.stream(tokenizer, [source]).tolist() for source in sources]


def write_lines(path: Path, lines: Iterable[object]) -> None:
    """Write a new file of JSON, one value a line.

    Raises:
        RefusedError: ``EXISTS`` or ``UNWRITABLE``.
    """
    try:
        with path.open("x", encoding="ascii", newline="\n") as file:
            file.writelines(f"{json.dumps(one, separators=(',', ':'))}\n" for one in lines)
    except FileExistsError as error:
        raise RefusedError(
            Refusal(Code.EXISTS, path.name, "no file of that name", "a file")
        ) from error
    except OSError as error:
        raise RefusedError(
            Refusal(Code.UNWRITABLE, path.name, "a file that can be written", reason_of(error))
        ) from error


def write(path: Path, found: Sequence[Sequence[int]]) -> None:
    """Write documents as JSON; see :func:`write_lines`."""
    write_lines(path, [found])


def main(arguments: Sequence[str]) -> int:
    """Write documents, or the refusal as one JSON object; -> the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.mini.documents",
        description="Token ids of text that the mini pair has not seen.",
    )
    parser.add_argument("--text", type=Path, required=True, help="directory of Python files")
    parser.add_argument("--out", type=Path, required=True, help="the file to write")
    parser.add_argument("--every", action="store_true", help="all files, not the held-out split")
    parser.add_argument(
        "--tokenizer",
        type=Path,
        default=HERE / "target" / tokenization.TOKENIZER,
        help="(%(default)s)",
    )
    given = parser.parse_args(arguments)
    try:
        sources, _ = text.read(given.text)
        if not given.every:
            sources = text.dealt(sources)["heldout"]
        found = documents(tokenization.read(given.tokenizer), sources)
        write(given.out, found)
    except Pp4Error as error:
        sys.stderr.write(json.dumps({"refusal": error.refusal.as_dict()}) + "\n")
        return int(error.exit)
    sys.stdout.write(f"{len(found)} documents, {sum(map(len, found))} tokens\n")
    return int(Exit.DONE)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
