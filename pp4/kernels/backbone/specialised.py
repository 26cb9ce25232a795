"""Each kernel of a backbone with what it is compiled for, the same for a launch and for priming."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from pp4.errors import BadInputError
from pp4.kernels.backbone.sizes import CHUNK, SPLITS, TILE, Sizes
from pp4.kernels.compile import Compiled
from pp4.kernels.device import backbone_attention, backbone_heads, backbone_rows
from pp4.kernels.loading import load_as_called, stand_in
from pp4.kernels.sampled_fused import interpreted

Constants = dict[str, Any]
ALIGNMENT: Final = 16
SPAN: Final = 1024
"""Elements of a row that one program of the gate has."""
HEADS_AT_ONCE: Final = 8
_BF16, _WIDE, _FLOAT = "*bf16", "*i64", "*fp32"
_DTYPES: Final = {_BF16: torch.bfloat16, _WIDE: torch.int64, _FLOAT: torch.float32}
# What is in the inputs' buffer starts anywhere in it; everything else on 16 bytes, so that a load
# may take as many.
_ANYWHERE: Final = _WIDE


@dataclass(frozen=True)
class Kernel:
    """A kernel and what it takes.

    Attributes:
        function: the jit function.
        pointers: type of each pointer by name.
        constants: what it is compiled for.
        warps: of a program.
        scalars: integers that no binary depends on.
    """

    function: Any
    pointers: Mapping[str, str]
    constants: Callable[[Sizes], Constants]
    warps: Callable[[Sizes], int]
    scalars: tuple[str, ...] = ()

    def fixed(self, sizes: Sizes) -> Constants:
        """Constants and options, in the order that is part of Triton's key."""
        return {
            **self.constants(sizes),
            "INTERPRETED": interpreted(self.function),
            "num_warps": self.warps(sizes),
            "num_stages": 2,
            "enable_fp_fusion": False,
        }

    def launch(
        self, grid: tuple[int, ...], sizes: Sizes, tensors: Mapping[str, Tensor], **scalars: int
    ) -> None:
        """Launch it on the current stream.

        Raises:
            BadInputError: a tensor of another type, not contiguous, or that starts where no kernel
                reads it: such a launch would compile another binary.
        """
        for name, kind in self.pointers.items():
            _check(name, tensors[name], kind)
        given = {name: tensors[name] for name in self.pointers}
        given_scalars = {name: scalars[name] for name in self.scalars}
        self.function[grid](**given, **given_scalars, **self.fixed(sizes))

    def prime(self, sizes: Sizes, device: torch.device) -> Compiled:
        """Compile and load it on a GPU, launching nothing; -> what came out.

        Raises:
            BadInputError: ``device`` is no numbered GPU, or kernels are interpreted here.
            RefusedError: ``UNPRIMED``, it does not compile or does not load.
        """
        arguments = {
            **{name: stand_in(kind) for name, kind in self.pointers.items()},
            **dict.fromkeys(self.scalars, 0),
            **self.fixed(sizes),
        }
        return load_as_called(self.function, arguments, device=device)


def _check(name: str, tensor: Tensor, kind: str) -> None:
    dtype = _DTYPES[kind]
    if tensor.dtype != dtype or not tensor.is_contiguous():
        found = f"{tensor.dtype}, strides {tensor.stride()}"
        raise BadInputError.of(name, f"{dtype}, contiguous", found)
    if kind != _ANYWHERE and tensor.data_ptr() % ALIGNMENT:
        found = f"{tensor.data_ptr() % ALIGNMENT} bytes off"
        raise BadInputError.of(name, f"a start on {ALIGNMENT} bytes", found)


def _types(kind: str, *names: str) -> dict[str, str]:
    return dict.fromkeys((f"{name}_ptr" for name in names), kind)


def _row(sizes: Sizes) -> Constants:
    return {"WIDTH": sizes.hidden, "PADDED": sizes.padded_hidden, "EPS": sizes.eps}


def _heads(sizes: Sizes) -> Constants:
    return {"BLOCK": sizes.block, "HEADS": sizes.heads, "HEAD_DIM": sizes.head_dim}


def _row_warps(sizes: Sizes) -> int:
    return 4 if sizes.padded_hidden <= 2048 else 8


EMBEDDED: Final = Kernel(
    backbone_rows.embedded,
    {**_types(_WIDE, "anchors"), **_types(_BF16, "embedding", "weight", "hidden", "taken")},
    lambda sizes: {"BLOCK": sizes.block, **_row(sizes)},
    _row_warps,
    ("mask_token",),
)
ADDED: Final = Kernel(
    backbone_rows.added, _types(_BF16, "hidden", "more", "weight", "taken"), _row, _row_warps
)
GATED: Final = Kernel(
    backbone_rows.gated,
    _types(_BF16, "gate_up", "out"),
    lambda sizes: {"WIDTH": sizes.intermediate, "SPAN": SPAN},
    lambda _: 4,
)
TURNED: Final = Kernel(
    backbone_heads.turned,
    {
        **_types(_WIDE, "lengths"),
        **_types(_BF16, "qkv", "query_norm", "key_norm", "cos", "sin"),
    },
    lambda sizes: {
        **_heads(sizes),
        "KV_HEADS": sizes.kv_heads,
        "AT_ONCE": HEADS_AT_ONCE,
        "EPS": sizes.eps,
    },
    lambda _: 4,
)
ATTENDED: Final = Kernel(
    backbone_attention.attended,
    {
        **_types(_BF16, "qkv", "keys", "values"),
        **_types(_WIDE, "slots", "lengths"),
        **_types(_FLOAT, "found", "largest", "total"),
    },
    lambda sizes: {
        **_heads(sizes),
        "KV_HEADS": sizes.kv_heads,
        "ROWS": sizes.rows,
        "OWN": sizes.own,
        "CHUNK": CHUNK,
        "TILE": TILE,
        "SPLITS": SPLITS,
        "SCALE": sizes.scale,
    },
    lambda sizes: 4 if sizes.rows * sizes.head_dim <= 4096 else 8,
    ("context",),
)
MERGED: Final = Kernel(
    backbone_attention.merged,
    {
        **_types(_FLOAT, "found", "largest", "total"),
        **_types(_WIDE, "lengths"),
        **_types(_BF16, "out"),
    },
    lambda sizes: {**_heads(sizes), "CHUNK": CHUNK, "SPLITS": SPLITS},
    lambda _: 4,
)
KERNELS: Final = (EMBEDDED, TURNED, ATTENDED, MERGED, ADDED, GATED)


def prime(sizes: Sizes, device: torch.device) -> tuple[Compiled, ...]:
    """Compile and load all of them on a GPU, launching nothing; -> what came out, in order.

    Raises:
        BadInputError: ``device`` is no numbered GPU, or kernels are interpreted in this process.
        RefusedError: ``UNPRIMED``, one does not compile or does not load.
    """
    return tuple(kernel.prime(sizes, device) for kernel in KERNELS)
