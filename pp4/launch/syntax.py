"""Python text as a syntax tree, without a word on standard error and without running it."""

from __future__ import annotations

import ast
import sys
import warnings
from collections.abc import Iterator

from pp4.receipts.canonical import shown

SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
"""What begins a scope of names."""


def parsed(raw: bytes) -> ast.Module | str:
    """Return the tree of a file, or the reason why it has none."""
    try:
        with warnings.catch_warnings():
            # Of invalid escapes: they are the author's business.
            warnings.simplefilter("ignore")
            return ast.parse(raw)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        return f"no Python {version}: {shown(str(error) or type(error).__name__)}"


def within(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what belongs to the scope of a node: not what stands in a scope of its own in it."""
    pending = list(ast.iter_child_nodes(node))
    while pending:
        one = pending.pop()
        yield one
        if not isinstance(one, SCOPES):
            pending.extend(ast.iter_child_nodes(one))


def bound(node: ast.AST) -> Iterator[str]:
    """Yield the names that a single node binds, deletes, or takes from another scope."""
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        yield node.id
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.alias):
        yield (node.asname or node.name).partition(".")[0]
    elif isinstance(node, ast.Global | ast.Nonlocal):
        yield from node.names
    elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar):
        yield from filter(None, [node.name])
    elif isinstance(node, ast.MatchMapping):
        yield from filter(None, [node.rest])
