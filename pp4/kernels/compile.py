"""Compile the fused kernel for a GPU that need not be here, and say what came out.

``python -m pp4.kernels.compile`` prints digests as JSON; run it in a process without
``TRITON_INTERPRET``, since Triton decides at import whether jit functions are interpreted.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pp4.errors import Code, Pp4Error, Refusal, RefusedError
from pp4.kernels.geometry import Geometry

POINTER_TYPES = {
    "logits_ptr": "*i16",
    "w1_ptr": "*i32",
    "w2_ptr": "*i32",
    "bias_ptr": "*i16",
    "slot_ptr": "*i32",
    "map_ptr": "*i32",
    "mode_ptr": "*i32",
    "key_ptr": "*i64",
    "position_ptr": "*i32",
    "round_ptr": "*i32",
    "chain_ptr": "*i32",
    "ids_ptr": "*i32",
    "q_ptr": "*fp32",
    "token_ptr": "*i32",
    "error_ptr": "*i32",
    "stamp_ptr": "*i64",
    "waited_ptr": "*i64",
    "candidates_ptr": "*i64",
    "retired_ptr": "*i64",
    "epoch_ptr": "*i64",
    "own_error_ptr": "*i64",
}
_WIDE = {"own_workspace", "peer_workspace", "budget", "max_polls", "epoch_limit"}


@dataclass(frozen=True, slots=True)
class Compiled:
    """One specialisation as the GPU would load it.

    ``resident`` is how many of its blocks the GPU holds at once, None where it was not loaded.
    """

    target: str
    ptx: str
    cubin: bytes
    resident: int | None = None

    @property
    def ptx_sha256(self) -> str:
        """Digest of the PTX text."""
        return hashlib.sha256(self.ptx.encode()).hexdigest()

    @property
    def cubin_sha256(self) -> str:
        """Digest of the machine code."""
        return hashlib.sha256(self.cubin).hexdigest()


def compile_offline(
    geometry: Geometry, *, shards: int, arch: int = 90, kernel: Any = None
) -> Compiled:
    """Compile one specialisation for ``sm_<arch>`` without a GPU.

    Args:
        geometry: shapes that the binary depends on.
        shards: 1 for a rank of a pair, 2 for solo.
        arch: compute capability times ten.
        kernel: another kernel of the same signature, for instance a mutant.

    Returns:
        PTX and machine code.

    Raises:
        RefusedError: this process interprets Triton, so nothing can be compiled.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from pp4.kernels import sampled_fused

    function = kernel or sampled_fused._kernel
    if not isinstance(function, triton.runtime.JITFunction):
        raise RefusedError(
            Refusal(
                Code.BAD_INPUT,
                "compile_offline",
                "a process without TRITON_INTERPRET",
                "interpreted kernels",
            )
        )
    constants = geometry.constants(shards=shards, interpreted=False)
    scalars = {name: "i64" if name in _WIDE else "i32" for name in sampled_fused.SCALARS}
    signature = {**POINTER_TYPES, **scalars, **dict.fromkeys(constants, "constexpr")}
    aligned = [function.arg_names.index(name) for name in sampled_fused.ALIGNED]
    source = ASTSource(
        fn=function,
        signature={name: signature[name] for name in function.arg_names},
        constexprs=constants,
        # what a launch finds out about these pointers by itself
        attrs={(place,): [["tt.divisibility", 16]] for place in aligned},
    )
    built = triton.compile(source, target=GPUTarget("cuda", arch, 32), options=geometry.options())
    return Compiled(f"sm_{arch}", built.asm["ptx"], built.asm["cubin"])


def _kernel_of(control: str | None, directory: Path | None) -> Any:
    """Return the kernel of a mutant, or nothing for the product's own."""
    if control is None:
        return None
    if directory is None:
        raise RefusedError(
            Refusal(Code.BAD_INPUT, "--control", "--directory, where the copy is written", "none")
        )
    from pp4.kernels.controls import build

    return build(control, directory)._kernel


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Compile the fused kernel without a GPU.")
    parser.add_argument("--vocab", type=int, default=129280)
    parser.add_argument("--split", type=int, default=None)
    parser.add_argument("--tile", type=int, default=2048)
    parser.add_argument("--rank-dim", type=int, default=256)
    parser.add_argument("--mapped", type=int, choices=(0, 1), default=0)
    parser.add_argument("--warps", type=int, default=4)
    parser.add_argument("--arch", type=int, default=90)
    parser.add_argument("--shards", type=int, choices=(1, 2), default=1)
    parser.add_argument("--ptx", action="store_true", help="include the PTX text")
    parser.add_argument("--control", help="compile this mutant in place of the product")
    parser.add_argument("--directory", type=Path, help="where the mutant's copy is written")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Print target, digests and, where asked, the PTX of one specialisation as JSON."""
    asked = _parser().parse_args(argv)
    try:
        geometry = Geometry(
            vocab=asked.vocab,
            split=asked.split if asked.split is not None else asked.vocab // 2,
            tile=asked.tile,
            rank_dim=asked.rank_dim,
            mapped=bool(asked.mapped),
            warps=asked.warps,
        )
        kernel = _kernel_of(asked.control, asked.directory)
        built = compile_offline(geometry, shards=asked.shards, arch=asked.arch, kernel=kernel)
    except Pp4Error as error:
        sys.stderr.write(f"{error}\n")
        return int(error.exit)
    record = {
        "target": built.target,
        "ptx_sha256": built.ptx_sha256,
        "cubin_sha256": built.cubin_sha256,
    }
    if asked.ptx:
        record["ptx"] = built.ptx
    sys.stdout.write(json.dumps(record) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
