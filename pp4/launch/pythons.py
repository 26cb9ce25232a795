"""Assignments of the switches in Python, by syntax tree: the environment, dictionaries, commands.

Names of constants are followed within the file.  In a file that names a switch, a variable of the
environment whose name only a run would know counts as one.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from pp4.config import SWITCHES
from pp4.launch.comments import without_comments
from pp4.launch.syntax import parsed
from pp4.launch.texts import UNKNOWN, Finding, assignments
from pp4.receipts.canonical import shown

Value = str | int | None | tuple["Value", ...]
_READERS: Final = frozenset({"get", "getenv", "pop", "getb"})
_WRITERS: Final = re.compile(r"set|put|add|export|env", re.IGNORECASE)
_ENVIRONMENT: Final = re.compile(r"(^|\.)environb?$")
_SAID: Final = frozenset({"help", "description", "epilog", "usage", "reason", "msg"})
PARTS: Final = ("DSPARK", "SAMPLED", "TOP32")
"""What a name of a switch is put together of, if it is not written in one piece."""
_OURS: Final = ("pp4.config", "SWITCHES")


class _Unknown:
    """A value that only a run would know."""


_NOT_KNOWN: Final = _Unknown()


def python_findings(path: str, raw: bytes) -> list[Finding]:
    """Return what a Python file sets, in the order of lines."""
    tree = parsed(raw)
    if isinstance(tree, str):
        return [Finding(path, 1, f"names a switch and cannot be read: {tree}")]
    nodes = list(ast.walk(tree))
    if not any(_is_part(node) for node in nodes):
        return []
    try:
        return sorted({Finding(path, line, what) for line, what in _Reading(nodes).findings()})
    except RecursionError:
        return [Finding(path, 1, "names a switch and is nested too deep to be read")]


class _Reading:
    """One file: the constants that its names stand for, and what is made of them."""

    def __init__(self, nodes: Sequence[ast.AST]) -> None:
        self._constants = _constants(nodes)
        said = _only_said(nodes)
        self._nodes = [node for node in nodes if node not in said]
        self._names_a_switch = any(
            isinstance(node, ast.expr) and self._mentions(node) for node in self._nodes
        )

    def findings(self) -> Iterator[tuple[int, str]]:
        for node in self._nodes:
            for what in self._node(node):
                yield getattr(node, "lineno", 1), what

    def _node(self, node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield from self._target(target, node.value)
        elif isinstance(node, ast.AnnAssign | ast.AugAssign) and node.value is not None:
            yield from self._target(node.target, node.value)
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if key is not None:
                    yield from self._pair(key, value, "a dictionary's member")
        elif isinstance(node, ast.DictComp):
            yield from self._comprehension(node)
        elif isinstance(node, ast.Call):
            yield from self._call(node)
        elif isinstance(node, ast.Constant | ast.JoinedStr | ast.BinOp):
            text = self._value(node)
            if isinstance(text, str):
                for _, what in assignments(without_comments(text, "command")):
                    yield f"a text that sets it: {what}"

    def _target(self, target: ast.expr, value: ast.expr) -> Iterator[str]:
        if isinstance(target, ast.Tuple | ast.List):
            for one in target.elts:
                yield from self._target(one, target)
        elif isinstance(target, ast.Subscript):
            yield from self._pair(target.slice, value, "an item")
            if _ENVIRONMENT.search(ast.unparse(target.value)):
                yield from self._unknown_name(target.slice, value)

    def _pair(self, key: ast.expr, value: ast.expr, what: str) -> Iterator[str]:
        name = self._value(key)
        if name in SWITCHES and not self._off(value):
            yield f"{what} {name}: {shown(ast.unparse(value), 40)}"

    def _unknown_name(self, key: ast.expr, value: ast.expr) -> Iterator[str]:
        name = self._value(key)
        doubtful = name is _NOT_KNOWN or (isinstance(name, str) and UNKNOWN in name)
        if self._names_a_switch and doubtful and not self._off(value):
            found = shown(ast.unparse(key), 40)
            yield f"a variable of the environment that cannot be read: {found}"

    def _comprehension(self, node: ast.DictComp) -> Iterator[str]:
        for one in node.generators:
            names = self._value(one.iter)
            among = isinstance(names, tuple) and any(name in SWITCHES for name in names)
            if among and self._value(node.value) is not _NOT_KNOWN and not self._off(node.value):
                yield f"members of a dictionary: {shown(ast.unparse(node.value), 40)}"

    def _call(self, call: ast.Call) -> Iterator[str]:
        called = ast.unparse(call.func)
        last = called.rpartition(".")[2]
        for keyword in call.keywords:
            if keyword.arg in SWITCHES and not self._off(keyword.value):
                yield f"an argument {keyword.arg}={shown(ast.unparse(keyword.value), 40)}"
        if last in ("dict", "update", "OrderedDict"):
            yield from self._pairs_of(call)
        named = [k.value for k in call.keywords if k.arg in ("name", "key")]
        first = next(iter([*call.args[:1], *named]), None)
        if first is None:
            return
        more = [*call.args[1:2], *(k.value for k in call.keywords if k.arg in ("value", "default"))]
        if last == "fromkeys":
            names = self._value(first)
            if isinstance(names, tuple) and any(one in SWITCHES for one in names):
                yield from (f"members of a dictionary, {called}" for one in more if self._on(one))
        elif last in _READERS:
            if self._value(first) in SWITCHES:
                yield from (f"a default that is on, {called}" for one in more if self._on(one))
        elif _WRITERS.search(last):
            for one in more:
                yield from self._pair(first, one, called)
                if last in ("putenv", "setenv") or _ENVIRONMENT.search(called.rpartition(".")[0]):
                    yield from self._unknown_name(first, one)

    def _pairs_of(self, call: ast.Call) -> Iterator[str]:
        for argument in call.args:
            for one in ast.walk(argument):
                if not isinstance(one, ast.Tuple | ast.List) or len(one.elts) != 2:
                    continue
                if self._value(one.elts[1]) not in SWITCHES:
                    yield from self._pair(one.elts[0], one.elts[1], "a pair")

    def _off(self, node: ast.expr) -> bool:
        value = self._value(node)
        return value is None or value == "0" or (type(value) is int and value == 0)

    def _on(self, node: ast.expr) -> bool:
        """Whether a default is something else than off; the empty text, False and None are off."""
        return not self._off(node) and self._value(node) not in ("", False)

    def _mentions(self, node: ast.expr) -> bool:
        value = self._value(node)
        return value in SWITCHES or (isinstance(value, tuple) and any(v in SWITCHES for v in value))

    def _value(self, node: ast.expr) -> Value | _Unknown:
        return _folded(node, self._constants)


def _is_part(node: ast.AST) -> bool:
    """Whether a node has a part of a switch's name; where none has, none can be put together."""
    if isinstance(node, ast.Constant):
        value = node.value.decode("latin-1") if isinstance(node.value, bytes) else node.value
        return isinstance(value, str) and any(part in value for part in PARTS)
    if isinstance(node, ast.keyword):
        return node.arg in SWITCHES
    return isinstance(node, ast.alias) and node.name == _OURS[1]


def _constants(nodes: Sequence[ast.AST]) -> dict[str, Value]:
    """What the names of a file stand for, where each is assigned once and to a constant."""
    seen: dict[str, list[ast.expr]] = {}
    imported: dict[str, Value] = {}
    for node in nodes:
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name):
                    seen.setdefault(target.id, []).append(node.value)
        elif isinstance(node, ast.ImportFrom) and node.module == _OURS[0]:
            for alias in node.names:
                if alias.name == _OURS[1]:
                    imported[alias.asname or alias.name] = SWITCHES
    found = dict(imported)
    # A name may stand for one that is assigned further down.
    for _ in range(len(seen)):
        before = len(found)
        for name, values in seen.items():
            value = _folded(values[0], found) if len(values) == 1 else _NOT_KNOWN
            if name not in found and not isinstance(value, _Unknown):
                found[name] = value
        if len(found) == before:
            break
    return found


def _folded(node: ast.expr, constants: Mapping[str, Value]) -> Value | _Unknown:
    """The value of an expression of constants; parts of a text that are unknown become a sign."""
    if isinstance(node, ast.Constant):
        plain = node.value
        if isinstance(plain, bytes):
            return plain.decode("latin-1")
        return plain if plain is None or isinstance(plain, str | int) else _NOT_KNOWN
    if isinstance(node, ast.Name):
        return constants.get(node.id, _NOT_KNOWN)
    if isinstance(node, ast.JoinedStr):
        return "".join(_part(one, constants) for one in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _folded(node.left, constants), _folded(node.right, constants)
        if isinstance(left, str) or isinstance(right, str):
            return _text(left) + _text(right)
        return left + right if isinstance(left, tuple) and isinstance(right, tuple) else _NOT_KNOWN
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        return _formatted(node, constants)
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        values = [_folded(one, constants) for one in node.elts]
        return tuple(UNKNOWN if isinstance(one, _Unknown) else one for one in values)
    if isinstance(node, ast.Subscript):
        row, at = _folded(node.value, constants), _folded(node.slice, constants)
        if isinstance(row, tuple) and isinstance(at, int) and -len(row) <= at < len(row):
            return row[at]
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("str", "os.fsencode", "os.fspath"):
        value = _folded(node.args[0], constants) if len(node.args) == 1 else _NOT_KNOWN
        return _NOT_KNOWN if isinstance(value, _Unknown) else _text(value)
    return _NOT_KNOWN


def _part(node: ast.expr, constants: Mapping[str, Value]) -> str:
    if isinstance(node, ast.FormattedValue):
        plain = node.conversion < 0 and node.format_spec is None
        return _text(_folded(node.value, constants)) if plain else UNKNOWN
    return _text(_folded(node, constants))


def _text(value: Value | _Unknown) -> str:
    return UNKNOWN if isinstance(value, _Unknown | tuple) else str(value)


def _formatted(node: ast.BinOp, constants: Mapping[str, Value]) -> Value | _Unknown:
    text, given = _folded(node.left, constants), _folded(node.right, constants)
    if not isinstance(text, str):
        return _NOT_KNOWN
    values = given if isinstance(given, tuple) else (given,)
    try:
        return text % tuple(_text(one) for one in values)
    except (TypeError, ValueError):
        return _NOT_KNOWN


def _only_said(nodes: Sequence[ast.AST]) -> set[ast.AST]:
    """What stands in docstrings, in errors that are raised, and in help texts."""
    said: set[ast.AST] = set()
    for node in nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            said.add(node.value)
        elif isinstance(node, ast.Raise):
            said.update(ast.walk(node))
        elif isinstance(node, ast.Assert) and node.msg is not None:
            said.update(ast.walk(node.msg))
        elif isinstance(node, ast.keyword) and node.arg in _SAID:
            said.update(ast.walk(node.value))
    return said
