"""Triton's interpreter without the work that it repeats for every call of a jit function.

The interpreter maps ``triton.language`` to NumPy anew whenever one jit function calls another: a
third of the time of an interpreted kernel.  Once is enough, since nothing undoes it within a
launch.  Results do not change; a test compares both ways.
"""

from __future__ import annotations

import dataclasses
from types import ModuleType
from typing import Any

import triton.language as tl
from triton.runtime import interpreter

_MODULES = (tl, tl.core)


def _unmapped(function: Any) -> bool:
    """Whether a language module that a function names still holds Triton's own operations."""
    used = (value for value in function.__globals__.values() if isinstance(value, ModuleType))
    return any(one in _MODULES and tl.core.is_builtin(one.load) for one in used)


def _call(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Call one interpreted function from another, mapping the language where it is not yet."""
    if _unmapped(self.fn):
        interpreter._patch_lang(self.fn)
    try:
        return self.rewrite()(*args, **kwargs)
    except Exception as error:
        raise interpreter.InterpreterError(repr(error)) from error


def map_once() -> None:
    """Let this process' interpreter map the language once for each launch; it checks as before."""
    interpreter.InterpretedFunction.__call__ = _call


def quicken() -> None:
    """Make this process' interpreter quick: no repeated mapping, no overflow checks.

    The overflow checks make every addition and product of integers a second time; tests of the
    kernels, which do not call this, keep them.
    """
    map_once()
    builder = interpreter.interpreter_builder
    builder.options = dataclasses.replace(builder.options, sanitize_overflow=False)
