"""Pages for people: their commands, run as they stand there, and what they say is printed."""

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

ROOT = Path(__file__).parents[1]
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_LIKE = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def blocks(text):
    """(language, body) of each fenced block."""
    return _FENCE.findall(text)


def section(text, title):
    """A section without its heading, up to the next of the same level."""
    level = title.partition(" ")[0]
    rest = text.partition(f"\n{title}\n")[2]
    assert rest, title
    return re.split(rf"^{level} ", rest, maxsplit=1, flags=re.MULTILINE)[0]


def steps(text):
    """(lines of a shell, what they print) of each ``sh`` block; "" where nothing is shown."""
    found = blocks(text)
    for at, (language, body) in enumerate(found):
        if language == "sh":
            after = found[at + 1] if at + 1 < len(found) else ("", "")
            yield body, after[1] if after[0] == "text" else ""


def differs(shown, printed):
    """How an output differs from what a page shows, "" where it does not.

    ``...`` stands for anything, and blanks may be more or fewer: columns are as wide as they need.
    """
    # what is left out may be nothing, and then the blanks on its two sides are one
    shown = re.sub(r"\s*\.\.\.\s*", "...", shown)
    checker, example = doctest.OutputChecker(), doctest.Example("", shown)
    if checker.check_output(shown, printed, _LIKE):
        return ""
    return checker.output_difference(example, printed, _LIKE)


class Shell:
    """A shell in a directory that has some of a checkout; its pp4 and python are those under test.

    Args:
        place: its directory.
        names: what of the checkout it has.
    """

    def __init__(self, place, names=()):
        self.place = place
        for name in names:
            (place / name).symlink_to(ROOT / name)
        programs = place / ".programs"
        programs.mkdir()
        for name, words in (("pp4", "-P -m pp4"), ("python", "")):
            program = programs / name
            program.write_text(f'#!/bin/sh\nexec {sys.executable} {words} "$@"\n')
            program.chmod(0o755)
        self.environment = {
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "COLUMNS": "80",
        }

    def run(self, text, limit_s=120.0, **words):
        """Run lines of a shell; -> exit code of the last, standard output, and all of it."""
        done = subprocess.run(
            ["bash", "-c", text],
            cwd=self.place,
            env=self.environment | words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit_s,
        )
        return SimpleNamespace(
            exit=done.returncode, out=done.stdout, said=done.stdout + done.stderr
        )
