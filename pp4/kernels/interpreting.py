"""Triton's interpreter without the work that it repeats.

It maps ``triton.language`` to NumPy anew whenever one jit function calls another, makes the type of
every value anew, and broadcasts values of one shape to that shape: half of the time of an
interpreted kernel.  Results do not change; a test compares both ways.
"""

from __future__ import annotations

import dataclasses
import math
from types import ModuleType
from typing import Any

import triton.language as tl
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter

_MODULES = (tl, tl.core)

_broadcast_any = TritonSemantic.broadcast_impl_value
_cast_any = TritonSemantic.cast
_np_dtype_of_any = interpreter._get_np_dtype
_unwrapped_any = tl.core._unwrap_if_constexpr

_np_dtypes: dict[str, Any] = {}
_blocks: dict[tuple[Any, ...], Any] = {}
_shapes: dict[tuple[int, ...], tuple[Any, Any]] = {}


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


def _np_dtype(of: Any) -> Any:
    """The NumPy type of a type, whose table is not made anew for each."""
    scalar = of.scalar
    if type(scalar) is not tl.dtype:
        return _np_dtype_of_any(of)
    if scalar.name not in _np_dtypes:
        _np_dtypes[scalar.name] = _np_dtype_of_any(scalar)
    return _np_dtypes[scalar.name]


def _block(scalar: Any, shape: Any) -> Any:
    """The type of a block, made once; there are as many types of pointers as launches."""
    if type(scalar) is not tl.dtype:
        return tl.block_type(scalar, shape)
    key = (scalar.name, *shape)
    if key not in _blocks:
        _blocks[key] = tl.block_type(scalar, shape)
    return _blocks[key]


def _make_value(self: Any, handle: Any, type: Any) -> None:
    """Initialise a value; its shape is one that all values of that shape have."""
    plain = (*type.shape,) if type.is_block() else ()
    if plain not in _shapes:
        _shapes[plain] = (
            tl.constexpr(math.prod(plain)),
            tl.tuple([tl.constexpr(size) for size in plain]),
        )
    self.handle, self.type, self.dtype = handle, type, type.scalar
    self.numel, self.shape = _shapes[plain]


def _broadcast(self: Any, lhs: Any, rhs: Any) -> Any:
    """Broadcast two values to one shape, which they may have."""
    one, other = lhs.type, rhs.type
    if one.is_block() and other.is_block() and (*one.shape,) == (*other.shape,):
        return lhs, rhs
    return _broadcast_any(self, lhs, rhs)


def _cast(self: Any, input: Any, dst_ty: Any, fp_downcast_rounding: Any = None) -> Any:
    """Cast a value to a type, which it may have."""
    if input.type.scalar is dst_ty.scalar:
        return input
    return _cast_any(self, input, dst_ty, fp_downcast_rounding)


def _unwrapped(value: Any) -> Any:
    """What a constant stands for; most are none, and none of what is looked at otherwise."""
    if type(value) is tl.constexpr:
        return value.value
    return value if type(value) in (int, tl.tensor) else _unwrapped_any(value)


def repeat_nothing() -> None:
    """Let this process' interpreter do once what can be done once; it checks as before."""
    interpreter.InterpretedFunction.__call__ = _call
    interpreter._get_np_dtype = _np_dtype
    interpreter.InterpreterBuilder.get_block_ty = lambda _, scalar, shape: _block(scalar, shape)
    tl.core.block_type.with_element_ty = lambda self, scalar: _block(scalar, self.shape)
    tl.core.tensor.__init__ = _make_value
    tl.core._unwrap_if_constexpr = _unwrapped
    TritonSemantic.broadcast_impl_value = _broadcast
    TritonSemantic.cast = _cast


def quicken() -> None:
    """Make this process' interpreter quick: nothing repeated, no overflow checks.

    The overflow checks make every addition and product of integers a second time; tests of the
    kernels, which do not call this, keep them.
    """
    repeat_nothing()
    builder = interpreter.interpreter_builder
    builder.options = dataclasses.replace(builder.options, sanitize_overflow=False)
