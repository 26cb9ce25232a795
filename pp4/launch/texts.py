"""Assignments of the switches in text that is not Python: shell, units, Dockerfiles, YAML, TOML.

No file is executed, so this is a reading: every way of those languages to give a variable a value,
as far as the variable is named.  Whatever is not clearly 0 counts as something else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from pp4.config import SWITCHES
from pp4.launch.comments import Kind, kind_of, without_comments
from pp4.receipts.canonical import shown

UNKNOWN: Final = "\ufffd"
"""Stands for a part of a text that only a run would know."""

_NAME: Final = rf"(?<![A-Za-z0-9_])(?P<name>{'|'.join(SWITCHES)})(?![A-Za-z0-9_])"
_UNREAD: Final = r"(?<!\$)(?<!\$\{)(?<!\$\()"
_GAP: Final = r"(?:[ \t]|\\\r?\n)*"
_BLANK: Final = r"(?:[ \t]|\\\r?\n)+"
_SHUT: Final = r"\\?[\"'`\])}]{0,3}"
# = and its relatives of make, shell and TOML, but no comparison
_EQUALS: Final = re.compile(rf"{_UNREAD}{_NAME}{_SHUT}{_GAP}[+?:.|^]{{0,3}}=(?![=~])>?")
# : of YAML, JSON and JavaScript
_COLON: Final = re.compile(rf"{_UNREAD}{_NAME}{_SHUT}(?P<gap>\s*):(?![:=])")
_SHELL_OF_MAKE: Final = re.compile(rf"{_NAME}{_GAP}!=")
_DEFAULT: Final = re.compile(rf"\$\{{{_NAME}:?(?P<sign>[-=])")
_BY_WORD: Final = re.compile(
    rf"\b(?:setenv|setx|ENV|SetEnv|fastcgi_param|set(?:[ \t]+-[A-Za-z-]+)+)"
    rf"{_BLANK}[\"']?{_NAME}[\"']?(?!{_GAP}[=:]){_BLANK}"
)
_BY_DIGIT: Final = re.compile(rf"{_UNREAD}{_NAME}[\"']?[ \t]+(?=[\"']?[1-9])")
_BY_CALL: Final = re.compile(rf"(?i:set|put)\w*\s*[(\[]\s*[\"']{_NAME}[\"']\s*,")
_BY_TAG: Final = re.compile(rf"{_NAME}\s*</key>\s*<\w+>")
_FILLED: Final = re.compile(
    rf"(?m)(?:^|[;&|({{]|\bdo\b|\bthen\b)[ \t]*"
    rf"(?:for|select|read|mapfile|readarray|printf[ \t]+-v)"
    rf"(?:[ \t]+-?\w+)*?{_BLANK}[\"']?{_NAME}(?!{_GAP}=)"
)
_ITEM: Final = re.compile(
    rf"(?m)(?P<key>[\"']?(?i:name|variable)[\"']?\s*[:=]\s*)[\"']?{_NAME}[\"']?"
    rf"(?=\s*(?:[,}}\]#/>;]|$|value))"
)
_VALUE: Final = re.compile(r"(?<![A-Za-z_])[\"']?(?i:value)[\"']?[ \t]*[:=]")
# 0, perhaps in one pair of quotes, and then the end of the word
_ZERO: Final = (
    r"(?P<quote>\\?[\"'`]|)0(?P=quote)[\"'`]{0,2}"
    r"(?=[\s;&|)}\]<>]|\\n|\\?\Z|,(?:[\s\"'}\]]|\Z))"
)
_OFF_HERE: Final = re.compile(_ZERO)
_OFF: Final = re.compile(rf"{_GAP}{_ZERO}")
_OFF_BELOW: Final = re.compile(rf"\s*(?:{_ZERO}|null(?=[\s,}}\]]|\Z))")
_SINGLE: Final = re.compile(
    r"[ \t]*(?:\\?[\"'][^\"'\n]*[\"']|[^\s\"',}\]]+)[ \t]*(?:[,}\]\"'`#\\\n\r]|\Z)"
)
_TRUE: Final = frozenset({"1", "true", "on", "yes"})


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """A place that sets a switch, or that cannot be read.

    Attributes:
        path: the file.
        line: from 1.
        what: in words.
    """

    path: str
    line: int
    what: str


def text_findings(path: str, text: str) -> list[Finding]:
    """Return what a file that is no Python sets, in the order of lines."""
    if path.lower().endswith((".json", ".ipynb")):
        tree = _json(text)
        if tree is not None:
            return [Finding(path, _line_of(text, what), what) for what in _in_json(tree)]
    lines = without_comments(text, kind_of(path, text))
    found = {Finding(path, at, what) for at, what in assignments(lines, kind_of(path, text))}
    return sorted(found)


def assignments(text: str, kind: Kind = "command") -> Iterator[tuple[int, str]]:
    """Yield line and words of each assignment that enables a switch, in text without comments."""
    if not any(name in text for name in SWITCHES):
        return
    for start, end, off in _candidates(text, kind):
        if not off:
            line = text.count("\n", 0, start) + 1
            yield line, shown(" ".join(text[start : max(end, start) + 24].split()), 80)


def _candidates(text: str, kind: Kind) -> Iterator[tuple[int, int, bool]]:
    """Yield offset of the name, offset of the value, and whether the value is 0."""
    for match in _EQUALS.finditer(text):
        # X= 0 of a shell is an empty X and a command 0.
        off = _OFF_HERE if kind == "shell" else _OFF
        yield match.start("name"), match.end(), off.match(text, match.end()) is not None
    for match in _COLON.finditer(text):
        if kind != "yaml" and ("\n" in match["gap"] or not _SINGLE.match(text, match.end())):
            continue  # the command : of a shell, or a sentence
        yield match.start("name"), match.end(), _OFF_BELOW.match(text, match.end()) is not None
    for match in _DEFAULT.finditer(text):
        end = match.end()
        empty = match["sign"] == "-" and text.startswith("}", end)
        yield match.start("name"), end, empty or _OFF_HERE.match(text, end) is not None
    for pattern in (_BY_WORD, _BY_DIGIT, _BY_CALL, _BY_TAG):
        for match in pattern.finditer(text):
            yield match.start("name"), match.end(), _OFF.match(text, match.end()) is not None
    filled = {"shell": _FILLED, "command": _FILLED, "make": _SHELL_OF_MAKE}.get(kind)
    for match in filled.finditer(text) if filled else ():
        yield match.start("name"), match.end(), False
    for match in _ITEM.finditer(text):
        yield match.start("name"), match.end(), _item_is_off(text, match)


def _item_is_off(text: str, item: re.Match[str]) -> bool:
    """Whether the value beside ``name: SWITCH`` is 0: behind it in the same item, or before it."""
    behind = re.split(r"\n\s*(?:-|\[\[)|\}", text[item.end() :], maxsplit=1)[0]
    before = re.split(r"\n\s*(?:-|\[\[)|\{", text[: item.start("key")])[-1]
    for part in (behind, before):
        value = _VALUE.search(part)
        if value:
            return _OFF.match(f"{part}\n", value.end()) is not None
    return False


class _Pairs(list[tuple[str, object]]):
    """Members of an object, also those of one name: readers differ on which of them counts."""


def _json(text: str) -> object | None:
    try:
        return [json.loads(text, object_pairs_hook=_Pairs)]
    except (ValueError, RecursionError):
        return None


def _in_json(tree: object) -> Iterator[str]:
    pending = [tree]
    while pending:
        one = pending.pop()
        if isinstance(one, str):
            yield from (what for _, what in assignments(one))
        elif isinstance(one, _Pairs):
            pending.extend(value for _, value in one)
            yield from _in_members(one)
        elif isinstance(one, list):
            pending.extend(one)
            for name, value in pairwise(one):
                if name in SWITCHES and str(value).lower() in _TRUE:
                    yield f"{name}, {shown(value)}"


def _in_members(members: _Pairs) -> Iterator[str]:
    values = [value for name, value in members if name.lower() == "value"]
    for name, value in members:
        if name in SWITCHES and _enables(value):
            yield f"{name}: {shown(value)}"
        off = bool(values) and not any(_enables(one) for one in values)
        if name.lower() in ("name", "variable") and value in SWITCHES and not off:
            yield f"{value}, value {shown(values or 'none')}"


def _enables(value: object) -> bool:
    return value is not None and value != "0" and not (type(value) is int and value == 0)


def _line_of(text: str, what: str) -> int:
    """The line of the first mention of what was found; 1 where it is spelt with escapes."""
    names = (name for name in sorted(SWITCHES, key=len, reverse=True) if name in what)
    match = re.search(rf"(?<![A-Za-z0-9_]){next(names, '')}(?![A-Za-z0-9_])", text)
    return text.count("\n", 0, match.start()) + 1 if match else 1
