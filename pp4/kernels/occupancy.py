"""How many blocks of a loaded kernel a GPU holds at once, by the driver's word."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import torch

from pp4.errors import Code, Refusal, RefusedError

_THREADS = 32
"""Threads of a warp."""


@cache
def _driver() -> Any:
    """The driver that this process runs on; its entry point is the one that PyTorch links."""
    return ctypes.CDLL("libcuda.so.1")


def resident_blocks(built: Any, device: torch.device, driver: Any = None) -> int:
    """Return how many blocks of a kernel the whole GPU holds at once; others wait for their end.

    Registers, threads and shared memory of the loaded function are taken into account.  What else
    runs on the GPU is not: it ends without this kernel's help and makes room.

    Args:
        built: Triton's compiled kernel, loaded on ``device``.
        device: a numbered GPU.
        driver: the CUDA driver's library; the one of this process where none is given.

    Raises:
        RefusedError: ``UNPRIMED``, the driver does not say.
    """
    each = ctypes.c_int()
    status = (driver or _driver()).cuOccupancyMaxActiveBlocksPerMultiprocessor(
        ctypes.byref(each),
        ctypes.c_void_p(built.function),
        ctypes.c_int(built.metadata.num_warps * _THREADS),
        ctypes.c_size_t(built.metadata.shared),
    )
    if status:
        raise RefusedError(
            Refusal(
                Code.UNPRIMED,
                f"kernel {built.name}",
                "the driver's word on how many blocks a multiprocessor holds",
                f"CUDA error {status}",
            )
        )
    return each.value * torch.cuda.get_device_properties(device).multi_processor_count
