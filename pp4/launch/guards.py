"""Guards that have to remain, found by syntax tree.

A guard is ``if SUBJECT is None:`` whose body ends in ``return`` or ``raise``, without an ``else``,
standing directly in the body of its function, before anything there that uses or binds SUBJECT and
before anything that could leave the function with success.  docs/prepare.md has the whole list.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

from pp4.errors import Code, Refusal, RefusedError
from pp4.launch.manifest import GuardRule
from pp4.launch.syntax import SCOPES, bound, parsed, within
from pp4.receipts.canonical import shown

Function = ast.FunctionDef | ast.AsyncFunctionDef
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_UNREADABLE: Final = frozenset({"exec", "eval", "locals", "globals", "vars"})
"""Calls that may bind a name without naming it."""
_BY_TEXT: Final = frozenset({"setattr", "getattr", "delattr"})
_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class Guard:
    """A guard that was found.

    Attributes:
        name: of its rule.
        path: its file.
        line: of its ``if``.
        form: its statement and the head of its function, without places; equal before and after.
    """

    name: str
    path: str
    line: int
    form: str


def find_guards(rules: Sequence[GuardRule], raw: bytes, where: str) -> tuple[Guard, ...]:
    """Find every guard that the rules of one file name, and no other of the same subject.

    Args:
        rules: all those of one file.
        raw: its bytes.
        where: its name, for messages.

    Raises:
        RefusedError: ``GUARD_CHANGED``.
    """
    tree = parsed(raw)
    if isinstance(tree, str):
        _refuse(where, "Python text with its guards", tree)
    try:
        return _found(rules, tree, where)
    except RecursionError:
        _refuse(where, "Python text with its guards", "statements that are nested too deep")


def _found(rules: Sequence[GuardRule], tree: ast.Module, where: str) -> tuple[Guard, ...]:
    found = {rule: _guard(rule, tree, where) for rule in rules}
    for subject in {rule.subject for rule in rules}:
        listed = {one.lineno for rule, (one, _) in found.items() if rule.subject == subject}
        lines = [one.lineno for one in _guards_of(tree, subject)]
        if sorted(lines) != sorted(listed):
            expected = f"{len(listed)} guards `if {subject} is None:`, in lines {sorted(listed)}"
            _refuse(where, expected, f"{len(lines)}, in lines {sorted(lines)}")
    return tuple(
        Guard(rule.name, rule.path, guard.lineno, f"{_head(function)}\n{ast.dump(guard)}")
        for rule, (guard, function) in found.items()
    )


def _guard(rule: GuardRule, tree: ast.Module, where: str) -> tuple[ast.If, Function]:
    function = _function(rule, tree, where)
    there = f"{where}, {rule.function}"
    guards = list(_guards_of(function, rule.subject))
    if len(guards) != 1:
        lines = f"{len(guards)}, in lines {[one.lineno for one in guards]}" if guards else "none"
        _refuse(there, _once(rule), f"{lines}{_near(tree, rule.subject) if not guards else ''}")
    (guard,) = guards
    if guard not in function.body:
        found = f"line {guard.lineno}, within another statement"
        _refuse(there, f"{_once(rule)}, directly in the function", found)
    for statement in function.body[: function.body.index(guard)]:
        flaw = _passes(statement, rule.subject)
        if flaw:
            found = f"line {guard.lineno}, behind {flaw}"
            _refuse(there, f"{_once(rule)}, before anything that gets past it", found)
    return guard, function


def _once(rule: GuardRule) -> str:
    return f"`if {rule.subject} is None:` that returns or raises, once"


def _function(rule: GuardRule, tree: ast.Module, where: str) -> Function:
    """Return the one definition of a function, if nothing else is bound to its name."""
    scope: ast.Module | ast.ClassDef = tree
    *classes, last = rule.function.split(".")
    for name in classes:
        inner = _bound_once(scope, name, rule, where)
        if not isinstance(inner, ast.ClassDef):
            _refuse(where, f"the class {name} of {rule.function}", "something else")
        scope = inner
    function = _bound_once(scope, last, rule, where)
    if not isinstance(function, _FUNCTIONS):
        _refuse(where, f"the function {rule.function}", "something else")
    for node in ast.walk(tree):
        if _rebinds(node, rule.function):
            found = f"another one, bound in line {getattr(node, 'lineno', 0)}"
            _refuse(where, f"the function {rule.function} as it is defined", found)
    arguments = function.args
    names = {a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    root = rule.subject.partition(".")[0]
    if root not in names:
        _refuse(f"{where}, {rule.function}", f"a parameter {root}", f"{sorted(names) or 'none'}")
    return function


def _bound_once(
    scope: ast.Module | ast.ClassDef, name: str, rule: GuardRule, where: str
) -> ast.stmt:
    """Return the statement of a scope's body that binds a name, if it is the only one."""
    places = [
        getattr(node, "lineno", 0) for node in within(scope) for one in bound(node) if one == name
    ]
    direct = [one for one in scope.body if name in bound(one)]
    if len(places) != 1 or len(direct) != 1:
        lines = f"{len(places)}, in lines {sorted(places)}" if places else "none"
        expected = f"one definition of {name}, under no condition, for {rule.function}"
        _refuse(where, expected, lines)
    return direct[0]


def _rebinds(node: ast.AST, function: str) -> bool:
    """Whether a node puts something else in a function's place, from another scope."""
    if isinstance(node, ast.Global):
        return function.partition(".")[0] in node.names
    if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
        return ast.unparse(node) == function
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("setattr", "delattr"):
        owner, _, last = function.rpartition(".")
        given = [ast.unparse(one) for one in node.args[:2]]
        return bool(owner) and given == [owner, repr(last)]
    return False


def _guards_of(node: ast.AST, subject: str) -> Iterator[ast.If]:
    for one in ast.walk(node):
        if (
            isinstance(one, ast.If)
            and _asks(one.test, subject)
            and not one.orelse
            and isinstance(one.body[-1], ast.Return | ast.Raise)
        ):
            yield one


def _asks(test: ast.expr, subject: str) -> bool:
    return (
        isinstance(test, ast.Compare)
        and [type(one) for one in test.ops] == [ast.Is]
        and isinstance(test.comparators[0], ast.Constant)
        and test.comparators[0].value is None
        and _dotted(test.left) == subject
    )


def _dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return ""


def _passes(statement: ast.stmt, subject: str) -> str:
    """Say how a statement before a guard gets past it; empty where it does not."""
    root, _, attribute = subject.partition(".")
    # What a nested function returns leaves that one alone.
    for node in () if isinstance(statement, SCOPES) else within(statement):
        if isinstance(node, ast.Return | ast.Yield | ast.YieldFrom):
            return f"line {node.lineno}, which can leave the function"
    if isinstance(statement, ast.Return | ast.Raise):
        return f"line {statement.lineno}, which leaves the function"
    for node in ast.walk(statement):
        line = f"line {getattr(node, 'lineno', statement.lineno)}"
        if root in bound(node):
            return f"{line}, which binds {root}"
        if _dotted(node) == subject:
            return f"{line}, which uses {subject}"
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            by_text = called in _BY_TEXT and attribute and _says(node, subject)
            if called in _UNREADABLE or by_text:
                return f"{line}, which calls {called}"
    return ""


def _says(call: ast.Call, subject: str) -> bool:
    last = subject.rpartition(".")[2]
    return any(not isinstance(one, ast.Constant) or one.value == last for one in call.args[1:2])


def _head(function: Function) -> str:
    """What else decides whether the guard is asked: decorators and parameters."""
    decorators = [ast.dump(one) for one in function.decorator_list]
    return "\n".join([*decorators, type(function).__name__, ast.dump(function.args)])


def _near(tree: ast.Module, subject: str) -> str:
    """Name the conditions on a subject that a file has, for a message."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.If | ast.While | ast.Assert | ast.IfExp):
            names = {_dotted(one) for one in ast.walk(node.test)}
            if subject in names:
                found.append((node.lineno, shown(ast.unparse(node.test), 60)))
    texts = [f"line {line}: {test}" for line, test in sorted(found)[:_SHOWN]]
    return f"; conditions on {subject}: {'; '.join(texts)}" if texts else ""


def _refuse(where: str, expected: str, found: str) -> NoReturn:
    raise RefusedError(Refusal(Code.GUARD_CHANGED, where, expected, found, "docs/prepare.md"))
