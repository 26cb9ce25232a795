"""Compile and load a kernel on a GPU without launching it, and notice whatever compiles later.

A launch that finds its kernel neither compiled nor loaded does both first: the one takes seconds,
the other waits for kernels that run, and a kernel that waits for this rank never ends.  So both are
done here, before a pair launches anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from pp4.errors import BadInputError, Code, Refusal, RefusedError
from pp4.kernels.compile import POINTER_TYPES, Compiled
from pp4.kernels.geometry import Geometry
from pp4.kernels.occupancy import resident_blocks

_DTYPES = {
    "*bf16": torch.bfloat16,
    "*i16": torch.int16,
    "*i32": torch.int32,
    "*i64": torch.int64,
    "*fp32": torch.float32,
    "*fp64": torch.float64,
}


def stand_in(kind: str) -> Any:
    """An argument that stands for a tensor in a warm-up, for instance of ``*i64``."""
    import triton

    return triton.MockTensor(_DTYPES[kind])


def load(function: Any, *, geometry: Geometry, shards: int, device: torch.device) -> Compiled:
    """Compile one specialisation of the fused kernel through its own cache and load it.

    A later launch with the arguments of a :class:`pp4.kernels.block.SampledBlock` of this geometry
    finds it there: neither pointers nor scalars are specialised, so stand-ins give the same key.

    Args:
        function: the product's kernel, or a mutant's.
        geometry: shapes that the binary depends on.
        shards: 1 for a rank of a pair, 2 for solo.
        device: where it is launched later; compiled for what this GPU is.

    Returns:
        Target, PTX, machine code, and how many blocks the GPU holds at once.

    Raises:
        BadInputError: the kernel is interpreted in this process, or ``device`` is no numbered GPU.
        RefusedError: ``UNPRIMED``, it does not compile or does not load.
    """
    from pp4.kernels.sampled_fused import SCALARS

    arguments = {
        **{name: stand_in(kind) for name, kind in POINTER_TYPES.items()},
        **dict.fromkeys(SCALARS, 0),
        **geometry.constants(shards=shards, interpreted=False),
        **geometry.options(),
    }
    return load_as_called(function, arguments, device=device)


def load_as_called(
    function: Any, arguments: Mapping[str, Any], *, device: torch.device
) -> Compiled:
    """Compile and load any kernel as a launch with these arguments would.

    Args:
        function: a jit function.
        arguments: by name, compiler options last and in the order of the later launch, which is
            part of Triton's key; tensors may be :func:`stand_in`.
        device: where it is launched later.

    Returns:
        Target, PTX, machine code, and how many blocks the GPU holds at once.

    Raises:
        BadInputError: the kernel is interpreted in this process, or ``device`` is no numbered GPU.
        RefusedError: ``UNPRIMED``, it does not compile or does not load.
    """
    import triton
    from triton.errors import TritonError

    if not isinstance(function, triton.runtime.JITFunction):
        raise BadInputError.of("kernel", "a process without TRITON_INTERPRET", "an interpreted one")
    if device.type != "cuda" or device.index is None:
        raise BadInputError.of("device", "a CUDA device with its number", str(device))
    name = _full_name(function)
    try:
        built = _warm(function, arguments, device.index)
    except (TritonError, RuntimeError) as error:
        raise _not_loaded(name, device, f"{type(error).__name__}: {error}") from error
    if built is None:
        raise _not_loaded(name, device, "no kernel: a hook of Triton kept it from being compiled")
    return Compiled(
        f"sm_{built.metadata.target.arch}",
        built.asm["ptx"],
        built.asm["cubin"],
        resident_blocks(built, device),
    )


def _warm(function: Any, arguments: Mapping[str, Any], device: int) -> Any:
    """Compile and load with a device current, as a launch there has it; -> Triton's kernel."""
    import triton

    driver = triton.runtime.driver.active
    before = driver.get_current_device()
    driver.set_current_device(device)
    try:
        built = function.warmup(grid=(1,), **arguments)
        if built is not None:
            # what a first launch does before it launches: module, function, launcher
            built._init_handles()
        return built
    finally:
        driver.set_current_device(before)


def _not_loaded(name: str, device: torch.device, found: str) -> RefusedError:
    return RefusedError(
        Refusal(Code.UNPRIMED, f"kernel {name}", f"one that compiles and loads on {device}", found)
    )


def _full_name(function: Any) -> str:
    return f"{function.fn.__module__}.{function.fn.__qualname__}"


def forbid_compilation(on_compile: Callable[[str, str], None]) -> Callable[[], None]:
    """Call back whenever Triton compiles anything in this process from now on.

    A kernel that comes from the cache on disk counts too: it was not there at priming, and its
    module is not loaded.  The call comes before the compilation of a launch or warm-up, so that an
    error raised by ``on_compile`` ends the launch before it costs anything; a direct
    ``triton.compile`` is reported when it is done.

    Args:
        on_compile: takes the kernel's full name and Triton's key: types, constants and options of
            a launch, the digest of a direct compilation.

    Returns:
        A call that puts things back as they were.
    """
    from triton import knobs

    hook, listener = knobs.runtime.jit_cache_hook, knobs.compilation.listener
    announced: list[Any] = []

    def before_launch(**said: Any) -> Any:
        function = said["fn"].jit_function
        on_compile(_full_name(function), str(said["key"]))
        refused = hook(**said) if hook else None
        if not refused:
            announced.append(function)
        return refused

    def after_compilation(**said: Any) -> None:
        function = getattr(said["src"], "fn", None)
        if listener:
            listener(**said)
        if any(one is function for one in announced):
            announced[:] = [one for one in announced if one is not function]
            return
        name = said["src"].name if function is None else _full_name(function)
        on_compile(name, str(said["metadata"]["hash"]))

    def allow() -> None:
        knobs.runtime.jit_cache_hook, knobs.compilation.listener = hook, listener

    knobs.runtime.jit_cache_hook, knobs.compilation.listener = before_launch, after_compilation
    return allow
