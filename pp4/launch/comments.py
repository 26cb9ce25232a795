"""Text files without their comments, so that a mention is no assignment; lines keep places."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Final, Literal

Kind = Literal["shell", "command", "make", "yaml", "docker", "unit", "slashes", "plain"]
_ENDINGS: Final[dict[str, Kind]] = {
    **dict.fromkeys((".sh", ".bash", ".zsh", ".ksh", ".csh", ".fish"), "shell"),
    **dict.fromkeys((".sbatch", ".slurm", ".pl", ".rb", ".ps1"), "shell"),
    **dict.fromkeys((".yml", ".yaml", ".toml"), "yaml"),
    **dict.fromkeys((".mk", ".make"), "make"),
    **dict.fromkeys((".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".rs"), "slashes"),
    **dict.fromkeys((".go", ".java", ".js", ".mjs", ".ts", ".proto"), "slashes"),
    **dict.fromkeys((".service", ".socket", ".timer", ".slice", ".conf", ".ini"), "unit"),
    **dict.fromkeys((".cfg", ".env", ".properties"), "unit"),
    **dict.fromkeys((".dockerfile", ".containerfile"), "docker"),
}
_SHELLS: Final = re.compile(r"#!.*\b(?:ba|da|z|k|c|tc|fi)?sh\b")


def kind_of(path: str, text: str) -> Kind:
    """Say how a file is read, by its name and its first line."""
    name = PurePosixPath(path).name.lower()
    if name.startswith(("dockerfile", "containerfile")):
        return "docker"
    if name in ("makefile", "gnumakefile"):
        return "make"
    if name == ".env" or name.startswith(".env."):
        return "unit"
    if _SHELLS.match(text):
        return "shell"
    return _ENDINGS.get(PurePosixPath(name).suffix, "plain")


def without_comments(text: str, kind: Kind) -> str:
    """Return the text with blanks in the place of comments.

    What may be no comment stays: it is then read as a command, and at worst refused.
    """
    return "\n".join(
        line if at == 0 and line.startswith("#!") else _stripped(line, kind)
        for at, line in enumerate(text.split("\n"))
    )


def _stripped(line: str, kind: Kind) -> str:
    start = line.lstrip()
    if kind == "slashes":
        return "" if start.startswith(("//", "/*", "*")) else line
    if start.startswith("#") or (kind == "unit" and start.startswith(";")):
        return ""
    # In a unit and in a Dockerfile a # behind something is a part of it.
    return _before_hash(line) if kind in ("shell", "command", "make", "yaml") else line


def _before_hash(line: str) -> str:
    """Cut a line at a # that follows a blank and stands in no quotes."""
    quote, before = "", " "
    skip = False
    for at, sign in enumerate(line):
        if skip:
            skip = False
        elif sign == "\\" and quote != "'":
            skip = True
        elif quote:
            quote = "" if sign == quote else quote
        elif sign in "\"'":
            quote = sign
        elif sign == "#" and before in " \t":
            return line[:at]
        before = sign
    return line
